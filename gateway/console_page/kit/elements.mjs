// Elements of the page. Text is only ever set as text, so content from people and models is never read as HTML.

import { decode, formatAddress } from "./address.mjs";
import { t } from "./texts.mjs";

/**
 * Return an element: "div.card" has a class. Attributes that begin with "on" are listeners; null and false omit an attribute or child.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} selector
 * @param {Record<string, any>} attributes
 * @param {(Child | Child[])[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const made = /** @type {HTMLElementTagNameMap[T]} */ (document.createElement(tag));
  if (classes.length) made.className = classes.join(" ");
  setAll(made, attributes);
  append(made, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** @type {Kit["svg"]} */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  setAll(made, attributes);
  append(made, children);
  return made;
}

/** @param {Element} made @param {Record<string, any>} attributes */
function setAll(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
}

/** Add children, except null and false. @param {Element} made @param {(Child | Child[])[]} children */
export function append(made, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false || child === "") continue;
    made.append(child instanceof Node ? child : String(child));
  }
}

/** @type {Record<string, string[]>} */
const GRADES = {
  good: ["connected", "ready", "ok", "delivered", "answered", "done", "approved", "current"],
  warn: [
    "connecting", "reconnecting", "pending", "sending", "running", "degraded", "waiting", "stopped", "uncertain",
    "interrupted", "taken_over", "warning",
  ],
  bad: ["failed", "error", "unreachable", "refused", "undelivered", "timeout", "problem"],
};

/** @type {Kit["pill"]} */
export function pill(state, title) {
  const grade = Object.keys(GRADES).find((one) => GRADES[one].includes(state)) ?? "";
  return element("span", { class: `pill ${grade}`, "data-state": state, title }, t(`state.${state}`, {}, state.replaceAll("_", " ")));
}

/** @type {Kit["ago"]} */
export function ago(iso) {
  if (!iso) return element("span.soft", {}, t("time.never"));
  return element("time", { datetime: iso, title: new Date(iso).toLocaleString() }, agoText(iso));
}

/** Return the words of `ago`. */
export function agoText(/** @type {string} */ iso) {
  const seconds = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  if (seconds < 5) return t("time.now");
  const [size, unit] = /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"]])
    .find(([size]) => seconds >= size) ?? [1, "s"];
  return t(`time.${unit}`, { count: Math.floor(seconds / size) });
}

/** Return a duration in seconds as words: "0.4 s", "12 s", "3 min". */
export function duration(/** @type {number | null | undefined} */ seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** @type {Kit["facts"]} */
export const facts = (pairs) =>
  element("dl", {}, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

/** @type {Kit["select"]} */
export const select = (options, value, attributes) =>
  element("select", attributes, options.map(([one, label]) => element("option", { value: one, selected: one === value }, label)));

/** @type {Kit["button"]} */
export function button(label, onclick, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", async (event) => {
    if (made.dataset.busy) return;
    made.dataset.busy = "1";
    try {
      await onclick(event);
    } finally {
      delete made.dataset.busy;
    }
  });
  return made;
}

/** @type {Kit["act"]} */
export const act = (key, onclick, kind = "") => button(t(key), onclick, { class: `small ${kind}` });

/** @type {Kit["head"]} */
export const head = (title, ...buttons) =>
  element("div.head", {}, element("h2", {}, title), element("div.buttons", {}, ...buttons));

export const soft = (/** @type {Child[]} */ ...text) => element("p.soft", {}, ...text);
export const small = (/** @type {Child[]} */ ...text) => element("small.soft", {}, ...text);
export const preview = (/** @type {string} */ text) => element("span.preview", { title: text }, text);
export const problem = (/** @type {Child} */ text) => element("span.error", {}, text);
export const json = (/** @type {unknown} */ value) => element("pre", {}, JSON.stringify(value, null, 2));

/** @type {Kit["link"]} */
export const link = (hash, ...children) => element("a", { href: hash }, ...children);

/** @type {Kit["place"]} */
export function place(row) {
  const ids = [row.channel, row.chat, row.topic].filter(Boolean).join(" · ");
  const known = row.place ? `${row.channel} · ${row.place}` : ids;
  return element("span", { title: ids }, known);
}

/** Return a person's name, with the platform's ID as its title. */
export const person = (/** @type {string} */ name, /** @type {string} */ id) =>
  element("span", { title: id }, name || id);

/** @type {Kit["profileLink"]} */
export function profileLink(row, kind) {
  const [channel, , id] = String(row[kind]).split(":").map(decode);
  return id ? link(formatAddress(kind, `${channel}/${id}`), person(row[`${kind}_name`], id)) : null;
}

/** @type {Kit["empty"]} */
export const empty = (text, ...more) => element("p.empty.soft", {}, text, ...more);
