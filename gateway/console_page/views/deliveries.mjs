// The bot's deliveries. Sends again or discards one of them, or all that match.

import {
  act, ago, ask, button, channelFilter, createTable, element, filterBar, head, language, named, pill, place, post,
  problem, request, small, stateFilter, t,
} from "../kit.mjs";

const ROWS = 50;
const STATES = ["pending", "sending", "uncertain", "failed", "delivered", "discarded"];
const FILTERS = ["state", "channel", "chat", "q"];
const OUTBOX = "api/channels/outbox";

/** @param {Page} page */
export async function show(page) {
  const query = (/** @type {Record<string, string>} */ more = {}) => new URLSearchParams({
    ...Object.fromEntries([...page.query].filter(([name, value]) => FILTERS.includes(name) && value)), ...more,
  });
  const table = createTable({
    label: "nav.deliveries", key: "id",
    load: async (before) => {
      const { rows } = await page.get(`${OUTBOX}?${query({ limit: String(ROWS), ...(before && { before }) })}`);
      return { rows, next: rows.length === ROWS ? String(rows.at(-1).id) : null };
    },
    columns: [
      ["column.created", (row) => ago(row.created_at)],
      ["column.where", place],
      ["column.content", (row) => [
        element("span.preview", {}, row.kind === "text" ? "" : `[${row.kind}] `, row.preview),
        row.error && problem(row.error),
        row.second_send && small(secondSend(row.second_send)),
      ], "text"],
      ["column.state", (row) => pill(row.state)],
      ["column.attempts", (row) => row.attempts, "number"],
      ["", (row) => actions(row), "actions"],
    ],
  });
  const title = head(t("nav.deliveries"));
  let asked = 0;
  const count = async () => {
    if (!page.may("change")) return;
    const mine = ++asked;
    const { resendable, discardable } = await page.get(`${OUTBOX}/count?${query()}`);
    if (mine !== asked) return; // The filters changed meanwhile.
    title.lastElementChild?.replaceChildren(...[
      resendable > 1 && button(t("deliveries.resend-all", { count: resendable }), () => resendAll(resendable)),
      discardable > 1 && button(t("deliveries.discard-all", { count: discardable }), () => changeAll("discard")),
    ].filter((one) => one !== false));
  };
  const refresh = () => Promise.all([table.refresh(), count()]);
  /** @param {string} path @param {string} said @param {string} [undo] */
  const change = async (path, said, undo, method = "POST") => {
    await request(`${OUTBOX}/${path}`, { method });
    page.notify(t(said), undo ? () => change(undo, "deliveries.restored") : undefined);
    await refresh();
  };
  const changeAll = async (/** @type {string} */ what) => {
    const done = await post(`${OUTBOX}/${what}?${query()}`);
    const said = t(`deliveries.${what}-done`, { changed: done.changed, count: done.matched });
    page.notify(done.remaining ? `${said} ${t("deliveries.remaining", { count: done.remaining })}` : said,
      done.batch ? () => change(`restore?batch=${done.batch}`, "deliveries.restored") : undefined);
    await refresh();
  };
  const resendAll = (/** @type {number} */ number) => ask({ // It cannot be undone.
    title: t("deliveries.resend-all", { count: number }), text: t("deliveries.resend-text"), label: t("action.resend"),
    submit: () => changeAll("resend"),
  });
  const actions = (/** @type {any} */ { id, state }) => page.may("change") && [
    ["failed", "uncertain"].includes(state) && act("action.resend", () => change(`${id}/resend`, "deliveries.sent-again")),
    ["failed", "uncertain", "pending"].includes(state) &&
      act("action.discard", () => change(id, "deliveries.discarded", `${id}/restore`, "DELETE")),
    state === "discarded" && act("action.restore", () => change(`${id}/restore`, "deliveries.restored")),
  ];
  const [channels] = await Promise.all([channelFilter(page), table.restart(), count()]);
  page.onQuery(() => Promise.all([table.restart(), count()]));
  page.onLive(["deliveries"], refresh);
  return [
    title,
    filterBar(page, [
      stateFilter("state", "column.state", STATES), channels,
      { name: "chat", label: t("column.where"), complete: named("api/rooms", "chat", "name") },
    ], { search: t("deliveries.search") }),
    table.element,
  ];
}

/** Return the effect of a second send. @param {{effect: string, platform: string, until: string | null}} send */
function secondSend({ effect, platform, until }) {
  if (effect === "may_appear_twice") return t("deliveries.twice");
  return !until ? t("deliveries.once") : t("deliveries.once-until", { platform, time: new Date(until).toLocaleTimeString(language()) });
}
