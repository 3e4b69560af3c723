// Who may use the bot, who asks to, and who does.

import { request } from "../kit/api.mjs";
import { ago, button, element, person } from "../kit/elements.mjs";
import { createTable, simpleTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const active = await request("api/people?limit=100", { signal: page.signal });
  const pairings = (/** @type {boolean} */ isApproved) => async () => {
    const { rows } = await request("api/channels/pairings", { signal: page.signal });
    return { rows: rows.filter((/** @type {any} */ row) => Boolean(row.approved_at) === isApproved) };
  };
  const who = (/** @type {any} */ row) => person(row.user_name, row.user_id);
  const waiting = createTable({
    label: t("people.waiting"),
    key: (row) => row.code,
    load: pairings(false),
    empty: t("people.nobody-waits"),
    columns: [
      { label: t("column.asked"), cell: (row) => ago(row.created_at) },
      { label: t("column.channel"), cell: (row) => row.channel },
      { label: t("column.who"), cell: who },
      { label: t("column.code"), cell: (row) => element("code", {}, row.code) },
      { label: "", kind: "actions", cell: (row) => page.may("change") && button(t("action.approve"), async () => {
        await request(`api/channels/pairings/${encodeURIComponent(row.code)}/approve`, { method: "POST" });
        page.notify(t("people.approved", { name: row.user_name || row.user_id }));
        await Promise.all([waiting.refresh(), approved.refresh()]);
      }, { class: "primary small" }) },
    ],
  });
  const approved = createTable({
    label: t("people.approved-list"),
    key: (row) => row.code,
    load: pairings(true),
    empty: t("people.nobody-approved"),
    columns: [
      { label: t("column.approved"), cell: (row) => ago(row.approved_at) },
      { label: t("column.channel"), cell: (row) => row.channel },
      { label: t("column.who"), cell: who },
      { label: "", kind: "actions", cell: (row) => page.may("change") && button(t("action.revoke"), async () => {
        await request(`api/channels/pairings/${encodeURIComponent(row.channel)}/${encodeURIComponent(row.user_id)}`, { method: "DELETE" });
        page.notify(t("people.revoked", { name: row.user_name || row.user_id }));
        await approved.refresh();
      }, { class: "small" }) },
    ],
  });
  await Promise.all([waiting.restart(), approved.restart()]);
  page.onLive(["access"], () => Promise.all([waiting.refresh(), approved.refresh()]));
  return [
    element("h2", {}, t("nav.people")),
    element("section", {}, element("h2", {}, t("people.waiting")), waiting.element),
    element("section", {}, element("h2", {}, t("people.approved-list")), approved.element),
    element("section", {}, element("h2", {}, t("people.active")),
      simpleTable([t("column.last"), t("column.channel"), t("column.who"), t("column.messages"), t("column.kind")],
        active.rows.map((/** @type {any} */ row) => [ago(row.last_message_at), row.channel, who(row), row.messages.toLocaleString(), row.kind]),
        t("people.nobody"))),
  ];
}
