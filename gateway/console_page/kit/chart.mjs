// Small charts as SVG: stacked bars or lines over time. Pointing at a time shows its values.

import { element, svg } from "./elements.mjs";

const WIDTH = 320;
const HEIGHT = 64;

/** @type {Kit["chart"]} */
export function chart({ label, times, series, format, isLines = false }) {
  const known = series.map((one) => one.values.map((value) => value ?? 0));
  const sums = times.map((_, at) => known.reduce((sum, values) => sum + values[at], 0));
  const top = Math.max(0, ...(isLines ? known.flat() : sums));
  const step = WIDTH / Math.max(1, times.length);
  const scale = (/** @type {number} */ value) => (value / top) * (HEIGHT - 3);
  const columns = times.map((time, at) => {
    const said = series.map((one) => `${one.label}: ${one.values[at] === null ? "–" : format(one.values[at] ?? 0)}`).join(", ");
    let y = HEIGHT;
    return svg("g", {}, svg("title", {}, `${time} – ${said}`),
      svg("rect", { x: at * step, y: 0, width: step, height: HEIGHT, class: "hit" }),
      isLines || !top ? [] : series.map((one, row) => {
        const height = scale(known[row][at]);
        y -= height;
        return height > 0 && svg("rect", { x: at * step + step * 0.12, y, width: step * 0.76, height, class: one.kind });
      }));
  });
  const lines = isLines && top ? series.map((one) => svg("path", { class: `line ${one.kind}`, d: one.values.map((value, at) => {
    if (value === null) return "";
    return `${at && one.values[at - 1] !== null ? "L" : "M"}${at * step} ${HEIGHT - 1 - scale(value)}h${step}`; // One step per time.
  }).join("") })) : [];
  return element("figure.chart", {},
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "axis" }), lines, columns),
    element("figcaption", {}, element("span", {}, times[0] ?? ""), element("span", {}, top ? `≤ ${format(top)}` : "–"), element("span", {}, times.at(-1) ?? "")));
}
