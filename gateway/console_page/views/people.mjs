// Approved people, requests for approval, and all who write to the bot.

import {
  ago, channelFilter, createTable, dollars, element, filterBar, formatAddress, link, pairingTables, person, t, whole,
} from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  const seen = [people(page, "people", "messages"), people(page, "rooms", "people")];
  const { waiting, approved, refresh } = pairingTables(page);
  await Promise.all([waiting, approved, ...seen].map((one) => one.restart()));
  page.onQuery(() => Promise.all(seen.map((one) => one.restart())));
  page.onLive(["access"], refresh);
  page.onLive(["messages"], () => Promise.all(seen.map((one) => one.refresh())));
  return [
    element("h2", {}, t("nav.people")),
    filterBar(page, [await channelFilter(page)], { search: t("filter.search") }),
    seen[0].element,
    section("people.rooms", seen[1]), section("people.waiting", waiting), section("people.approved-list", approved),
  ];
}

/** @param {string} title @param {Table} table */
const section = (title, table) => element("section", {}, element("h2", {}, t(title)), table.element);

/** @param {Page} page @param {"people" | "rooms"} path @param {"messages" | "people"} number */
function people(page, path, number) {
  const address = (/** @type {any} */ row) => formatAddress(row.chat ? "room" : "person", `${row.channel}/${row.chat ?? row.user_id}`);
  return createTable({
    label: "nav.people", key: address, open: address,
    load: async (offset) => {
      const query = new URLSearchParams({ ...Object.fromEntries(page.query), offset: offset ?? "0", kind: "group" });
      const { rows, next } = await page.get(`api/${path}?${query}`);
      return { rows, next: next && String(next) };
    },
    columns: [
      ["column.who", (row) => link(address(row), person(row.user_name ?? row.name, row.chat ?? row.user_id))],
      ["column.channel", (row) => row.channel],
      ["column.kind", (row) => row.kind],
      ["column.last", (row) => ago(row.last_message_at)],
      [number === "people" ? "people.members" : "nav.messages", (row) => whole(row[number]), "number"],
      ["people.month", ({ usage }) => `${whole(usage.tokens)} · ${dollars(usage.cost_usd)}`, "number"],
    ],
  });
}
