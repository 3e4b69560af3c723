// A thread's content as elements: messages, tool steps, the plan, files, and questions to a person.

import { BASE } from "./api.mjs";
import { button, element, json, pill } from "./elements.mjs";
import { markdown, parseMarkdown } from "./markdown.mjs";
import { t } from "./texts.mjs";

const TEXTS_A_REQUEST = 100;
const MAX_PARSED = 500;
const IMAGE = /\.(png|jpe?g|gif|webp)$/i;
export const QUESTION = "ask_clarification";

/** @type {Map<string, Token[]>} */
const parsed = new Map();

/** Return the text of a message. @param {any} content @returns {string} */
export function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((/** @type {any} */ block) => (typeof block === "string" ? block : block.type === "text" ? block.text : "")).join("");
}

/** Have the service parse the texts that are not parsed yet. */
export async function parseAll(/** @type {any[]} */ messages) {
  const isSpeech = (/** @type {any} */ one) => one.type !== "tool" || one.name === QUESTION;
  const wanted = [...new Set(messages.filter(isSpeech).map((one) => textOf(one.content)))].filter((one) => one && !parsed.has(one));
  if (parsed.size + wanted.length > MAX_PARSED) parsed.clear();
  for (let at = 0; at < wanted.length; at += TEXTS_A_REQUEST) {
    const texts = wanted.slice(at, at + TEXTS_A_REQUEST);
    (await parseMarkdown(texts)).forEach((tokens, index) => parsed.set(texts[index], tokens));
  }
}

/** Return a text as Markdown, or unchanged until it is parsed. */
export function speech(/** @type {string} */ text) {
  const tokens = parsed.get(text);
  return tokens ? markdown(tokens) : element("div.plain", {}, text);
}

/** @type {Kit["growing"]} */
export function growing() {
  const text = document.createTextNode("");
  const node = element("article.turn.ai", {}, element("div.who.soft", {}, t("speaker.ai")), element("div.plain", {}, text));
  return { node, add: (more) => text.appendData(more) };
}

/** @type {Kit["turns"]} */
export function turns(thread, messages, subagents, isRunning, edit) {
  const results = new Map(messages.filter((one) => one.type === "tool").map((one) => [one.tool_call_id, one]));
  return messages.filter((one) => one.type === "human" || one.type === "ai").flatMap((message) => {
    const text = textOf(message.content);
    const calls = /** @type {any[]} */ (message.tool_calls ?? []);
    const files = /** @type {any[]} */ (message.additional_kwargs?.files ?? []).filter((file) => file.path ?? file.virtual_path);
    if (!text && !calls.length && !files.length) return [];
    return [element("article", { class: `turn ${message.type}` },
      element("div.who.soft", {}, element("span", {}, t(`speaker.${message.type}`)),
        message.type === "human" && edit ? button(t("action.edit"), (event) => edit(message, /** @type {Element} */ (/** @type {Element} */ (event.target).closest("article"))), { class: "quiet small" }) : null),
      text ? speech(text) : null,
      files.length ? fileLinks(thread, files.map((file) => file.path ?? file.virtual_path)) : null,
      ...calls.map((call) => (call.name === QUESTION && results.has(call.id)
        ? speech(textOf(results.get(call.id).content))
        : step(call, results.get(call.id), subagents.get(call.id), isRunning))))];
  });
}

/** @type {Kit["step"]} */
export function step(call, result, subagent, isRunning) {
  const state = result ? (result.status === "error" ? "failed" : "done") : isRunning ? "running" : "waiting";
  const about = call.args?.description ?? subagent?.description;
  const now = !result && subagent?.message ? textOf(subagent.message.content) : "";
  return element("details.step", { "data-call": call.id },
    element("summary", {}, element("code", {}, call.name), " ", typeof about === "string" ? `${about} ` : "", pill(state),
      now ? element("span.now.soft", {}, now.slice(-160)) : null),
    json(call.args),
    result ? element("pre.result", {}, textOf(result.content)) : null);
}

