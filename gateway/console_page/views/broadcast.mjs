// Sends one message to many chats. Counts them first.

import {
  act, ago, button, choices, drop, element, form, loadedTable, newId, pill, post, preview, rowsOf, simpleTable, soft,
  t,
} from "../kit.mjs";

const PATH = "api/channels/broadcast";

/** @param {Page} page */
export async function show(page) {
  const mayChange = page.may("change");
  const { channels } = await page.get("api/channels");
  const names = Object.keys(channels).filter((name) => channels[name].enabled && name !== "terminal");
  const result = element("div", { "aria-live": "polite" });
  const body = (/** @type {string} */ name, /** @type {string} */ value, files = "") => {
    const data = new FormData(made);
    data.append(name, value);
    if (!data.get("channels")) data.delete("channels");
    if (!files) data.delete("files");
    return data;
  };
  const count = async (/** @type {Record<string, string>} */ { text, files }) => {
    if (!text.trim() && !files) throw new Error(t("chat.no-text"));
    const found = await post(PATH, body("dry_run", "true"));
    // Each message has one ID, so a second click sends nothing.
    const key = newId();
    const send = async () => {
      const sent = await post(PATH, body("key", key, files));
      page.notify(t("broadcast.sent", { count: sent.chats }), async () => {
        await drop(`${PATH}/${key}`);
        page.notify(t("broadcast.stopped"));
      });
      await page.show();
    };
    const rows = Object.entries(found.channels).map(([name, one]) => [name, one.chats.toLocaleString(), one.denied.toLocaleString(), one.left_out]);
    result.replaceChildren(
      simpleTable(["column.channel", "broadcast.chats", "broadcast.denied", "broadcast.left-out"], rows, t("broadcast.no-channel")),
      found.chats ? button(t("broadcast.send", { count: found.chats }), send, { class: "primary" }) : soft(t("broadcast.nobody")));
  };
  const made = form([
    { name: "text", label: t("broadcast.text"), type: "area", max: 60000 },
    { name: "files", label: t("chat.files"), type: "file" },
    { name: "audience", label: t("broadcast.to"), type: "choice", options: choices(["private", "groups", "all"], (one) => t(`broadcast.${one}`)) },
    { name: "channels", label: t("column.channel"), type: "choice", options: [["", t("broadcast.every")], ...choices(names)] },
  ], { label: t("broadcast.count"), submit: count });
  const past = await loadedTable("nav.broadcast", "key", () => rowsOf(PATH, "broadcasts"), [
    ["column.created", (row) => ago(row.created_at)],
    ["column.message", (row) => [preview(row.text || row.key)], "text"],
    ["broadcast.chats", (row) => row.chats, "number"],
    ["nav.deliveries", (row) => Object.entries({ ...(row.waiting && { waiting: row.waiting }), ...row.deliveries }).map(([state, count]) => [pill(state), ` ${count} `]).flat()],
    ["", (row) => mayChange && row.waiting > 0 && act("action.stop", async () => {
      page.notify((await drop(`${PATH}/${row.key}`)).message);
      await past.refresh();
    }), "actions"],
  ]);
  page.onLive(["deliveries"], past.refresh);
  // The form has changed since the count.
  made.addEventListener("input", () => result.replaceChildren());
  return [element("h2", {}, t("nav.broadcast")), soft(t("broadcast.about")),
    mayChange && element("div.card", {}, made, result), element("h2", {}, t("broadcast.past")), past.element];
}
