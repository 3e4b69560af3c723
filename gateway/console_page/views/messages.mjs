// Every message that reached the bot, and its outcome.

import {
  ago, channelFilter, formatAddress, list, messageActions, named, person, pill, place, preview, reasonOf, stateFilter, t,
} from "../kit.mjs";

const STATES = ["answered", "failed", "undelivered", "waiting", "silent", "stopped", "running", "taken_over", "refused", "not_addressed"];

/** @param {Page} page */
export async function show(page) {
  const { table, content } = await list(page, {
    name: "messages", path: "api/messages", key: "id", search: t("messages.search"),
    open: (row) => (row.thread_id ? formatAddress("conversation", row.thread_id) : null),
    isBad: ({ state }) => ["failed", "undelivered"].includes(state),
    columns: [
      ["column.received", (row) => ago(row.received_at)],
      ["column.where", place],
      ["column.who", (row) => person(row.user_name, row.user_id)],
      ["column.message", (row) => [
        preview(row.preview || t("messages.no-text")),
        ...reasonOf(row),
      ], "text"],
      ["column.state", (row) => pill(row.state)],
      ["", (row) => messageActions(page, row, () => table.refresh()), "actions"],
    ],
    filters: [
      stateFilter("state", "column.state", STATES), await channelFilter(page),
      { name: "chat", label: t("column.where"), complete: named("api/rooms", "chat", "name") },
      { name: "person", label: t("column.who"), complete: named("api/people", "user_id", "user_name") },
    ],
  });
  page.onLive(["messages"], table.refresh);
  return content;
}
