// The form in which a person writes: text with completion of names and commands, files, and the message to reply to or edit.

import { element } from "/console/kit/elements.mjs";
import { plain } from "./messages.mjs";
import { act, byId, state } from "./server.mjs";
import { word } from "./words.mjs";

const text = byId("text");
/** @typedef {import("./server.mjs").Message} Message */
/** @type {{place: import("./server.mjs").Place, person: import("./server.mjs").Person} | null} */
let current = null;
/** @type {{what: "reply" | "thread" | "edit", message: Message} | null} */
let context = null;
/** @type {{name: string, mime: string, data: string}[]} */
let files = [];
/** @type {[string, string][]} */
let choices = [];
let chosen = 0;

/**
 * Write in another place, or as another person.
 * @param {import("./server.mjs").Place} place
 * @param {import("./server.mjs").Person} person
 */
export function composeIn(place, person) {
  const isNew = current?.place.id !== place.id || current?.person.key !== person.key;
  current = { place, person };
  if (isNew) setContext(null);
  text.placeholder = `${word("write")}${place.calls_bot && ` (${place.calls_bot}…)`}`;
}

/**
 * Set whether the next message is a reply, in a thread, or an edit; null = none of these.
 * @param {"reply" | "thread" | "edit" | null} what
 * @param {Message | null} [message]
 */
export function setContext(what, message = null) {
  context = what && message && { what, message };
  const label = context && { reply: word("replyTo"), thread: word("inThread"), edit: word("editing") }[context.what];
  byId("context").hidden = !context;
  byId("context").replaceChildren(...(context
    ? [`${label}: ${plain(context.message.body).slice(0, 80)} `, element("button", { type: "button", onclick: () => setContext(null) }, word("cancel"))] : []));
  if (context?.what === "edit") text.value = context.message.text;
  if (context) text.focus();
}

function showFiles() {
  byId("files").hidden = !files.length;
  byId("files").replaceChildren(...files.map((file, index) =>
    element("button", { type: "button", title: word("remove"), onclick: () => { files.splice(index, 1); showFiles(); } }, `${file.name} ×`)));
}

async function addFiles(/** @type {Iterable<File>} */ list) {
  for (const file of list) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let binary = "";
    for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    files.push({ name: file.name, mime: file.type || "application/octet-stream", data: btoa(binary) });
  }
  showFiles();
}

async function send() {
  if (!current || (!text.value.trim() && !files.length)) return;
  const { place, person } = current;
  /** @type {Record<string, unknown>} */
  const action = { do: context?.what === "edit" ? "edit" : "send", place: place.id, person: person.key, text: text.value };
  if (context?.what === "edit") action.message = context.message.id;
  if (context?.what === "reply") action.reply_to = context.message.id;
  if (context?.what === "thread") action.thread = context.message.thread || context.message.id;
  if (files.length) action.files = files;
  await act(action);
  text.value = "";
  files = [];
  showFiles();
  if (context?.what !== "thread") setContext(null);
}

/**
 * Return the word before the cursor, and its completions.
 * @returns {{begun: string, found: [string, string][]}}
 */
function findChoices() {
  const before = text.value.slice(0, text.selectionStart);
  const begun = before.match(/(?:^|\s)([@/][\w-]*)$/)?.[1];
  if (!begun || !current) return { begun: "", found: [] };
  const { place } = current;
  const isCommand = begun[0] === "/" && before.trimStart() === begun;
  const people = state.people.map((one) => `@${place.platform === "telegram" ? one.key : one.name}`);
  const names = /** @type {[string, string][]} */ ([[place.calls_bot.trim(), "Parley"], ...people.map((one) => [one, ""])]).filter(([name]) => name);
  const all = isCommand ? place.commands : begun[0] === "@" ? names : [];
  return { begun, found: all.filter(([name]) => name.toLowerCase().startsWith(begun.toLowerCase()) && name !== begun) };
}

function complete() {
  const { found } = findChoices();
  choices = found;
  chosen = Math.min(chosen, Math.max(found.length - 1, 0));
  byId("completion").hidden = !found.length;
  byId("completion").replaceChildren(...found.map(([name, about], index) =>
    element("li", { role: "option", "aria-selected": String(index === chosen), onmousedown: (/** @type {Event} */ event) => { event.preventDefault(); take(index); } },
      element("strong", {}, name), ` ${about}`)));
}

function take(/** @type {number} */ index) {
  const { begun } = findChoices();
  const at = text.selectionStart;
  const name = `${choices[index][0]} `;
  text.value = text.value.slice(0, at - begun.length) + name + text.value.slice(at);
  text.selectionStart = text.selectionEnd = at - begun.length + name.length;
  chosen = 0;
  complete();
}

text.addEventListener("input", complete);
text.addEventListener("blur", () => { byId("completion").hidden = true; });
text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  const isOpen = !byId("completion").hidden && choices.length > 0;
  if (isOpen && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : choices.length - 1)) % choices.length;
    complete();
  } else if (isOpen && event.key === "Tab") take(chosen);
  else if (event.key === "Escape") { byId("completion").hidden = true; setContext(null); }
  else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) byId("composer").requestSubmit();
  else return;
  event.preventDefault();
});
text.addEventListener("paste", (/** @type {any} */ event) => { if (event.clipboardData.files.length) void addFiles(event.clipboardData.files); });
byId("composer").addEventListener("submit", (/** @type {Event} */ event) => { event.preventDefault(); void send(); });
byId("file").addEventListener("change", (/** @type {any} */ event) => { void addFiles(event.target.files); event.target.value = ""; });
byId("chat").addEventListener("dragover", (/** @type {Event} */ event) => event.preventDefault());
byId("chat").addEventListener("drop", (/** @type {any} */ event) => { event.preventDefault(); void addFiles(event.dataTransfer.files); });
