// Approved people, requests for approval, and how to let in refused people.

import { drop, post } from "./api.mjs";
import { act, ago, element, link, preview, small } from "./elements.mjs";
import { createTable } from "./table.mjs";
import { t } from "./texts.mjs";

const ROWS = 50;

/** @type {Kit["pairingTables"]} */
export function pairingTables(page) {
  const refresh = () => Promise.all([waiting.refresh(), approved.refresh()]);
  const load = (/** @type {boolean} */ isApproved) => async (/** @type {string | null} */ before) => {
    const { rows } = await page.get("api/channels/pairings");
    const found = rows.filter((row) => Boolean(row.approved_at) === isApproved);
    const end = Number(before) + ROWS;
    return { rows: found.slice(end - ROWS, end), next: end < found.length ? String(end) : null };
  };
  /** @type {Column} */
  const where = ["column.channel", (row) => [row.channel, row.workspace].filter(Boolean).join(" · ")];
  /** @type {Column} */
  const who = ["column.who", (row) => [row.user_name, small(row.user_id)], "text"];
  /** @type {(action: PairingAction, label: string, kind?: string) => Column} */
  const button = (action, label, kind) => ["", (row) => page.may("change") && act(label, () => action(page, row, refresh), kind), "actions"];
  const waiting = createTable({
    label: "people.waiting", key: "code", load: load(false), empty: "people.nobody-waits",
    columns: [
      ["column.asked", (row) => ago(row.created_at)], where, who,
      ["column.message", (row) => preview(row.text), "text"],
      ["column.code", (row) => element("code", {}, row.code)],
      button(approve, "action.approve", "primary"),
    ],
  });
  const approved = createTable({
    label: "people.approved-list", key: "code", load: load(true), empty: "people.nobody-approved",
    columns: [["column.approved", (row) => ago(row.approved_at)], where, who, button(revoke, "action.revoke")],
  });
  return { waiting, approved, refresh };
}

const nameOf = (/** @type {any} */ pairing) => pairing.user_name || pairing.user_id;

/** @type {PairingAction} */
async function approve(page, pairing, refresh) {
  await post(`api/channels/pairings/${encodeURIComponent(pairing.code)}/approve`);
  await sayApproved(page, pairing, refresh);
}

/** @type {PairingAction} */
async function sayApproved(page, pairing, refresh) {
  page.notify(t("people.approved", { name: nameOf(pairing) }), () => revoke(page, pairing, refresh));
  await refresh();
}

/** @type {PairingAction} */
async function revoke(page, pairing, refresh) {
  const path = [pairing.channel, pairing.user_id].map(encodeURIComponent).join("/");
  await drop(`api/channels/pairings/${path}`);
  page.notify(t("people.revoked", { name: nameOf(pairing) }), () => approve(page, pairing, refresh));
  await refresh();
}

/** @type {Kit["letIn"]} */
export const letIn = (page, row, refresh) => ["person", "chat"].includes(row.remedy.kind) &&
  act(`action.let-in-${row.remedy.kind}`, async () => {
    await sayApproved(page, await post(`api/messages/refused/${row.id.slice(1)}/let-in`), refresh);
  });

/** Return the configuration that would let in a refused sender. */
export function remedy(/** @type {any} */ row) {
  const { kind, setting } = row.remedy ?? {};
  if (kind === "admitted") return small(t("remedy.admitted"));
  if (kind !== "setting") return null;
  const text = t(`remedy.${setting.split(".").at(-1)}`, { key: setting, id: row.user_id }, t("remedy.setting", { key: setting }));
  return element("small", {}, link(`#configuration?key=${encodeURIComponent(setting)}`, text));
}
