// Who may use the bot, who asks to, and who does.

import { pairingTables } from "../kit/access.mjs";
import { formatAddress } from "../kit/address.mjs";
import { ago, element, link, person } from "../kit/elements.mjs";
import { channelFilter, filterBar } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { dollars, t, whole } from "../kit/texts.mjs";

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
    element("section", {}, element("h2", {}, t("people.rooms")), seen[1].element),
    element("section", {}, element("h2", {}, t("people.waiting")), waiting.element),
    element("section", {}, element("h2", {}, t("people.approved-list")), approved.element),
  ];
}

/** @param {Page} page @param {"people" | "rooms"} path @param {"messages" | "people"} number */
function people(page, path, number) {
  const address = (/** @type {any} */ row) => formatAddress(row.chat ? "room" : "person", `${row.channel}/${row.chat ?? row.user_id}`);
  return createTable({
    label: "nav.people", key: address, empty: "people.nobody", open: address,
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
