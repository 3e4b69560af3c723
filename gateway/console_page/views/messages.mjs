// Every message that reached the bot, and what became of it.

import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ago, element, person, pill, place } from "../kit/elements.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const ROWS = 50;

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const table = createTable({
    label: t("nav.messages"),
    key: (row) => String(row.id),
    load: async (before) => {
      const { rows } = await request(`api/channels/inbox?limit=${ROWS}${before ? `&before=${before}` : ""}`, { signal: page.signal });
      return { rows, next: rows.length === ROWS ? String(rows.at(-1).id) : null };
    },
    empty: t("messages.none"),
    open: (row) => formatAddress("conversation", row.thread_id ?? ""),
    rowClass: (row) => (row.failed ? "failed" : ""),
    columns: [
      { label: t("column.received"), cell: (row) => ago(row.received_at) },
      { label: t("column.where"), cell: place },
      { label: t("column.who"), cell: (row) => person(row.user_name ?? "", row.user_id) },
      { label: t("column.message"), kind: "text", cell: (row) => element("span", { class: "preview" }, row.preview) },
      { label: t("column.state"), cell: (row) => pill(row.failed ? "failed" : row.state) },
    ],
  });
  await table.restart();
  page.onLive(["messages"], table.refresh);
  return [element("h2", {}, t("nav.messages")), table.element];
}
