// What the bot sends: on its way, failed, uncertain, delivered.

import { request } from "../kit/api.mjs";
import { ago, button, element, pill, place } from "../kit/elements.mjs";
import { filterBar } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const ROWS = 50;
const STATES = ["pending", "sending", "uncertain", "failed", "delivered"];

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const table = createTable({
    label: t("nav.deliveries"),
    key: (row) => String(row.id),
    load: async (before) => {
      const state = page.query.get("state");
      const filter = state ? `&state=${encodeURIComponent(state)}` : "";
      const { rows } = await request(`api/channels/outbox?limit=${ROWS}${filter}${before ? `&before=${before}` : ""}`, { signal: page.signal });
      return { rows, next: rows.length === ROWS ? String(rows.at(-1).id) : null };
    },
    empty: t("deliveries.none"),
    columns: [
      { label: t("column.created"), cell: (row) => ago(row.created_at) },
      { label: t("column.where"), cell: place },
      { label: t("column.content"), kind: "text", cell: (row) => [
        element("span", { class: "preview" }, row.kind === "text" ? "" : `[${row.kind}] `, row.preview),
        row.error && element("span", { class: "error" }, row.error),
      ] },
      { label: t("column.state"), cell: (row) => pill(row.state) },
      { label: t("column.attempts"), kind: "number", cell: (row) => row.attempts },
      { label: "", kind: "actions", cell: (row) => actions(page, row, table) },
    ],
  });
  await table.restart();
  page.onQuery(table.restart);
  page.onLive(["deliveries"], table.refresh);
  const states = /** @type {[string, string][]} */ ([["", t("filter.all")], ...STATES.map((one) => [one, t(`state.${one}`)])]);
  return [
    element("div", { class: "head" }, element("h2", {}, t("nav.deliveries"))),
    filterBar(page, [{ name: "state", label: t("column.state"), options: states }]),
    table.element,
  ];
}

/**
 * @param {import("../console.mjs").Page} page
 * @param {any} row
 * @param {import("../kit/table.mjs").Table} table
 */
function actions(page, row, table) {
  if (!["failed", "uncertain"].includes(row.state) || !page.may("change")) return [];
  const path = `api/channels/outbox/${row.id}`;
  const resend = async () => {
    await request(`${path}/resend`, { method: "POST" });
    page.notify(t("deliveries.sent-again"));
    await table.refresh();
  };
  const discard = async () => {
    await request(path, { method: "DELETE" });
    page.notify(t("deliveries.discarded"));
    await table.refresh();
  };
  return [button(t("action.resend"), resend, { class: "small" }), button(t("action.discard"), discard, { class: "small" })];
}
