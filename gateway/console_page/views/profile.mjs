// A person, or a room: memory, usage, limits, and each setting in force with its source.

import {
  act, ago, ask, choices, dollars, element, facts, formatAddress, head, link, person, pill, place, request,
  simpleTable, t, whole,
} from "../kit.mjs";
import { charts, firstDay } from "./usage.mjs";

/** @type {(value: any) => string} */
const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {Page} page @param {"person" | "room"} kind */
export async function show(page, kind) {
  const [channel, ...rest] = page.rest.split("/");
  const id = rest.join("/");
  const path = `api/${kind === "person" ? "people" : "rooms"}/${encodeURIComponent(channel)}/${encodeURIComponent(id)}`;
  const found = await page.get(path);
  const { access } = found;
  const memory = new URLSearchParams({ scope: found.memory_scope, agent: found.memory_agent });
  const [{ facts: known }, usage] = await Promise.all([
    page.get(`api/memory?${memory}`),
    charts(page, new URLSearchParams({ [kind]: found.usage_id, since: firstDay() })),
  ]);

  /** @type {(url: string, method: string, body?: unknown, undo?: () => unknown) => Promise<void>} */
  const send = async (url, method, body, undo) => {
    await request(url, { method, body });
    page.notify(t("list.saved"), undo);
    await page.show();
  };
  /** @type {(...buttons: (Node | false | null)[]) => Node | false} */
  const can = (...buttons) => page.may("change") && element("div.buttons", {}, ...buttons);
  /** @type {(title: string, buttons: any, ...content: any[]) => Node} */
  const section = (title, buttons, ...content) => element("section", {}, head(t(title), buttons), ...content);

  const all = `api/memory/facts?${memory}`;
  const url = (/** @type {any} */ fact) => `api/memory/facts/${fact.id}?${memory}`;
  const write = (/** @type {any} */ fact) => ask({
    title: t("profile.fact"), label: t("action.save"),
    fields: [{ name: "content", label: t("profile.fact"), type: "area", value: fact?.content, required: true, max: 2000 }],
    submit: (values) => (fact ? send(url(fact), "PATCH", values, () => send(url(fact), "PATCH", { content: fact.content })) : send(all, "POST", values)),
  });
  const forget = (/** @type {any} */ fact) => send(url(fact), "DELETE", undefined, () =>
    send(all, "POST", { content: fact.content, category: fact.category, confidence: fact.confidence }));
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
  const origin = (/** @type {any} */ { source, key, file, line }) => element("span", { title: key }, t(`source.${source}`), " ",
    line && page.may("administer") ? link(formatAddress("configuration", "", { key }), `${file.split("/").at(-1)}:${line}`) : key && element("code", {}, key));
  const amount = (/** @type {any} */ limit) => [limit.used, limit.limit].map(limit.unit === "usd" ? dollars : whole).join(" / ");

  return [
    element("p.crumbs", {}, link("#people", t("nav.people"))),
    element("div.head", {},
      element("h2", { title: id }, found.name || id, " ", pill(access.means || "refused"), " ", access.is_admin && pill("admin")),
      can(access.code && act("action.revoke", () => send(`api/channels/pairings/${encodeURIComponent(channel)}/${encodeURIComponent(access.pairing_id)}`, "DELETE",
        undefined, () => send(`api/channels/pairings/${access.code}/approve`, "POST"))))),
    element("p.soft", {}, `${channel} · ${id} · ${found.kind} · `, ago(found.last_message_at), " ", !access.means && t(`reason.${access.disposition}`),
      access.approved_at && ` · ${t("column.approved")} `, access.approved_at && ago(access.approved_at)),
    section("profile.memory", can(act("profile.add", () => write(null)), known.length > 0 && act("profile.forget", forgetAll)), simpleTable(["profile.fact", "column.who", "column.created", ""], known.map((fact) => [
      element("span.plain", {}, fact.content), person(fact.speaker, fact.speakerId), ago(fact.createdAt),
      can(act("action.edit", () => write(fact)), act("profile.forget-one", () => forget(fact))),
    ]), t("list.none"))),
    section("nav.usage", null, usage, facts(found.limits.map((one) => [`${t(`source.${one.scope}`)} ${one.period}`, amount(one)]))),
    section("profile.settings", null, simpleTable(["configuration.key", "configuration.value", "configuration.source", ""], found.settings.map((one) => [
      element("code", {}, one.name), element("span.plain", {}, words(one.value)), origin(one),
      (found.choices[one.name] || one.name === "timezone") && can(act("action.edit", () => choose(one))),
    ]))),
    section("nav.conversations", null, element("ul", {}, ...found.conversations.map((one) =>
      element("li", {}, link(formatAddress("conversation", one.thread_id), place(one)), " ", ago(one.last_message_at))),
    ...found.schedules.map((one) => element("li", {}, link("#schedules", one.name), " ", one.next_at ?? "")))),
    found.people.length ? section("nav.people", null, element("ul", {}, ...found.people.map((one) =>
      element("li", {}, link(formatAddress("person", `${channel}/${one.user_id}`), person(one.user_name, one.user_id)))))) : null,
  ];
}