/** @type {Kit["fileLinks"]} */
export const fileLinks = (thread, paths) => element("ul.files", {}, ...paths.map((path) => element("li", {},
  element("a", { href: fileAddress(thread, path), target: "_blank", rel: "noopener" },
    IMAGE.test(path) ? element("img", { src: fileAddress(thread, path), alt: "", loading: "lazy" }) : null, path.split("/").at(-1)))));

/** @param {string} thread @param {string} path */
const fileAddress = (thread, path) =>
  new URL(`api/threads/${thread}/artifacts/${path.split("/").filter(Boolean).map(encodeURIComponent).join("/")}`, BASE).href;

/** Return the agent's plan; null without one. */
export function plan(/** @type {any[]} */ todos) {
  if (!todos.length) return null;
  return element("section.card.plan", {}, element("h3", {}, t("chat.plan")),
    element("ol", {}, ...todos.map((one) => element("li", { class: one.status }, pill(one.status), " ", String(one.title ?? one.content ?? "")))));
}

/** @type {Kit["asked"]} */
export function asked({ id, value }, answer) {
  const card = (/** @type {(Node | null)[]} */ ...content) => element("section.card.asked", { "data-interrupt": id }, ...content);
  if (Array.isArray(value?.action_requests)) return card(element("h3", {}, t("chat.approval")), ...approvals(value, answer));
  const question = typeof value === "string" ? value : value?.question ?? value?.description;
  const options = /** @type {any[]} */ (Array.isArray(value?.options) ? value.options : []);
  return card(
    element("h3", {}, t("chat.question")),
    question ? element("p.plain", {}, String(question)) : json(value),
    answer && options.length ? element("div.buttons", {}, ...options.map((one) => button(String(one.label ?? one), () => answer(one.value ?? one)))) : null,
    answer ? reply(answer) : null);
}

/** Return a form for an answer in words. */
function reply(/** @type {(answer: string) => unknown} */ answer) {
  const field = element("input", { "aria-label": t("chat.answer"), placeholder: t("chat.answer"), required: true });
  const form = element("form.reply", {}, field, element("button", { type: "submit" }, t("action.send")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) void answer(field.value.trim());
  });
  return form;
}

/** @param {any} value @param {((answer: unknown) => unknown) | null} answer */
function approvals(value, answer) {
  /** @type {unknown[]} */
  const decisions = [];
  return value.action_requests.map((/** @type {any} */ action, /** @type {number} */ at) => {
    const permitted = value.review_configs?.find((/** @type {any} */ one) => one.action_name === action.name)?.allowed_decisions ?? [];
    const written = JSON.stringify(action.args ?? {}, null, 2);
    const area = answer && permitted.includes("edit") ? element("textarea", { rows: 5, "aria-label": t("chat.arguments") }, written) : null;
    const approved = () => (!area || area.value === written ? { type: "approve" }
      : { type: "edit", edited_action: { name: action.name, args: JSON.parse(area.value) } });
    const reason = element("input", { "aria-label": t("chat.reason"), placeholder: t("chat.reason") });
    const decide = async (/** @type {Record<string, unknown>} */ decision) => {
      decisions[at] = decision;
      if (answer && Object.keys(decisions).length === value.action_requests.length) await answer({ decisions });
      else buttons.replaceWith(pill(decision.type === "reject" ? "refused" : "approved"));
    };
    const buttons = element("div.buttons", {}, reason,
      button(t("action.reject"), () => decide({ type: "reject", ...(reason.value.trim() ? { message: reason.value.trim() } : {}) })),
      button(t("action.approve"), () => decide(approved()), { class: "primary" }));
    return element("div", {}, element("p", {}, element("code", {}, action.name), " ", action.description ?? ""),
      area ?? json(action.args ?? {}), answer ? buttons : null);
  });
}
