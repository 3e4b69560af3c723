// Small charts as SVG: bars over time, and lines. Each bar says its values when it is pointed at.

import { element, svg } from "./elements.mjs";

const WIDTH = 320;
const HEIGHT = 64;

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} kind names the color: "good", "bad", "warn", "accent" or "soft"
 * @property {(number | null)[]} values one for each time
 */

/**
 * Return stacked bars.
 * @param {{label: string, times: string[], series: Series[], format?: (value: number) => string}} chart
 */
export function bars({ label, times, series, format = (value) => value.toLocaleString() }) {
  const sums = times.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0));
  const top = Math.max(1e-9, ...sums);
  const step = WIDTH / Math.max(1, times.length);
  const columns = times.map((time, at) => {
    let y = HEIGHT;
    const said = series.map((one) => `${one.label}: ${format(one.values[at] ?? 0)}`).join(", ");
    return svg("g", {}, svg("title", {}, `${time} – ${said}`),
      svg("rect", { x: at * step, y: 0, width: step, height: HEIGHT, class: "hit" }),
      series.map((one) => {
        const height = ((one.values[at] ?? 0) / top) * (HEIGHT - 2);
        y -= height;
        return height > 0 && svg("rect", { x: at * step + step * 0.12, y, width: step * 0.76, height: Math.max(1, height), rx: 1, class: one.kind });
      }));
  });
  return frame(label, columns, times, format(top), top > 1e-9);
}

/**
 * Return lines over time; null = no value there.
 * @param {{label: string, times: string[], series: Series[], format?: (value: number) => string}} chart
 */
export function lines({ label, times, series, format = (value) => value.toLocaleString() }) {
  const top = Math.max(1e-9, ...series.flatMap((one) => one.values.map((value) => value ?? 0)));
  const step = WIDTH / Math.max(1, times.length - 1);
  const drawn = series.flatMap((one) => {
    const points = one.values.map((value, at) => (value === null ? null : [at * step, HEIGHT - 2 - (value / top) * (HEIGHT - 6)]));
    const path = points.map((point, at) => (point ? `${at && points[at - 1] ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}` : "")).join("");
    const dots = points.map((point, at) => point && svg("circle", { cx: point[0], cy: point[1], r: 2, class: one.kind },
      svg("title", {}, `${times[at]} – ${one.label}: ${format(one.values[at] ?? 0)}`)));
    return [svg("path", { d: path, class: `line ${one.kind}` }), ...dots];
  });
  return frame(label, drawn, times, format(top), series.some((one) => one.values.some((value) => value)));
}

/**
 * @param {string} label
 * @param {any[]} content
 * @param {string[]} times
 * @param {string} top
 * @param {boolean} hasData
 */
function frame(label, content, times, top, hasData) {
  return element("figure", { class: "chart" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "axis" }), hasData ? content : null),
    element("figcaption", {}, element("span", {}, times[0] ?? ""), element("span", {}, hasData ? `max ${top}` : "–"), element("span", {}, times.at(-1) ?? "")));
}
