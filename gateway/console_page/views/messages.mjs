// Every message that reached the bot, and what became of it.

import { remedy } from "../kit/access.mjs";
import { formatAddress } from "../kit/address.mjs";
import { ago, element, person, pill, place, preview, problem } from "../kit/elements.mjs";
import { channelFilter, filterBar, named, stateFilter } from "../kit/filters.mjs";
import { messageActions } from "../kit/message_actions.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const FILTERS = ["q", "state", "channel", "chat", "person"];
const STATES = ["answered", "failed", "waiting", "silent", "stopped", "running", "taken_over", "refused", "not_addressed"];

/** @param {Page} page */
export async function show(page) {
  const table = createTable({
    label: "nav.messages", key: "id",
    load: (before) => {
      const query = new URLSearchParams(before ? { before } : {});
      for (const name of FILTERS) if (page.query.get(name)) query.set(name, page.query.get(name) ?? "");
      return page.get(`api/messages?${query}`);
    },
    empty: "messages.none",
    open: (row) => (row.thread_id ? formatAddress("conversation", row.thread_id) : null),
    rowClass: (row) => (row.state === "failed" ? "failed" : ""),
    columns: [
      ["column.received", (row) => ago(row.received_at)],
      ["column.where", place],
      ["column.who", (row) => person(row.user_name, row.user_id)],
      ["column.message", (row) => [
        preview(row.preview || t("messages.no-text")),
        row.reason && problem(t(`reason.${row.reason}`, {}, row.reason)),
        remedy(row),
      ], "text"],
      ["column.state", (row) => pill(row.state)],
      ["", (row) => messageActions(page, row, table.refresh), "actions"],
    ],
  });
  const [channels] = await Promise.all([channelFilter(page), table.restart()]);
  page.onQuery(table.restart);
  page.onLive(["messages"], table.refresh);
  return [
    element("h2", {}, t("nav.messages")),
    filterBar(page, [
      stateFilter("state", "column.state", STATES), channels,
      { name: "chat", label: t("column.where"), complete: named("api/rooms", "chat", "name") },
      { name: "person", label: t("column.who"), complete: named("api/people", "user_id", "user_name") },
    ], { search: t("messages.search") }),
    table.element,
  ];
}
