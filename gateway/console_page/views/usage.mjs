// What model calls cost: by day, and by model, agent, channel, room and person.

import { BASE, channelFilter, chart, dollars, element, filterBar, head, loadedTable, profileLink, t, whole } from "../kit.mjs";

const DAY_MS = 86400000;
const [MAX_DAYS, MAX_ROWS] = [400, 50];
const TABLES = ["model", "agent", "channel", "room", "person"];
const NUMBERS = ["calls", "input_tokens", "output_tokens"];

/** @type {(at: number) => string} */
const dayOf = (at) => new Date(at).toISOString().slice(0, 10);
export const firstDay = () => dayOf(Date.now() - 29 * DAY_MS);

/** Return the cost and the tokens of each day as charts. @param {Page} page @param {URLSearchParams} filters of api/usage, with `since` */
export async function charts(page, filters) {
  const { totals } = await page.get(`api/usage?by=day&${filters}`);
  const last = Date.parse(filters.get("until") || dayOf(Date.now()));
  const times = Array.from({ length: MAX_DAYS }, (_, at) => dayOf(last - (MAX_DAYS - 1 - at) * DAY_MS)).filter((one) => one >= (filters.get("since") ?? ""));
  /** @type {(name: string, label: string, kind: string) => Series} */
  const series = (name, label, kind) => ({
    label: t(label), kind, values: times.map((day) => totals.find((one) => one.day === day)?.[name] ?? 0),
  });
  /** @type {(label: string, format: typeof whole, ...all: Series[]) => Node} */
  const card = (label, format, ...all) => element("div.card", {}, element("h3", {}, label), chart({ label, times, series: all, format }));
  return element("div.cards", {}, card(t("overview.cost"), dollars, series("cost_usd", "overview.cost", "accent")),
    card(t("overview.tokens"), whole, series("input_tokens", "usage.input_tokens", "accent"), series("output_tokens", "usage.output_tokens", "good")));
}

/** @param {Page} page */
export async function show(page) {
  if (!page.query.has("since")) page.query.set("since", firstDay());
  const filters = new URLSearchParams([...page.query].filter(([, value]) => value));
  const shown = element("div");
  const draw = async () => shown.replaceChildren(await charts(page, filters));
  const tables = await Promise.all(TABLES.map((column) => loadedTable(`source.${column}`, column, async () =>
    (await page.get(`api/usage?by=${column}&${filters}`)).totals
      .sort((a, b) => b.cost_usd - a.cost_usd || b.input_tokens - a.input_tokens).slice(0, MAX_ROWS), [
    [`source.${column}`, (row) => (["person", "room"].includes(column) && profileLink(row, column)) || row[column] || t("usage.others")],
    ...NUMBERS.map((one) => /** @type {Column} */ ([`usage.${one}`, (row) => whole(row[one]), "number"])),
    ["overview.cost", (row) => (row.unpriced_calls < row.calls ? dollars(row.cost_usd) : "–"), "number"],
  ], { empty: `${t(`source.${column}`)}: –` })));
  const [channels] = await Promise.all([channelFilter(page), draw()]);
  page.onLive(["messages"], () => Promise.all([draw(), ...tables.map((one) => one.refresh())]));
  const csv = new URL(`api/usage?format=csv&by=day&by=${TABLES.join("&by=")}&${filters}`, BASE).href;
  return [
    head(t("nav.usage"), element("a", { href: csv, download: "usage.csv" }, "CSV")),
    filterBar(page, [
      { name: "since", label: t("usage.since"), type: "date" }, { name: "until", label: t("usage.until"), type: "date" },
      channels,
    ]),
    shown, ...tables.map((one) => element("section", {}, one.element)),
  ];
}
