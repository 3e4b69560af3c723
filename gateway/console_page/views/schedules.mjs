// The schedules of all chats, or of one, with their due times and results.

import {
  act, ago, ask, button, byOffset, change, choices, drop, element, head, language, link, loadedTable, person, pill,
  place, preview, request, rowsOf, showDialog, simpleTable, small, t, toggle,
} from "../kit.mjs";

const PATH = "api/schedules";
const CHAT = ["channel", "chat", "topic"];
const FIELDS = [...CHAT, "owner", "name", "prompt", "kind", "expression", "timezone", "end_at", "active_hours", "missed", "overlap", "check"];

/** @param {Page} page */
export async function show(page) {
  const mayChange = page.may("change");
  /** @returns {Promise<void>} */
  const refresh = () => table.refresh();
  const table = await loadedTable("nav.schedules", "id", byOffset(page, (query) => `${PATH}?${page.query}&${query}`, "schedules"), [
    ["column.where", (row) => [place(row), small(person(row.owner.name, row.owner.user_id))]],
    ["column.message", (row) => preview(row.prompt), "text"],
    ["schedules.next", (row) => [row.enabled ? atZone(row.next_at, row.timezone) : pill("paused", row.paused_because), small(`${row.expression} · ${row.timezone}`)]],
    ["schedules.last", (row) => row.last && [states(row.last), small(ago(row.last.due_at), " ", act("schedules.runs", () => showRuns(row)))]],
    ["", (row) => mayChange && [act("schedules.run", () => change(page, `${PATH}/${row.id}/run`, "POST", undefined, null, refresh)),
      row.next_at && toggle(page, `${PATH}/${row.id}`, "PATCH", row.enabled, refresh, ["schedules.pause", "schedules.resume"]),
      act("action.edit", () => edit(row)), act("action.delete", () => remove(row))], "actions"],
  ]);
  const remove = async (/** @type {any} */ row) => {
    const path = `${PATH}/${row.id}`;
    const kept = only(await request(path), FIELDS); // The row may be older.
    await drop(path);
    page.notify(t("list.deleted"), () => change(page, PATH, "POST", kept, null, refresh));
    await refresh();
  };
  const edit = async (/** @type {any} */ row) => {
    const chats = row ? [row] : await rowsOf("api/channels/conversations?limit=200", "rows");
    await ask({ title: t("nav.schedules"), label: t("action.save"), wide: true, fields: [
      { name: "at", label: t("column.where"), type: "choice", options: chats.map((one, index) => [String(index), place(one).innerText]) },
      { name: "prompt", label: t("column.message"), type: "area", required: true, value: row?.prompt, max: 20000 },
      { name: "kind", label: t("column.kind"), type: "choice", value: row?.kind, options: choices(["cron", "every", "once"], (one) => t(`schedules.${one}`)) },
      { name: "expression", label: t("schedules.times"), required: true, value: row?.expression ?? "0 9 * * *", hint: t("schedules.times-hint") },
      { name: "timezone", label: t("schedules.timezone"), value: row?.timezone, hint: t("schedules.timezone-hint") },
      { name: "active_hours", label: t("schedules.hours"), value: row?.active_hours, hint: "09:00-18:00" },
    ], submit: ({ at, ...values }) => (row ? change(page, `${PATH}/${row.id}`, "PATCH", values, only(row, Object.keys(values)), refresh)
      : change(page, PATH, "POST", { ...only(chats[Number(at)], CHAT), ...values }, null, refresh)) });
  };
  page.onQuery(table.restart);
  page.onLive(["messages", "deliveries"], refresh);
  return [head(t("nav.schedules"), page.query.get("chat") && link("#schedules", t("filter.all")),
    mayChange && button(t("schedules.new"), () => edit(null), { class: "primary" })), table.element];
}

const showRuns = async (/** @type {any} */ row) => showDialog(row.name, simpleTable(["schedules.due", "column.state", "tool.reason"],
  (await rowsOf(`${PATH}/${row.id}/occurrences`, "occurrences")).map((one) => [atZone(one.due_at, row.timezone), states(one), one.detail])));

/** Return the state of a run, and the state of its answer's delivery. */
const states = (/** @type {any} */ one) => element("span", { title: one.detail }, pill(one.outcome), " ", one.delivery && pill(one.delivery));
const only = (/** @type {any} */ row, /** @type {string[]} */ names) => Object.fromEntries(names.map((name) => [name, row[name]]));

/** Return a time in the zone of its schedule. */
function atZone(/** @type {string} */ iso, /** @type {string} */ timeZone) {
  const date = new Date(iso);
  try {
    return element("span", { title: date.toLocaleString() }, date.toLocaleString(language(), { timeZone, dateStyle: "medium", timeStyle: "short" }));
  } catch { // This browser does not know the zone.
    return date.toLocaleString();
  }
}
