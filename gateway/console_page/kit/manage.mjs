// Lists of what an administrator looks after, and changes of it that can be undone.

import { request } from "./api.mjs";
import { button, element } from "./elements.mjs";
import { createTable } from "./table.mjs";
import { t } from "./texts.mjs";

/**
 * Return a table that is loaded.
 * @param {string} label the key of a text
 * @param {string} key the field by which a row is known
 * @param {(before: string | null) => Promise<any>} load returns all rows, or a page of them
 * @param {[string, (row: any) => any, string?][]} columns the key of a label, a cell, and perhaps its kind
 * @param {Partial<TableOptions>} more
 */
export async function loadedTable(label, key, load, columns, more = {}) {
  const table = createTable({
    label: t(label), key: (row) => String(row[key]), empty: t("list.none"),
    load: async (before) => { const found = await load(before); return Array.isArray(found) ? { rows: found } : found; },
    columns: columns.map(([name, cell, kind]) => ({ label: name && t(name), kind,
      cell: kind === "actions" ? (row) => element("div", { class: "buttons" }, cell(row)) : cell })), ...more });
  await table.restart();
  return table;
}

/** @returns {Promise<any[]>} the rows in a field of an answer */
export const rowsOf = async (/** @type {string} */ path, /** @type {string} */ field) => (await request(path))[field];

/** Return a heading with buttons beside it. */
export const head = (/** @type {string} */ title, /** @type {Child[]} */ ...buttons) =>
  element("div", { class: "head" }, element("h2", {}, title), element("div", { class: "buttons" }, ...buttons));

/** Return a small button of a row. */
export const act = (/** @type {string} */ key, /** @type {() => unknown} */ onclick) => button(t(key), onclick, { class: "small" });
export const small = (/** @type {Child[]} */ ...text) => element("small", { class: "soft" }, ...text);
export const preview = (/** @type {string} */ text) => element("span", { class: "preview", title: text }, text);
export const problem = (/** @type {string} */ text) => element("span", { class: "error" }, text);

/**
 * Change something, say so, and offer to change it back.
 * @param {Page} page
 * @param {string} path
 * @param {string} method
 * @param {unknown} body
 * @param {unknown} back the body that undoes it; null: nothing does
 * @param {() => unknown} refresh
 */
export async function change(page, path, method, body, back, refresh) {
  await request(path, { method, body });
  page.notify(t("list.saved"), back ? () => change(page, path, method, back, null, refresh) : undefined);
  await refresh();
}

/** As `change`, for something whose `enabled` is switched. */
export const toggle = (/** @type {Page} */ page, /** @type {string} */ path, /** @type {string} */ method,
  /** @type {boolean} */ isOn, /** @type {() => unknown} */ refresh, words = ["list.disable", "list.enable"]) =>
  act(words[isOn ? 0 : 1], () => change(page, path, method, { enabled: !isOn }, { enabled: isOn }, refresh));
