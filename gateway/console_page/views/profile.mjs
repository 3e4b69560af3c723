// A person, or a room: memory, usage, limits, and each setting in force with its source.

import {
  act, ago, append, ask, choices, dollars, element, facts, formatAddress, head, link, loadedTable, person, pill, place,
  request, t, whole,
} from "../kit.mjs";
import { charts, firstDay } from "./usage.mjs";

/** @param {Page} page @param {"person" | "room"} kind */
export async function show(page, kind) {
  const [channel, ...rest] = page.rest.split("/");
  const id = rest.join("/");
  const path = `api/${kind === "person" ? "people" : "rooms"}/${encodeURIComponent(channel)}/${encodeURIComponent(id)}`;
  let found = await page.get(path);
  const mayChange = page.may("change");
  const [title, about, used] = [element("div"), element("p.soft"), element("div")];
  let titled = "";

  /** @type {(url: string, method: string, body?: unknown, undo?: () => unknown) => Promise<void>} */
  const send = async (url, method, body, undo) => {
    await request(url, { method, body });
    page.notify(t("list.saved"), undo);
    await refresh();
  };

  const memory = () => new URLSearchParams({ scope: found.memory_scope, agent: found.memory_agent });
  const all = () => `api/memory/facts?${memory()}`;
  const url = (/** @type {any} */ fact) => `api/memory/facts/${fact.id}?${memory()}`;
  const write = (/** @type {any} */ fact) => ask({
    title: t("profile.fact"), label: t("action.save"),
    fields: [{ name: "content", label: t("profile.fact"), type: "area", value: fact?.content, required: true, max: 2000 }],
    submit: (values) => (fact ? send(url(fact), "PATCH", values, () => send(url(fact), "PATCH", { content: fact.content })) : send(all(), "POST", values)),
  });
  const forget = (/** @type {any} */ fact) => send(url(fact), "DELETE", undefined, () =>
    send(all(), "POST", { content: fact.content, category: fact.category, confidence: fact.confidence }));
  const forgetAll = () => ask({
    title: t("profile.forget"), text: t("profile.forget-text"), label: t("profile.forget"), danger: true,
    submit: () => send(`api/memory?${new URLSearchParams({ scope: found.memory_scope })}`, "DELETE"),
  });
  const choose = (/** @type {any} */ { name, value, source }) => {
    const before = source === "command" ? value : null;
    const options = found.choices[name] && [["", t("profile.configured")], ...choices(found.choices[name])];
    return ask({
      title: name, label: t("action.save"),
      fields: [{ name, label: name, value: before ?? "", options, type: options ? "choice" : "text", hint: options ? "" : "Europe/Berlin" }],
      submit: (values) => send(path, "PATCH", { [name]: values[name] || null }, () => send(path, "PATCH", { [name]: before })),
    });
  };
  const revoke = (/** @type {any} */ { code, pairing_id }) => act("action.revoke", () => send(
    `api/channels/pairings/${encodeURIComponent(channel)}/${encodeURIComponent(pairing_id)}`, "DELETE", undefined,
    () => send(`api/channels/pairings/${code}/approve`, "POST")));
  const origin = (/** @type {any} */ { source, key, file, line }) => [t(`source.${source}`), " ",
    line && page.may("administer") ? link(formatAddress("configuration", "", { key }), `${file.split("/").at(-1)}:${line}`) : key && element("code", {}, key)];
  const amount = (/** @type {any} */ limit) => [limit.used, limit.limit].map(limit.unit === "usd" ? dollars : whole).join(" / ");

  const draw = async () => {
    const { access } = found;
    const usage = await charts(page, new URLSearchParams({ [kind]: found.usage_id, since: firstDay() }));
    const shown = JSON.stringify([found.name, access]);
    if (titled !== shown) title.replaceChildren(head([found.name || id, " ", pill(access.means || "refused"), " ", access.is_admin && pill("admin")],
      access.code && mayChange && revoke(access)));
    titled = shown;
    about.replaceChildren();
    append(about, [`${channel} · ${id} · ${found.kind} · `, ago(found.last_message_at), " ", !access.means && t(`reason.${access.disposition}`),
      access.approved_at && ` · ${t("column.approved")} `, access.approved_at && ago(access.approved_at)]);
    used.replaceChildren(usage, facts(found.limits.map((one) => [`${t(`source.${one.scope}`)} ${one.period}`, amount(one)])));
  };
  /** @type {(title: string, key: string, load: () => any, columns: Column[]) => Promise<Table>} */
  const list = (title, key, load, columns) => loadedTable(title, key, async () => load(), columns);
  const [, ...tables] = await Promise.all([draw(),
    list("profile.memory", "id", async () => (await page.get(`api/memory?${memory()}`)).facts, [
      ["profile.fact", (fact) => fact.content, "text"],
      ["column.who", (fact) => fact.speakerId && person(fact.speaker, fact.speakerId)],
      ["column.created", (fact) => ago(fact.createdAt)],
      ["", (fact) => mayChange && [act("action.edit", () => write(fact)), act("profile.forget-one", () => forget(fact))], "actions"],
    ]),
    list("profile.settings", "name", () => found.settings, [
      ["configuration.key", (one) => element("code", {}, one.name)],
      ["configuration.value", (one) => (typeof one.value === "string" ? one.value : JSON.stringify(one.value)), "text"],
      ["configuration.source", origin],
      ["", (one) => mayChange && (found.choices[one.name] || one.name === "timezone") && act("action.edit", () => choose(one)), "actions"],
    ]),
    list("nav.conversations", "thread_id", () => found.conversations, [
      ["column.where", (one) => link(formatAddress("conversation", one.thread_id), place(one))],
      ["column.last", (one) => ago(one.last_message_at)],
    ]),
    list("nav.schedules", "id", () => found.schedules, [
      ["column.name", (one) => link("#schedules", one.name)],
      ["schedules.next", (one) => one.next_at],
    ]),
    list("nav.people", "user_id", () => found.people, [
      ["column.who", (one) => link(formatAddress("person", `${channel}/${one.user_id}`), person(one.user_name, one.user_id))],
    ]),
  ]);
  const refresh = async () => {
    found = await page.get(path);
    await Promise.all([draw(), ...tables.map((one) => one.refresh())]);
  };
  page.onLive(["messages", "access", "people"], refresh);

  const [known, settings, conversations, schedules, people] = tables.map((one) => one.element);
  /** @type {(title: string, content: Child, ...buttons: Child[]) => Node} */
  const section = (title, content, ...buttons) => element("section", {}, head(t(title), ...buttons), content);
  return [
    element("p.crumbs", {}, link("#people", t("nav.people"))), title, about,
    section("profile.memory", known, mayChange && act("profile.add", () => write(null)), mayChange && act("profile.forget", forgetAll)),
    section("nav.usage", used), section("profile.settings", settings), section("nav.conversations", conversations),
    section("nav.schedules", schedules), kind === "room" && section("nav.people", people),
  ];
}
