// The conversations, the most recently used first.

import { ago, byOffset, formatAddress, head, link, loadedTable, pill, place, t, whole } from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  const table = await loadedTable("nav.conversations", "id", byOffset(page, (query) => `api/channels/conversations?${query}`, "rows"), [
    ["column.used", (row) => ago(row.updated_at)],
    ["column.where", (row) => [
      row.thread_id ? link(formatAddress("conversation", row.thread_id), place(row)) : place(row),
      row.taken_over_by && pill("taken_over", row.taken_over_by),
    ]],
    ["nav.messages", (row) => whole(row.last_seq), "number"],
    ["column.waiting", (row) => row.pending || "", "number"],
  ], { open: (row) => formatAddress("conversation", row.thread_id ?? "") });
  page.onLive(["messages", "takeovers"], table.refresh);
  return [head(t("nav.conversations")), table.element];
}
