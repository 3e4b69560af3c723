// What the bot sends: on its way, failed, uncertain, delivered, discarded. One, or all that match, are sent again or discarded.

import { request } from "../kit/api.mjs";
import { ask } from "../kit/dialog.mjs";
import { ago, button, element, pill, place } from "../kit/elements.mjs";
import { filterBar, named } from "../kit/filters.mjs";
import { createTable } from "../kit/table.mjs";
import { language, t } from "../kit/texts.mjs";

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
    label: t("nav.deliveries"),
    key: (row) => String(row.id),
    load: async (before) => {
      const { rows } = await request(`${OUTBOX}?${query({ limit: String(ROWS), ...(before && { before }) })}`, { signal: page.signal });
      return { rows, next: rows.length === ROWS ? String(rows.at(-1).id) : null };
    },
    empty: t("deliveries.none"),
    columns: [
      { label: t("column.created"), cell: (row) => ago(row.created_at) },
      { label: t("column.where"), cell: place },
      { label: t("column.content"), kind: "text", cell: (row) => [
        element("span", { class: "preview" }, row.kind === "text" ? "" : `[${row.kind}] `, row.preview),
        row.error && element("span", { class: "error" }, row.error),
        row.second_send && element("small", { class: "soft" }, secondSend(row.second_send)),
      ] },
      { label: t("column.state"), cell: (row) => pill(row.state) },
      { label: t("column.attempts"), kind: "number", cell: (row) => row.attempts },
      { label: "", kind: "actions", cell: (row) => actions(row) },
    ],
  });
  const all = element("div", { class: "buttons" });
  let asked = 0;
  const count = async () => {
    if (!page.may("change")) return;
    const mine = ++asked;
    const { resendable, discardable } = await request(`${OUTBOX}/count?${query()}`, { signal: page.signal });
    if (mine !== asked) return; // The filters changed meanwhile.
    all.replaceChildren(...[
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
    const done = await request(`${OUTBOX}/${what}?${query()}`, { method: "POST" });
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
    ["failed", "uncertain"].includes(state) && button(t("action.resend"), () => change(`${id}/resend`, "deliveries.sent-again"), { class: "small" }),
    ["failed", "uncertain", "pending"].includes(state) &&
      button(t("action.discard"), () => change(id, "deliveries.discarded", `${id}/restore`, "DELETE"), { class: "small" }),
    state === "discarded" && button(t("action.restore"), () => change(`${id}/restore`, "deliveries.restored"), { class: "small" }),
  ];
  const [{ channels }] = await Promise.all([request("api/channels", { signal: page.signal }), table.restart(), count()]);
  page.onQuery(() => Promise.all([table.restart(), count()]));
  page.onLive(["deliveries"], refresh);
  const options = (/** @type {[string, string][]} */ more) => /** @type {[string, string][]} */ ([["", t("filter.all")], ...more]);
  return [
    element("div", { class: "head" }, element("h2", {}, t("nav.deliveries")), all),
    filterBar(page, [
      { name: "state", label: t("column.state"), options: options(STATES.map((one) => [one, t(`state.${one}`)])) },
      { name: "channel", label: t("column.channel"), options: options(Object.keys(channels).map((one) => [one, one])) },
      { name: "chat", label: t("column.where"), complete: named("api/rooms", "chat", "name") },
    ], { search: t("deliveries.search") }),
    table.element,
  ];
}

/** Return what a second send may do. @param {{effect: string, platform: string, until: string | null}} send */
function secondSend({ effect, platform, until }) {
  if (effect === "may_appear_twice") return t("deliveries.twice");
  return !until ? t("deliveries.once") : t("deliveries.once-until", { platform, time: new Date(until).toLocaleTimeString(language()) });
}
