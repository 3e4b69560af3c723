// A view that is one list: a route of the API with its filters in the address, pages and downloads.

import { BASE, request } from "./api.mjs";
import { button, element } from "./elements.mjs";
import { filterBar } from "./filters.mjs";
import { createTable } from "./table.mjs";
import { t } from "./texts.mjs";

/**
 * Return a list's table, and the elements of its view.
 * @param {Page} page
 * @param {Omit<TableOptions, "label" | "load" | "empty"> & {name: string, path: string, filters?: Filter[], search?: string, formats?: string[], actions?: Node[]}} options `formats`: to download
 */
export async function list(page, { name, path, filters, search, formats = [], actions = [], ...options }) {
  const label = t(`nav.${name}`);
  const table = createTable({
    label,
    empty: t("list.none"),
    load: (before) => request(`${path}?${page.query}${before ? `&before=${before}` : ""}`, { signal: page.signal }),
    ...options,
  });
  await table.restart();
  page.onQuery(table.restart);
  const download = (/** @type {string} */ format) =>
    button(`${t("action.download")} ${format}`, () => location.assign(new URL(`${path}?${page.query}&format=${format}`, BASE)));
  return { table, content: [
    element("div", { class: "head" }, element("h2", {}, label), element("div", { class: "buttons" }, ...formats.map(download), ...actions)),
    filters ? filterBar(page, filters, { search }) : null,
    table.element,
  ] };
}

/** Return a filter for a time, as a duration before now. @returns {Filter} */
export const since = () => ({
  name: "since", label: t("list.time"),
  options: [["", t("filter.all")], ["PT5M", t("time.min", { count: 5 })], ["PT1H", t("time.h", { count: 1 })], ["P1D", t("time.d", { count: 1 })]],
});
