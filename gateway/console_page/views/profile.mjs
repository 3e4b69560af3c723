// A person, or a room: memory, usage, limits, and each setting in force with its source.

import { formatAddress } from "../kit/address.mjs";
import { request } from "../kit/api.mjs";
import { ask } from "../kit/dialog.mjs";
import { ago, button, element, facts, link, person, pill, place } from "../kit/elements.mjs";
import { simpleTable } from "../kit/table.mjs";
import { dollars, t, whole } from "../kit/texts.mjs";
import { charts, each, firstDay } from "./usage.mjs";

/** @type {(value: any) => string} */
const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {Page} page @param {"person" | "room"} kind */
export async function show(page, kind) {
  const [channel, ...rest] = page.rest.split("/");
  const id = rest.join("/");
  const path = `api/${kind === "person" ? "people" : "rooms"}/${encodeURIComponent(channel)}/${encodeURIComponent(id)}`;
  const found = await request(path, { signal: page.signal });
  const { access, choices } = found;
  const memory = new URLSearchParams({ scope: found.memory_scope, agent: found.memory_agent });
  const [{ facts: known }, usage] = await Promise.all([
    request(`api/memory?${memory}`, { signal: page.signal }),
    charts(new URLSearchParams({ [kind]: found.usage_id, since: firstDay() }), page.signal),
  ]);

  /** @type {(url: string, method: string, body?: unknown, undo?: () => unknown) => Promise<void>} */
  const send = async (url, method, body, undo) => {
    await request(url, { method, body });
    page.notify(t("list.saved"), undo);
    await page.show();
  };
  /** @type {(label: string, call: () => unknown) => Node} */
  const act = (label, call) => button(t(label), call, { class: "small" });
  /** @type {(...buttons: (Node | false | null)[]) => Node | false} */
  const can = (...buttons) => page.may("change") && element("div", { class: "buttons" }, ...buttons);
  /** @type {(title: string, buttons: any, ...content: any[]) => Node} */
  const section = (title, buttons, ...content) => element("section", {}, element("div", { class: "head" }, element("h2", {}, t(title)), buttons), ...content);

  const url = (/** @type {any} */ fact) => `api/memory/facts${fact ? `/${fact.id}` : ""}?${memory}`;
  const write = (/** @type {any} */ fact) => ask({
    title: t("profile.fact"), label: t("action.save"),
    fields: [{ name: "content", label: t("profile.fact"), type: "area", value: fact?.content, required: true, max: 2000 }],
    submit: (values) => send(url(fact), fact ? "PATCH" : "POST", values, fact && (() => send(url(fact), "PATCH", { content: fact.content }))),
  });
  const forget = (/** @type {any} */ fact) => send(url(fact), "DELETE", undefined, () =>
    send(url(null), "POST", { content: fact.content, category: fact.category, confidence: fact.confidence }));
  const forgetAll = () => ask({
    title: t("profile.forget"), text: t("profile.forget-text"), label: t("profile.forget"), danger: true,
    submit: () => send(`api/memory?${new URLSearchParams({ scope: found.memory_scope })}`, "DELETE"),
  });

  const choose = (/** @type {any} */ { name, value, source }) => {
    const before = source === "command" ? value : null;
    const options = choices[name] && [["", t("profile.configured")], ...each(choices[name], (one) => [one, one])];
    return ask({
      title: name, label: t("action.save"),
      fields: [{ name, label: name, value: before ?? "", options, type: options ? "choice" : "text", hint: options ? "" : "Europe/Berlin" }],
      submit: (values) => send(path, "PATCH", { [name]: values[name] || null }, () => send(path, "PATCH", { [name]: before })),
    });
  };
  const origin = (/** @type {any} */ { source, key, file, line }) => element("span", { title: key }, t(`source.${source}`), " ",
    line && page.may("administer") ? link(formatAddress("configuration", "", { key }), `${file.split("/").at(-1)}:${line}`) : key && element("code", {}, key));
  const amount = (/** @type {any} */ limit) => each([limit.used, limit.limit], limit.unit === "usd" ? dollars : whole).join(" / ");

  return [
    element("p", { class: "crumbs" }, link("#people", t("nav.people"))),
    element("div", { class: "head" },
      element("h2", { title: id }, found.name || id, " ", pill(access.means || "refused"), " ", access.is_admin && pill("admin")),
      can(access.code && act("action.revoke", () => send(`api/channels/pairings/${encodeURIComponent(channel)}/${encodeURIComponent(access.pairing_id)}`, "DELETE",
        undefined, () => send(`api/channels/pairings/${access.code}/approve`, "POST"))))),
    element("p", { class: "soft" }, `${channel} · ${id} · ${found.kind} · `, ago(found.last_message_at), " ", !access.means && t(`reason.${access.disposition}`),
      access.approved_at && ` · ${t("column.approved")} `, access.approved_at && ago(access.approved_at)),
    section("profile.memory", can(act("profile.add", () => write(null)), known.length > 0 && act("profile.forget", forgetAll)), simpleTable([t("profile.fact"), t("column.who"), t("column.created"), ""], each(known, (fact) => [
      element("span", { class: "plain" }, fact.content), person(fact.speaker, fact.speakerId), ago(fact.createdAt),
      can(act("action.edit", () => write(fact)), act("profile.forget-one", () => forget(fact))),
    ]), t("list.none"))),
    section("nav.usage", null, usage, facts(each(found.limits, (one) => [`${t(`source.${one.scope}`)} ${one.period}`, amount(one)]))),
    section("profile.settings", null, simpleTable([t("configuration.key"), t("configuration.value"), t("configuration.source"), ""], each(found.settings, (one) => [
      element("code", {}, one.name), element("span", { class: "plain" }, words(one.value)), origin(one),
      (choices[one.name] || one.name === "timezone") && can(act("action.edit", () => choose(one))),
    ]), "")),
    section("nav.conversations", null, element("ul", {}, ...each(found.conversations, (one) =>
      element("li", {}, link(formatAddress("conversation", one.thread_id), place(one)), " ", ago(one.last_message_at))),
    ...each(found.schedules, (one) => element("li", {}, link("#schedules", one.name), " ", one.next_at ?? "")))),
    found.people.length ? section("nav.people", null, element("ul", {}, ...each(found.people, (one) =>
      element("li", {}, link(formatAddress("person", `${channel}/${one.user_id}`), person(one.user_name, one.user_id)))))) : null,
  ];
}
