// Every message that reached the bot, and what became of it.

import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ask } from "../kit/dialog.mjs";
import { ago, button, element, person, pill, place } from "../kit/elements.mjs";
import { filterBar } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

const FILTERS = ["q", "state", "channel", "person"];
const STATES = ["answered", "failed", "waiting", "silent", "stopped", "running", "taken_over", "refused", "not_addressed"];
const REPEATABLE = ["answered", "failed", "silent", "stopped", "interrupted"];

/** @param {import("../console.mjs").Page} page */
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
      ] },
      { label: t("column.state"), cell: (row) => pill(row.state) },
      { label: "", kind: "actions", cell: (row) => actions(page, row, table) },
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
      { name: "person", label: t("column.who"), complete: completePeople },
    ], { search: t("messages.search") }),
    table.element,
  ];
}

/** @param {string} text @returns {Promise<[string, string][]>} */
async function completePeople(text) {
  const { people } = await request("api/channels/people?limit=200");
  return people.filter((/** @type {any} */ one) => `${one.user_name} ${one.user_id}`.toLowerCase().includes(text.toLowerCase()))
    .map((/** @type {any} */ one) => [one.user_id, `${one.user_name} · ${one.channel}`]);
}

/**
 * @param {import("../console.mjs").Page} page
 * @param {any} row
 * @param {import("../kit/table.mjs").Table} table
 */
function actions(page, row, table) {
  if (!page.may("change")) return [];
  const path = `api/messages/${row.id.slice(1)}`;
  const act = async (/** @type {string} */ what, /** @type {unknown} */ body) => {
    const { message } = await request(`${path}/${what}`, { method: "POST", body });
    page.notify(message);
    await table.refresh();
  };
  if (["queued", "running"].includes(row.state)) return [button(t("action.stop"), () => act("stop", undefined), { class: "small" })];
  if (row.kind !== "chat" || !REPEATABLE.includes(row.state)) return [];
  const edit = () => ask({
    title: t("messages.repeat-title"), text: t("messages.repeat-text"), label: t("action.repeat"),
    fields: [{ name: "text", label: t("messages.repeat-words"), type: "area", max: 20000 }],
    submit: ({ text }) => act("repeat", { text: text.trim() ? text : null }),
  });
  return [button(t("action.repeat"), edit, { class: "small" })];
}
