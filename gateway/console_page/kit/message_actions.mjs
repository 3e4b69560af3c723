// What can be done with a message: stop its turn, answer it again, perhaps with other words, or let its sender in.

import { letIn } from "./access.mjs";
import { post } from "./api.mjs";
import { ask } from "./dialog.mjs";
import { act } from "./elements.mjs";
import { t } from "./texts.mjs";

const REPEATABLE = ["answered", "failed", "silent", "stopped", "interrupted"];

/** @type {Kit["messageActions"]} */
export function messageActions(page, row, done) {
  if (!page.may("change")) return [];
  if (row.remedy) return [letIn(page, row, async () => done())];
  const path = `api/messages/${row.id.slice(1)}`;
  const send = async (/** @type {string} */ what, /** @type {unknown} */ body) => {
    const { message } = await post(`${path}/${what}`, body);
    page.notify(message);
    await done();
  };
  if (["queued", "running"].includes(row.state)) return [act("action.stop", () => send("stop", undefined))];
  if (row.kind !== "chat" || !REPEATABLE.includes(row.state)) return [];
  const words = row.text && !row.text.includes("•••") ? row.text : "";
  const edit = () => ask({
    title: t("action.repeat"), text: t("messages.repeat-text"), label: t("action.repeat"),
    fields: [{ name: "text", label: t("messages.repeat-words"), type: "area", max: 20000, value: words }],
    submit: ({ text }) => send("repeat", { text: text.trim() && text !== words ? text : null }),
  });
  return [act("action.repeat", edit)];
}
