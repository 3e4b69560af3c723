// Every message that reached the bot, and what became of it.

import { remedy } from "../kit/access.mjs";
import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ago, element, person, pill, place } from "../kit/elements.mjs";
import { filterBar, named } from "../kit/filters.mjs";
import { messageActions } from "../kit/message_actions.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const FILTERS = ["q", "state", "channel", "chat", "person"];
const STATES = ["answered", "failed", "waiting", "silent", "stopped", "running", "taken_over", "refused", "not_addressed"];

/** @param {Page} page */
export async function show(page) {
  const table = createTable({
    label: t("nav.messages"),
    key: (row) => row.id,
    load: (before) => {
      const query = new URLSearchParams(before ? { before } : {});
      for (const name of FILTERS) if (page.query.get(name)) query.set(name, page.query.get(name) ?? "");
      return request(`api/messages?${query}`, { signal: page.signal });
    },
    empty: t("messages.none"),
    open: (row) => (row.thread_id ? formatAddress("conversation", row.thread_id) : null),
    rowClass: (row) => (row.state === "failed" ? "failed" : ""),
    columns: [
      { label: t("column.received"), cell: (row) => ago(row.received_at) },
      { label: t("column.where"), cell: place },
      { label: t("column.who"), cell: (row) => person(row.user_name, row.user_id) },
      { label: t("column.message"), kind: "text", cell: (row) => [
        element("span", { class: "preview" }, row.preview || t("messages.no-text")),
        row.reason && element("span", { class: "error" }, t(`reason.${row.reason}`, {}, row.reason)),
        remedy(row),
      ] },
      { label: t("column.state"), cell: (row) => pill(row.state) },
      { label: "", kind: "actions", cell: (row) => messageActions(page, row, table.refresh) },
    ],
  });
  const [{ channels }] = await Promise.all([request("api/channels", { signal: page.signal }), table.restart()]);
  page.onQuery(table.restart);
  page.onLive(["messages"], table.refresh);
  const states = STATES.map((one) => /** @type {[string, string]} */ ([one, t(`state.${one}`)]));
  const names = Object.keys(channels).map((one) => /** @type {[string, string]} */ ([one, one]));
  return [
    element("h2", {}, t("nav.messages")),
    filterBar(page, [
      { name: "state", label: t("column.state"), options: [["", t("filter.all")], ...states] },
      { name: "channel", label: t("column.channel"), options: [["", t("filter.all")], ...names] },
      { name: "chat", label: t("column.where"), complete: named("api/rooms", "chat", "name") },
      { name: "person", label: t("column.who"), complete: named("api/people", "user_id", "user_name") },
    ], { search: t("messages.search") }),
    table.element,
  ];
}
