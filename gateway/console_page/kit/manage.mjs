// Changes that can be undone.

import { request } from "./api.mjs";
import { act } from "./elements.mjs";
import { t } from "./texts.mjs";

/** @type {Kit["rowsOf"]} */
export const rowsOf = async (path, field) => (await request(path))[field];

/** @type {Kit["change"]} */
export async function change(page, path, method, body, back, refresh) {
  await request(path, { method, body });
  page.notify(t("list.saved"), back ? () => change(page, path, method, back, null, refresh) : undefined);
  await refresh();
}

/** @type {Kit["toggle"]} */
export const toggle = (page, path, method,
  isOn, /** @type {() => unknown} */ refresh, words = ["list.disable", "list.enable"]) =>
  act(words[isOn ? 0 : 1], () => change(page, path, method, { enabled: !isOn }, { enabled: isOn }, refresh));
