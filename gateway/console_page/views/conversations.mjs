// The conversations, the most recently used first.

import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ago, element, link, pill, place } from "../kit/elements.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const ROWS = 50;

/** @param {Page} page */
export async function show(page) {
  const table = createTable({
    label: t("nav.conversations"),
    key: (row) => String(row.id),
    load: async (before) => {
      const { rows } = await request(`api/channels/conversations?limit=${ROWS}&offset=${before ?? 0}`, { signal: page.signal });
      return { rows, next: rows.length === ROWS ? String(Number(before ?? 0) + ROWS) : null };
    },
    empty: t("conversations.none"),
    open: (row) => formatAddress("conversation", row.thread_id ?? ""),
    columns: [
      { label: t("column.used"), cell: (row) => ago(row.updated_at) },
      { label: t("column.where"), cell: (row) => [
        row.thread_id ? link(formatAddress("conversation", row.thread_id), place(row)) : place(row),
        row.taken_over_by && pill("taken_over", row.taken_over_by),
      ] },
      { label: t("column.messages"), kind: "number", cell: (row) => row.last_seq.toLocaleString() },
      { label: t("column.waiting"), kind: "number", cell: (row) => row.pending || "" },
    ],
  });
  await table.restart();
  page.onLive(["messages", "takeovers"], table.refresh);
  return [element("h2", {}, t("nav.conversations")), table.element];
}
