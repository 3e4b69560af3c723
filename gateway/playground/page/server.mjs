// The state of the playground's server, kept current by its event stream, and the actions that it accepts.

/** @typedef {{key: string, name: string, role: string}} Person */
/**
 * @typedef {object} Place
 * @property {string} id
 * @property {"telegram" | "slack" | "feishu"} platform
 * @property {"private" | "channel" | "group" | "topic"} kind
 * @property {string} name
 * @property {string} only_for the key of the only person who is there; "" = everybody
 * @property {string} calls_bot
 * @property {[string, string][]} commands
 */
/** @typedef {string | [string, Record<string, string>, ...any[]]} Tree */
/**
 * @typedef {object} Message
 * @property {string} id
 * @property {string} author
 * @property {Tree[]} body
 * @property {string} text
 * @property {string} thread
 * @property {string} reply_to
 * @property {boolean} edited
 * @property {boolean} grows
 * @property {string} only_for
 * @property {string[]} reactions
 * @property {string[]} buttons
 * @property {{id: string, name: string, mime: string}[]} files
 */
/**
 * @typedef {object} Entry
 * @property {number} number
 * @property {number} revision
 * @property {number} at seconds since the epoch
 * @property {string} source
 * @property {string} kind
 * @property {string} title
 * @property {string} detail
 * @property {string} outcome
 * @property {boolean} failed
 * @property {string} curl
 */
/**
 * @typedef {object} State
 * @property {Person[]} people
 * @property {Place[]} places
 * @property {{state: string, channels: Record<string, string>}} service
 * @property {Record<string, string>} weather
 * @property {string[]} violations
 * @property {Record<string, {messages: Message[], working: string, notice: string}>} seen by place
 * @property {Map<number, Entry>} entries by number
 */

/** Return an element of the page. */
export const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** @type {State} */
export const state = {
  people: [], places: [], service: { state: "", channels: {} }, weather: {}, violations: [], seen: {}, entries: new Map(),
};

/**
 * Call `changed(parts)` with the names of the parts that changed, after each change; `gone()` while there is no server.
 * @param {(parts: string[]) => void} changed
 * @param {() => void} gone
 */
export function follow(changed, gone) {
  const stream = new EventSource("/api/stream");
  stream.onmessage = (event) => {
    const parts = JSON.parse(event.data);
    for (const [name, value] of /** @type {[string, any][]} */ (Object.entries(parts))) {
      if (name === "entries") for (const entry of value) state.entries.set(entry.number, entry);
      else if (name.startsWith("seen ")) state.seen[name.slice(5)] = value;
      else Object.assign(state, { [name]: value });
    }
    changed(Object.keys(parts));
  };
  stream.onerror = gone;
}

/** Do something. Raises an Error with the server's sentence. */
export async function act(/** @type {Record<string, unknown>} */ action) {
  const response = await fetch("/api/actions", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(action),
  });
  if (!response.ok) throw new Error((await response.json()).detail);
}
