// Changes that can be undone.

import { request } from "./api.mjs";
import { act } from "./elements.mjs";
import { t } from "./texts.mjs";

/** @returns {Promise<any[]>} the rows in a field of an answer */
export const rowsOf = async (/** @type {string} */ path, /** @type {string} */ field) => (await request(path))[field];

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
