// The custom agents, and an editor to write one and try it before saving.

import {
  button, change, choices, drop, element, form, formatAddress, head, link, loadedTable, post, preview, request,
  rowsOf, send, showDialog, simpleTable, soft, t, valuesOf,
} from "../kit.mjs";
import { show as showChat } from "./chat.mjs";

const PATH = "api/agents";
const TRIED_MINUTES = 1440;
const address = (/** @type {string} */ name) => formatAddress("agents", name);
const pathOf = (/** @type {string} */ name) => `${PATH}/${encodeURIComponent(name)}`;

/** @param {Page} page */
export async function show(page) {
  if (page.rest || page.query.has("new")) return edit(page);
  const table = await loadedTable("nav.agents", "name", () => rowsOf(PATH, "agents"), [
    ["column.name", (row) => link(address(row.name), row.name)],
    ["agents.about", (row) => preview(row.description), "text"],
    ["source.model", (row) => row.model ?? t("agents.default")],
    ["agents.groups", (row) => shown(row.tool_groups) || t("filter.all")],
  ], { open: (row) => address(row.name) });
  return [head(t("nav.agents"), button(t("agents.lead-prompt"), () => showPrompt("lead-agent")),
    page.may("administer") && button(t("agents.new"), () => page.go("#agents?new=1"), { class: "primary" })), table.element];
}

/** @param {Page} page */
async function edit(page) {
  const name = page.rest;
  const mayWrite = page.may("administer");
  const [models, tools, agent] = await Promise.all([rowsOf("api/models", "models"), rowsOf("api/tools", "tools"),
    /** @type {any} */ (name ? request(pathOf(name)) : {})]);
  const groups = [...new Set(tools.map((one) => one.group).filter(Boolean))].join(", ");
  const fields = form([
    { name: "name", label: t("column.name"), required: true, max: 64, value: name, hint: name && t("agents.name-hint") },
    { name: "description", label: t("agents.about"), value: agent.description, max: 1024 },
    { name: "model", label: t("source.model"), type: "choice", value: agent.model ?? "", options: [["", t("agents.default")], ...choices(models.map((one) => one.name))] },
    { name: "tool_groups", label: t("agents.groups"), value: shown(agent.tool_groups), hint: t("agents.list-hint", { groups }) },
    { name: "skills", label: t("nav.skills"), value: shown(agent.skills) },
    { name: "soul", label: "SOUL.md", type: "area", rows: 14, value: agent.soul, max: 20000 },
  ], { label: t("action.save"), submit: async (values) => {
    const body = bodyOf(values);
    if (values.name === name) return change(page, pathOf(name), "PUT", body, agent, page.show);
    page.go(address((await post(PATH, body)).name));
  } });
  if (!mayWrite) fields.querySelector("button")?.remove();
  const remove = async () => {
    await drop(pathOf(name));
    page.go("#agents");
    page.notify(t("list.deleted"), () => change(page, PATH, "POST", agent, null, () => page.go(address(name))));
  };
  return [head(name || t("agents.new"), name && button(t("agents.prompt"), () => showPrompt(name)), name && mayWrite && button(t("action.delete"), remove)),
    element("div.cards.beside", {}, element("section.card", {}, fields), page.may("change") && await tryOut(page, () => bodyOf(valuesOf(fields))))];
}

/**
 * Return a conversation with an agent that need not be stored. Its thread is deleted when the view is left, or after a day.
 * @param {Page} page
 * @param {() => unknown} draft
 */
async function tryOut(page, draft) {
  const { thread_id: rest } = await post("api/threads", { metadata: { source: "try-out" }, ttl: TRIED_MINUTES });
  const drop = () => send(`api/threads/${rest}`, { method: "DELETE" });
  if (page.signal.aborted) await drop();
  page.onLeave(drop);
  const [, chat] = await showChat({ ...page, rest, draft: () => ({ agent_draft: draft() }) });
  const talk = /** @type {Element} */ (/** @type {Element} */ (chat).querySelector(".talk"));
  talk.querySelector("select")?.remove();
  return element("section", {}, soft(t("agents.try")), talk);
}

/** Show what the first message to an agent costs, part by part. */
async function showPrompt(/** @type {string} */ name) {
  const { parts, tokens, system } = await request(`${pathOf(name)}/prompt`);
  const rows = [...parts, { part: "=", tokens }].map((one) => [one.part, one.name, one.tokens.toLocaleString()]);
  showDialog(`${t("agents.prompt")}: ${name}`, simpleTable(["column.kind", "column.name", "tool.tokens"], rows), element("pre", {}, system));
}

const shown = (/** @type {string[] | null | undefined} */ names) => (names ? names.join(", ") || "-" : "");
const listed = (/** @type {string} */ text) => (text.trim() ? text.split(/[\s,]+/).filter((one) => one && one !== "-") : null);
const bodyOf = (/** @type {Record<string, string>} */ values) =>
  ({ ...values, model: values.model || null, tool_groups: listed(values.tool_groups), skills: listed(values.skills) });
