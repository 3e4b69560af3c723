// The reason why a message has no answer, and actions to change that.

import { letIn, remedy } from "./access.mjs";
import { post } from "./api.mjs";
import { ask } from "./dialog.mjs";
import { act, problem, small } from "./elements.mjs";
import { t } from "./texts.mjs";

const REPEATABLE = ["answered", "undelivered", "waiting", "failed", "silent", "stopped", "interrupted"];

/** @type {Kit["reasonOf"]} */
export const reasonOf = (row) =>
  [row.reason && (row.state === "waiting" ? small : problem)(t(`reason.${row.reason}`, {}, row.reason)), remedy(row)];

/** @type {Kit["messageActions"]} */
export function messageActions(page, row, done) {
  if (!page.may("change")) return [];
  /** @type {(url: string, body?: unknown) => Promise<void>} */
  const send = async (url, body) => {
    page.notify((await post(url, body)).message);
    await done();
  };
  const id = row.id.slice(1);
  if (row.remedy) {
    return [letIn(page, row, async () => done()),
      row.remedy.can_answer && act("action.answer", () => send(`api/messages/refused/${id}/answer`))];
  }
  if (["queued", "running"].includes(row.state)) return [act("action.stop", () => send(`api/messages/${id}/stop`))];
  if (row.kind !== "chat" || !REPEATABLE.includes(row.state)) return [];
  const words = row.text && !row.text.includes("•••") ? row.text : "";
  const edit = () => ask({
    title: t("action.repeat"), text: t("messages.repeat-text"), label: t("action.repeat"),
    fields: [{ name: "text", label: t("messages.repeat-words"), type: "area", max: 20000, value: words }],
    submit: ({ text }) => send(`api/messages/${id}/repeat`, { text: text.trim() && text !== words ? text : null }),
  });
  return [
    row.state === "undelivered" && act("action.resend", async () => {
      for (const one of row.undelivered ?? []) await send(`api/channels/outbox/${one}/resend`);
    }),
    act("action.repeat", edit)];
}
