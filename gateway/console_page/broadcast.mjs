// The view that sends one message to many chats: count first, then send what was counted.

import { request } from "./api.mjs";
import { button, confirmed, element, table } from "./elements.mjs";

const PATH = "api/channels/broadcast";
const AUDIENCES = [["private", "Private chats"], ["groups", "Groups"], ["all", "Private chats and groups"]];
const MAX_CHARS = 60000;

// What was typed outlives the refreshes of the page. The key is that of one message: a second click sends nothing.
let draft = newDraft();

function newDraft() {
  return { text: "", audience: "private", channel: "", key: crypto.randomUUID?.() ?? `console-${Date.now()}`, counted: null };
}

/** Forget what was typed: who signs in next may be somebody else. */
export function forgetDraft() {
  draft = newDraft();
}

const body = (more) => ({
  text: draft.text, audience: draft.audience, channels: draft.channel ? [draft.channel] : null, ...more,
});

export async function broadcast(_, show) {
  const { channels } = await request("api/channels");
  const names = Object.keys(channels).filter((name) => channels[name].enabled && name !== "terminal");
  const send = async () => {
    if (!confirmed(`Send this message to ${chats(draft.counted.chats)}?`)) return;
    const sent = await request(PATH, { method: "POST", body: body({ key: draft.key }) });
    draft = newDraft();
    show.refresh(`It is sent to ${chats(sent.chats)}. Deliveries shows how far it is.`);
  };
  const result = element("div", { "aria-live": "polite" }, draft.counted ? counted(draft.counted, send) : null);
  const change = (name) => (event) => {
    draft = { ...draft, [name]: event.target.value, counted: null, key: newDraft().key };
    result.replaceChildren(); // what was counted is not what would be sent now
  };
  const count = async () => {
    if (!draft.text.trim()) {
      show.refresh("Write the message first.");
      return;
    }
    const asked = draft;
    const found = await request(PATH, { method: "POST", body: body({ dry_run: true }) });
    if (asked !== draft) return; // it was changed meanwhile
    draft = { ...draft, counted: found };
    show.refresh("");
  };
  return [
    element("h2", {}, "Broadcast"),
    element("section", { class: "card form" },
      element("p", { class: "soft" }, "One message to each chat in which somebody wrote to the bot. Answers pass it."),
      field("Message, as Markdown", textArea(change("text"))),
      field("To", choice(AUDIENCES, draft.audience, change("audience"))),
      field("Channel", choice([["", "All that are connected"], ...names.map((name) => [name, name])], draft.channel, change("channel"))),
      button("Count chats", count),
      result),
  ];
}

function textArea(oninput) {
  const area = element("textarea", { rows: "5", maxlength: MAX_CHARS, oninput });
  area.value = draft.text;
  return area;
}

const field = (label, input) => element("label", {}, label, input);

const choice = (options, chosen, onchange) => element("select", { onchange }, options.map(([value, label]) =>
  element("option", { value, selected: value === chosen ? "" : null }, label)));

const chats = (count) => `${count.toLocaleString()} chat${count === 1 ? "" : "s"}`;

function counted(found, send) {
  const rows = Object.entries(found.channels).map(([name, one]) =>
    [name, one.chats.toLocaleString(), one.denied.toLocaleString(), one.left_out]);
  return [
    table(["channel", "chats", "not admitted", "left out"], rows, "No channel is enabled."),
    found.chats ? button(`Send to ${chats(found.chats)}`, send) : element("p", { class: "soft" }, "Nobody would get it."),
  ];
}
