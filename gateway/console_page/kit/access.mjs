// Who may use the bot: people and groups that ask, that are approved, and what lets in those that were refused.

import { request } from "./api.mjs";
import { ago, button, element, link } from "./elements.mjs";
import { createTable } from "./table.mjs";
import { t } from "./texts.mjs";

const ROWS = 50;

/** @typedef {(page: Page, pairing: any, refresh: () => Promise<unknown>) => Promise<void>} Action */

/** Return the tables of open requests and of approvals. Approving and revoking ask nothing, and can be undone. @param {Page} page */
export function pairingTables(page) {
  const refresh = () => Promise.all([waiting.refresh(), approved.refresh()]);
  const load = (/** @type {boolean} */ isApproved) => async (/** @type {string | null} */ before) => {
    const { rows } = await request("api/channels/pairings", { signal: page.signal });
    const found = rows.filter((/** @type {any} */ row) => Boolean(row.approved_at) === isApproved);
    const end = Number(before) + ROWS;
    return { rows: found.slice(end - ROWS, end), next: end < found.length ? String(end) : null };
  };
  const key = (/** @type {any} */ row) => row.code;
  const where = { label: t("column.channel"), cell: (/** @type {any} */ row) => [row.channel, row.workspace].filter(Boolean).join(" · ") };
  const act = (/** @type {Action} */ action, /** @type {string} */ label, kind = "") => ({
    label: "", kind: "actions", cell: (/** @type {any} */ row) => page.may("change") && button(label, () => action(page, row, refresh), { class: `${kind} small` }),
  });
  const who = { label: t("column.who"), kind: "text", cell: (/** @type {any} */ row) => [row.user_name, element("small", { class: "soft" }, row.user_id)] };
  const waiting = createTable({
    label: t("people.waiting"), key, load: load(false), empty: t("people.nobody-waits"),
    columns: [
      { label: t("column.asked"), cell: (row) => ago(row.created_at) }, where, who,
      { label: t("column.message"), kind: "text", cell: (row) => element("span", { class: "preview" }, row.text) },
      { label: t("column.code"), cell: (row) => element("code", {}, row.code) },
      act(approve, t("action.approve"), "primary"),
    ],
  });
  const approved = createTable({
    label: t("people.approved-list"), key, load: load(true), empty: t("people.nobody-approved"),
    columns: [{ label: t("column.approved"), cell: (row) => ago(row.approved_at) }, where, who, act(revoke, t("action.revoke"))],
  });
  return { waiting, approved, refresh };
}

const nameOf = (/** @type {any} */ pairing) => pairing.user_name || pairing.user_id;

/** @type {Action} */
async function approve(page, pairing, refresh) {
  await request(`api/channels/pairings/${encodeURIComponent(pairing.code)}/approve`, { method: "POST" });
  await sayApproved(page, pairing, refresh);
}

/** @type {Action} */
async function sayApproved(page, pairing, refresh) {
  page.notify(t("people.approved", { name: nameOf(pairing) }), () => revoke(page, pairing, refresh));
  await refresh();
}

/** @type {Action} */
async function revoke(page, pairing, refresh) {
  const path = [pairing.channel, pairing.user_id].map(encodeURIComponent).join("/");
  await request(`api/channels/pairings/${path}`, { method: "DELETE" });
  page.notify(t("people.revoked", { name: nameOf(pairing) }), () => approve(page, pairing, refresh));
  await refresh();
}

/**
 * Return the button that lets in the sender of a refused message, or the chat, if an approval does.
 * @param {Page} page
 * @param {any} row
 * @param {() => Promise<unknown>} refresh
 */
export const letIn = (page, row, refresh) => ["person", "chat"].includes(row.remedy.kind) &&
  button(t(`action.let-in-${row.remedy.kind}`), async () => {
    await sayApproved(page, await request(`api/messages/refused/${row.id.slice(1)}/let-in`, { method: "POST" }), refresh);
  }, { class: "small" });

/** Return what would make the bot answer a refused message if no approval does: a configuration; null for others. */
export function remedy(/** @type {any} */ row) {
  const { kind, setting } = row.remedy ?? {};
  if (kind === "admitted") return element("small", { class: "soft" }, t("remedy.admitted"));
  if (kind !== "setting") return null;
  const text = t(`remedy.${setting.split(".").at(-1)}`, { key: setting, id: row.user_id }, t("remedy.setting", { key: setting }));
  return element("small", {}, link(`#configuration?key=${encodeURIComponent(setting)}`, text));
}
