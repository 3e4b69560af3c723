// One conversation: what people and the agent said.

import { request } from "../kit/api.mjs";
import { element, empty } from "../kit/elements.mjs";
import { markdown, parseMarkdown } from "../kit/markdown.mjs";
import { takeoverPanel } from "../kit/takeover.mjs";
import { t } from "../kit/texts.mjs";

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const { values } = await request(`api/threads/${encodeURIComponent(page.rest)}/state`, { signal: page.signal });
  const messages = /** @type {any[]} */ (values?.messages ?? []);
  const documents = await parseMarkdown(messages.slice(-200).map((one) => textOf(one.content)));
  return [
    element("h2", {}, values?.title || t("conversation.title")),
    element("p", { class: "soft mono" }, page.rest),
    await takeoverPanel(page, page.rest),
    ...(messages.length ? messages.slice(-200).map((one, at) => element("article", { class: `said ${one.type}` },
      element("div", { class: "soft" }, t(`speaker.${one.type}`, {}, one.type)), markdown(documents[at]),
      ...(one.tool_calls ?? []).map((/** @type {any} */ call) => element("pre", {}, `${call.name} ${JSON.stringify(call.args)}`))))
      : [empty(t("conversation.none"))]),
  ];
}

/** @param {any} content */
function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((/** @type {any} */ block) => (typeof block === "string" ? block : block.text ?? `[${block.type}]`)).join("\n");
}
