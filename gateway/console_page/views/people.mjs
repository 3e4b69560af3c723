// Who may use the bot, who asks to, and who does.

import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ago, button, element, link, person } from "../kit/elements.mjs";
import { filterBar } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { dollars, t, whole } from "../kit/texts.mjs";
import { each } from "./usage.mjs";

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const { channels } = await request("api/channels", { signal: page.signal });
  const seen = [people(page, "people", "messages"), people(page, "rooms", "people")];
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
  await Promise.all([waiting, approved, ...seen].map((one) => one.restart()));
  page.onQuery(() => Promise.all(seen.map((one) => one.restart())));
  page.onLive(["access"], () => Promise.all([waiting.refresh(), approved.refresh()]));
  page.onLive(["messages"], () => Promise.all(seen.map((one) => one.refresh())));
  return [
    element("h2", {}, t("nav.people")),
    filterBar(page, [{ name: "channel", label: t("column.channel"), options: [["", t("filter.all")], ...each(Object.keys(channels), (one) => [one, one])] }],
      { search: t("filter.search") }),
    seen[0].element,
    element("section", {}, element("h2", {}, t("people.rooms")), seen[1].element),
    element("section", {}, element("h2", {}, t("people.waiting")), waiting.element),
    element("section", {}, element("h2", {}, t("people.approved-list")), approved.element),
  ];
}

/** @param {import("../console.mjs").Page} page @param {"people" | "rooms"} path @param {"messages" | "people"} number */
function people(page, path, number) {
  const address = (/** @type {any} */ row) => formatAddress(row.chat ? "room" : "person", `${row.channel}/${row.chat ?? row.user_id}`);
  return createTable({
    label: t(`nav.people`), key: address, empty: t("people.nobody"), open: address,
    load: async (offset) => {
      const query = new URLSearchParams({ ...Object.fromEntries(page.query), offset: offset ?? "0" });
      const { rows, next } = await request(`api/${path}?${query}`, { signal: page.signal });
      return { rows, next: next && String(next) };
    },
    columns: [
      { label: t("column.who"), cell: (row) => link(address(row), person(row.user_name ?? row.name, row.chat ?? row.user_id)) },
      { label: t("column.channel"), cell: (row) => row.channel },
      { label: t("column.kind"), cell: (row) => row.kind },
      { label: t("column.last"), cell: (row) => ago(row.last_message_at) },
      { label: t(number === "people" ? "people.members" : "column.messages"), kind: "number", cell: (row) => whole(row[number]) },
      { label: t("people.month"), kind: "number", cell: ({ usage }) => `${whole(usage.tokens)} · ${dollars(usage.cost_usd)}` },
    ],
  });
}
