// A person answers in a conversation instead of the agent: takes it over, writes as the bot, and hands it back.

import { drop, post, request, newId } from "./api.mjs";
import { form } from "./dialog.mjs";
import { ago, button, element, pill, soft } from "./elements.mjs";
import { t } from "./texts.mjs";

const MAX_CHARS = 60000;

/** @type {Kit["takeoverPanel"]} */
export async function takeoverPanel(page, thread) {
  const path = `api/conversations/${encodeURIComponent(thread)}/takeover`;
  const load = () => request(path, { accepted: [404], signal: page.signal });
  const first = await load();
  if (!("by" in first)) return null;
  const panel = element("section.card", { "aria-label": t("takeover.title"), "aria-live": "polite" });
  const writing = writeForm(page, path);
  /** @type {string | null | undefined} */
  let shown;
  const head = element("p");
  const summary = element("pre");
  const read = element("details", {}, element("summary", {}, t("takeover.summary")), summary);

  const begin = async () => {
    show(await post(path));
    page.notify(t("takeover.begun"), end);
  };
  const end = async () => {
    show(await drop(path));
    page.notify(t("takeover.ended"), begin);
  };
  const show = (/** @type {any} */ found) => {
    read.hidden = !found.summary;
    if (summary.textContent !== found.summary) summary.textContent = found.summary;
    if (found.by === shown) return;
    shown = found.by;
    panel.hidden = !shown && !page.may("change");
    if (!shown) return panel.replaceChildren(...(panel.hidden ? [] : [soft(t("takeover.about")), button(t("takeover.begin"), begin)]));
    head.replaceChildren(pill("taken_over"), " ", t("takeover.by", { by: shown }), " ", ago(found.since));
    panel.replaceChildren(head, ...(page.may("change") ? [writing, element("p", {}, button(t("takeover.end"), end))] : []), read);
  };
  show(first);
  page.onLive(["takeovers", "messages", "deliveries"], async () => {
    const found = await load();
    if ("by" in found) show(found);
  });
  return panel;
}

/** @param {Page} page @param {string} path */
function writeForm(page, path) {
  // Each text has one key, so a repeated request sends nothing.
  let key = "";
  const made = form([{ name: "text", label: t("takeover.text"), type: "area", max: MAX_CHARS, rows: 3, required: true }], {
    label: t("takeover.send"),
    submit: async ({ text }) => {
      key ||= newId();
      await post(`${path}/messages`, { text, key });
      key = "";
      made.reset();
      page.notify(t("takeover.sent"));
    },
  });
  made.addEventListener("input", () => { key = ""; });
  return made;
}
