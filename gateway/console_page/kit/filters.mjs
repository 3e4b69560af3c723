// Filters of a list: a search field and choices, kept in the address.

import { request } from "./api.mjs";
import { element, select } from "./elements.mjs";
import { t } from "./texts.mjs";

const TYPING_MS = 300;
const ROWS = 50;

/** @type {Kit["filterBar"]} */
export function filterBar(page, filters, { search } = {}) {
  const bar = element("form.filters", { role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() });
  if (search) bar.append(textFilter(page, { name: "q", label: search }, "search"));
  for (const filter of filters) bar.append(filter.options ? choiceFilter(page, filter) : textFilter(page, filter, filter.type ?? "text"));
  return bar;
}

/** @param {Page} page @param {Filter} filter */
function choiceFilter(page, filter) {
  return element("label.filter", {}, element("span", {}, filter.label), select(filter.options ?? [], page.query.get(filter.name) ?? "", {
    name: filter.name,
    onchange: (/** @type {any} */ event) => page.setQuery({ [filter.name]: event.target.value }),
  }));
}

/** @param {Page} page @param {Filter} filter @param {"search" | "text" | "date"} type */
function textFilter(page, filter, type) {
  let timer = 0;
  const list = filter.complete ? element("datalist", { id: `complete-${filter.name}` }) : null;
  const field = element("input", {
    type, name: filter.name, value: page.query.get(filter.name) ?? "", placeholder: type === "search" ? t("filter.search") : "",
    list: list?.id, autocomplete: "off", spellcheck: "false",
  });
  /** @type {Map<string, string>} */
  const values = new Map();
  const complete = async () => {
    for (const [value, label] of await filter.complete?.() ?? []) values.set(values.has(label) ? `${label} · ${value}` : label, value);
    list?.replaceChildren(...[...values.keys()].map((value) => element("option", { value })));
    for (const [label, value] of values) if (field.value === value) field.value = label;
  };
  if (list) void complete();
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const text = field.value.trim();
      page.setQuery({ [filter.name]: values.get(text) ?? text }, { replace: true });
    }, TYPING_MS);
  });
  return element("label", { class: type === "search" ? "filter search" : "filter" }, element("span", {}, filter.label), field, list);
}

/** @type {Kit["named"]} */
export const named = (path, id, name) => async () =>
  (await request(`${path}?limit=200`)).rows.flatMap((/** @type {any} */ one) => (one[name] ? [[one[id], `${one[name]} · ${one.channel}`]] : []));

/** The option that stands for all. @returns {Option} */
export const ALL = () => ["", t("filter.all")];

/** @type {Kit["choices"]} */
export const choices = (values, label = (value) => value) => values.map((one) => [one, label(one)]);

/** @type {Kit["stateFilter"]} */
export const stateFilter = (name, label, states) =>
  ({ name, label: t(label), options: [ALL(), ...choices(states, (one) => t(`state.${one}`))] });

/** Return a filter for the channels. @param {Page} page @returns {Promise<Filter>} */
export const channelFilter = async (page) => ({
  name: "channel", label: t("column.channel"), options: [ALL(), ...choices(Object.keys((await page.get("api/channels")).channels))],
});

/** @type {Kit["byOffset"]} */
export const byOffset = (page, path, field) => async (/** @type {string | null} */ before) => {
  const at = Number(before);
  const rows = (await page.get(path(`limit=${ROWS}&offset=${at}`)))[field];
  return { rows, next: rows.length === ROWS ? String(at + ROWS) : null };
};
