// The skills: their states and texts, and the changes of custom skills.

import {
  act, ago, ask, button, change, element, filePicker, head, loadedTable, markdown, parseMarkdown, pill, post, preview,
  problem, request, rowsOf, showDialog, t, toggle, upload,
} from "../kit.mjs";

const PATH = "api/skills";
const custom = (/** @type {string} */ name, more = "") => `${PATH}/custom/${encodeURIComponent(name)}${more}`;

/** @param {Page} page */
export async function show(page) {
  const mayWrite = page.may("administer");
  /** @returns {Promise<void>} */
  const refresh = () => table.refresh();
  const table = await loadedTable("nav.skills", "name", () => rowsOf(PATH, "skills"), [
    ["column.name", (row) => row.name],
    ["agents.about", (row) => [preview(row.description), problem(row.error)], "text"],
    ["column.kind", (row) => t(`skill.${row.category}`)],
    ["column.state", (row) => pill(row.error ? "failed" : row.enabled ? "ready" : "disabled")],
    ["", (row) => [act("skill.read", () => read(row.name)), ...(row.category === "custom" ? [mayWrite && act("action.edit", () => edit(row.name)), act("skill.history", () => showHistory(row.name))] : []),
      mayWrite && toggle(page, `${PATH}/${encodeURIComponent(row.name)}`, "PUT", row.enabled, refresh)], "actions"],
  ]);
  const edit = async (/** @type {string} */ name) => {
    const { content } = await request(custom(name));
    await ask({ title: name, label: t("action.save"), wide: true, fields: [{ name: "content", label: "SKILL.md", type: "area", rows: 20, value: content }],
      submit: (values) => change(page, custom(name), "PUT", values, { content }, refresh) });
  };
  const showHistory = async (/** @type {string} */ name) =>
    showDialog(name, ...(await rowsOf(custom(name, "/history"), "history")).map((one, index) => element("details.step", {},
      element("summary", {}, ago(one.ts), ` ${one.action} ${one.reason}`),
      mayWrite && one.prev_content !== null && act("skill.rollback", () => change(page, custom(name, "/rollback"), "POST", { history_index: index }, null, refresh)),
      element("pre", {}, one.new_content ?? one.prev_content))).reverse());
  const picker = filePicker({ accept: ".skill,.zip" }, async (files) => {
    // Only the files of a thread can be installed.
    const { thread_id } = await post("api/threads", { ttl: 60 });
    const [file] = await upload(thread_id, files);
    page.notify((await post(`${PATH}/install`, { thread_id, path: file.virtual_path })).message);
    await refresh();
  });
  return [head(t("nav.skills"), mayWrite && button(t("skill.install"), () => picker.click(), { class: "primary" }), picker), table.element];
}

async function read(/** @type {string} */ name) {
  const { content } = await request(`${PATH}/${encodeURIComponent(name)}`);
  const [tokens] = await parseMarkdown([content.replace(/^---\n[^]*?\n---\n/, "")]);
  showDialog(name, markdown(tokens));
}
