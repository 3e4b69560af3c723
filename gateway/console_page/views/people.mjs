// Who may use the bot, who asks to, and who does.

import { pairingTables } from "../kit/access.mjs";
import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ago, element, link, person } from "../kit/elements.mjs";
import { filterBar } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { dollars, t, whole } from "../kit/texts.mjs";
import { each } from "./usage.mjs";

/** @param {Page} page */
export async function show(page) {
  const { channels } = await request("api/channels", { signal: page.signal });
  const seen = [people(page, "people", "messages"), people(page, "rooms", "people")];
  const { waiting, approved, refresh } = pairingTables(page);
  await Promise.all([waiting, approved, ...seen].map((one) => one.restart()));
  page.onQuery(() => Promise.all(seen.map((one) => one.restart())));
  page.onLive(["access"], refresh);
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

/** @param {Page} page @param {"people" | "rooms"} path @param {"messages" | "people"} number */
function people(page, path, number) {
  const address = (/** @type {any} */ row) => formatAddress(row.chat ? "room" : "person", `${row.channel}/${row.chat ?? row.user_id}`);
  return createTable({
    label: t(`nav.people`), key: address, empty: t("people.nobody"), open: address,
    load: async (offset) => {
      const query = new URLSearchParams({ ...Object.fromEntries(page.query), offset: offset ?? "0", kind: "group" });
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
