// The pane "Behind it": the weather, and the inspector, which lists events in order.

import { element } from "/console/kit/elements.mjs";
import { act, byId, state } from "./server.mjs";
import { word } from "./words.mjs";

const STANDING = ["rate limit", "server error", "lost answer", "slow", "outage"];
const ONCE = ["dropped connections", "redelivery"];
const MODEL = ["model slow", "model broken", "model cut off", "model overflowing"];
const SOURCES = ["person", "slack", "telegram", "feishu", "model", "service", "weather"];
const MAX_ROWS = 500;
/** @type {Map<number, {revision: number, made: HTMLElement}>} by number: the revision that was drawn, and its element */
const rows = new Map();

/** Show the weather of each platform and the model. */
export function showWeather() {
  if (byId("weather").contains(document.activeElement) && document.activeElement?.tagName === "SELECT") return;
  const change = (/** @type {string} */ target, /** @type {string} */ kind) => act({ do: "weather", target, kind });
  const choice = (/** @type {string} */ target, /** @type {string[]} */ kinds) => element("select", { "aria-label": `${word("weather")}: ${target}`, onchange: (/** @type {any} */ event) => { void change(target, event.target.value); event.target.blur(); } },
    ["", ...kinds].map((kind) => element("option", { value: kind, selected: (state.weather[target] ?? "") === kind && "selected" }, word(kind || "fair"))));
  const line = (/** @type {string} */ target, /** @type {string[]} */ kinds, /** @type {string[]} */ once) => element("p", { "data-weather": target },
    element("span", {}, word(target)), choice(target, kinds),
    once.map((kind) => element("button", { type: "button", onclick: () => change(target, kind) }, word(kind))));
  byId("weather").replaceChildren(element("h3", {}, word("weather")),
    ...["telegram", "slack", "feishu"].map((name) => line(name, STANDING, ONCE)), line("model", MODEL, []));
}

/** Show the bot's requests that real platforms would refuse. */
export function showViolations() {
  byId("violations").textContent = state.violations.length ? `${word("violations")}: ${state.violations.join("; ")}` : "";
}

/** Set the words of the filter. */
export function showFilter() {
  const chosen = byId("source").value;
  byId("source").replaceChildren(...["", ...SOURCES].map((name) => element("option", { value: name }, name || word("all"))));
  byId("source").value = chosen;
}

/** Show the newest entries that the filter lets through. */
export function showEntries() {
  const box = byId("entries");
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  const source = byId("source").value;
  const sought = byId("search").value.toLowerCase();
  const found = [...state.entries.values()]
    .filter((one) => (!source || one.source === source) && (!sought || `${one.title} ${one.detail}`.toLowerCase().includes(sought)))
    .slice(-MAX_ROWS).map(row);
  const current = [...box.children];
  const isGrown = found.length >= current.length && current.every((one, index) => one === found[index]);
  if (isGrown) box.append(...found.slice(current.length));
  else box.replaceChildren(...found);
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function row(/** @type {import("./server.mjs").Entry} */ entry) {
  const known = rows.get(entry.number);
  if (known?.revision === entry.revision) return known.made;
  const isOpen = known?.made.querySelector("details")?.open;
  const made = element("li", { class: `entry ${entry.failed ? "failed" : ""}`, "data-source": entry.source, "data-kind": entry.kind },
    element("details", { open: isOpen ? "open" : null },
      element("summary", {}, element("time", {}, new Date(entry.at * 1000).toLocaleTimeString()), " ",
        element("span", { class: "source" }, entry.source), " ", element("span", { class: "kind" }, entry.kind), " ", entry.title),
      entry.curl && element("button", { type: "button", onclick: () => copy(entry.curl) }, word("copy")),
      entry.detail && element("pre", {}, entry.detail),
      entry.outcome && element("pre", {}, `${word("answer")}: ${entry.outcome}`)));
  rows.set(entry.number, { revision: entry.revision, made });
  return made;
}

async function copy(/** @type {string} */ text) {
  await navigator.clipboard.writeText(text);
  document.dispatchEvent(new CustomEvent("notice", { detail: word("copied") }));
}

byId("source").addEventListener("change", showEntries);
byId("search").addEventListener("input", showEntries);
