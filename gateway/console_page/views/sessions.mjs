// The browsers that are signed in, and new sign-in links.

import { act, ago, BASE, button, drop, list, pill, post, showValue, soft, t } from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  const newLink = async () => {
    const { path } = await post("api/sessions/links");
    showValue(t("sessions.new-link"), t("sessions.link-text"), new URL(path, BASE).href);
    await table.refresh();
  };
  const { table, content: [heading, ...content] } = await list(page, {
    name: "sessions", path: "api/sessions", key: "id",
    actions: [button(t("sessions.new-link"), newLink, { class: "primary" })],
    columns: [
      ["column.used", (row) => ago(row.used_at)],
      ["sessions.browser", (row) => [row.is_link ? t("sessions.link") : browserName(row.browser), " ",
        row.is_current && pill("current")], "text"],
      ["sessions.address", (row) => row.address],
      ["sessions.opened-with", (row) => row.token || t(row.is_link ? "sessions.not-opened" : "sessions.admin")],
      ["sessions.scope", (row) => row.scope],
      ["", (row) => !row.is_current && act("action.end", async () => {
        await drop(`api/sessions/${row.id}`);
        page.notify(t("sessions.ended"));
        await table.refresh();
      }), "actions"],
    ],
  });
  return [heading, soft(t("sessions.text")), ...content];
}

/** Return a browser's name from its User-Agent. */
function browserName(/** @type {string} */ agent) {
  const found = /(Firefox|Edg|OPR|Chrome|Version)\/(\d+)/.exec(agent);
  const system = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(agent)?.[0] ?? "";
  const name = { Edg: "Edge", OPR: "Opera", Version: "Safari" }[found?.[1] ?? ""] ?? found?.[1];
  return found ? `${name} ${found[2]} · ${system}` : agent.slice(0, 60);
}
