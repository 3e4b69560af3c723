// The messages of a place as people see them, with a person's actions on each.

import { element } from "/console/kit/elements.mjs";
import { act, state } from "./server.mjs";
import { treeNode } from "./text.mjs";
import { word } from "./words.mjs";

const CAN = { telegram: ["reply", "edit"], slack: ["thread", "edit", "delete"], feishu: ["reply", "delete"] };
const REACTIONS = ["👍", "❤️", "🎉"];
const CODE = /\b[A-HJ-NP-Z2-9]{8}\b/;
/** @typedef {import("./server.mjs").Message} Message */
/** @typedef {import("./server.mjs").Place} Place */
/** @typedef {import("./server.mjs").Person} Person */
/** @typedef {(what: "reply" | "thread" | "edit", message: Message) => void} Choose */
/** @type {Map<string, {key: string, made: HTMLElement}>} by ID: what was drawn, so that no click is lost while another message grows */
const drawn = new Map();
let place = "";

/**
 * Show the messages of a place. `choose(what, message)` is called for reply, thread and edit.
 * @param {HTMLElement} box
 * @param {Place} found
 * @param {Person} person
 * @param {Choose} choose
 */
export function showMessages(box, found, person, choose) {
  if (found.id !== place) drawn.clear();
  place = found.id;
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  const all = (state.seen[found.id]?.messages ?? []).filter((one) => ["", person.key].includes(one.only_for));
  const elements = inThreads(all).map((one) => messageElement(one, found, person, choose));
  if (!elements.length) elements.push(element("p", { class: "soft" }, word("empty")));
  const current = [...box.children];
  if (current.length !== elements.length || current.some((one, index) => one !== elements[index])) box.replaceChildren(...elements);
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

export const forgetDrawn = () => drawn.clear();

/** Return the messages with the replies of a thread after its first message. */
function inThreads(/** @type {Message[]} */ all) {
  const ids = new Set(all.map((one) => one.id));
  const roots = all.filter((one) => !ids.has(one.thread));
  return roots.flatMap((root) => [root, ...all.filter((one) => one.thread === root.id)]);
}

/** @param {Message} message @param {Place} found @param {Person} person @param {Choose} choose */
function messageElement(message, found, person, choose) {
  const key = JSON.stringify([message, person.key]);
  const known = drawn.get(message.id);
  if (known?.key === key) return known.made;
  const made = draw(message, found, person, choose);
  drawn.set(message.id, { key, made });
  return made;
}

/** @param {Message} message @param {Place} found @param {Person} person @param {Choose} choose */
function draw(message, found, person, choose) {
  const author = state.people.find((one) => one.key === message.author)?.name ?? (message.author === "parley" ? "Parley" : found.platform);
  const isOwn = message.author === person.key;
  const quoted = state.seen[found.id].messages.find((one) => one.id === message.reply_to);
  const label = (/** @type {string} */ text, /** @type {() => unknown} */ onclick, kind = "") => element("button", { type: "button", class: kind, onclick }, text);
  const press = (/** @type {string} */ text) => label(text, () => act({ do: "press", place: found.id, person: person.key, message: message.id, label: text }), "press");
  const tools = CAN[found.platform].filter((what) => (what === "edit" || what === "delete" ? isOwn : what !== "thread" || found.kind !== "private"));
  const use = (/** @type {any} */ what) => (what === "delete" ? act({ do: "delete", place: found.id, person: person.key, message: message.id }) : choose(what, message));
  const code = message.author === "parley" && found.kind === "private" && message.body.map((one) => JSON.stringify(one)).join().match(CODE)?.[0];
  return element("article", { class: `message ${isOwn ? "own" : ""} ${message.thread ? "in-thread" : ""} ${message.grows ? "grows" : ""}`, "data-author": message.author },
    element("p", { class: "from" }, author,
      message.edited && element("span", { class: "soft" }, ` · ${word("edited")}`),
      message.only_for && element("span", { class: "soft" }, ` · ${word("only")} ${message.only_for}`)),
    quoted && element("blockquote", { class: "quoted" }, plain(quoted.body).slice(0, 120)),
    element("div", { class: "body" }, message.body.map(treeNode)),
    message.files.map((file) => fileElement(file, found.platform)),
    message.buttons.length > 0 && element("div", { class: "buttons" }, message.buttons.map(press)),
    Boolean(code) && label(`${word("approve")}: ${code}`, () => act({ do: "approve", code }), "operator"),
    message.reactions.length > 0 && element("p", { class: "reactions" }, message.reactions.join(" ")),
    message.id !== "draft" && element("p", { class: "tools" }, tools.map((what) => label(word(what), () => use(what))),
      REACTIONS.map((emoji) => label(emoji, () => act({ do: "react", place: found.id, person: person.key, message: message.id, emoji })))));
}

/**
 * Return the text of trees.
 * @param {import("./server.mjs").Tree[]} trees
 * @returns {string}
 */
export const plain = (trees) => trees.map((tree) => (typeof tree === "string" ? tree : plain(/** @type {any} */ (tree.slice(2))))).join(" ");

/** @param {Message["files"][number]} file @param {string} platform */
function fileElement(file, platform) {
  const address = `/files/${platform}/${encodeURIComponent(file.id)}`;
  const isPicture = /^image\/(png|jpeg|gif|webp)$/.test(file.mime);
  return element("p", { class: "file" }, isPicture && element("img", { src: address, alt: file.name }),
    element("a", { href: address, download: file.name }, `📎 ${file.name}`));
}
