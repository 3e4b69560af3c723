// A view that is one list: a route of the API with its filters in the address, pages and downloads.

import { BASE } from "./api.mjs";
import { button, head } from "./elements.mjs";
import { ALL, filterBar } from "./filters.mjs";
import { loadedTable } from "./table.mjs";
import { t } from "./texts.mjs";

/** @type {Kit["list"]} */
export async function list(page, { name, path, filters, search, key, columns, formats = [], actions = [], ...options }) {
  const load = (/** @type {string | null} */ before) => page.get(`${path}?${page.query}${before ? `&before=${before}` : ""}`);
  const table = await loadedTable(`nav.${name}`, key, load, columns, options);
  page.onQuery(table.restart);
  const download = (/** @type {string} */ format) =>
    button(`${t("action.download")} ${format}`, () => location.assign(new URL(`${path}?${page.query}&format=${format}`, BASE)));
  return { table, content: [
    head(t(`nav.${name}`), formats.map(download), actions),
    filters ? filterBar(page, filters, { search }) : null,
    table.element,
  ] };
}

/** Return a filter for a time, as a duration before now. @returns {Filter} */
export const since = () => ({
  name: "since", label: t("list.time"),
  options: [ALL(), ["PT5M", t("time.min", { count: 5 })], ["PT1H", t("time.h", { count: 1 })], ["P1D", t("time.d", { count: 1 })]],
});
