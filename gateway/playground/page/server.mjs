// What the playground's server knows, kept current by its stream, and the actions that it takes.

/** The state: people, places, service, weather, violations, entries by number, and `seen` by place. */
export const state = {
  people: [], places: [], service: { state: "", channels: {} }, weather: {}, violations: [], seen: {}, entries: new Map(),
};

/** Call `changed(parts)` with the names of the parts that changed, after each change; `gone()` while there is no server. */
export function follow(changed, gone) {
  const stream = new EventSource("/api/stream");
  stream.onmessage = (event) => {
    const parts = JSON.parse(event.data);
    for (const [name, value] of Object.entries(parts)) {
      if (name === "entries") for (const entry of value) state.entries.set(entry.number, entry);
      else if (name.startsWith("seen ")) state.seen[name.slice(5)] = value;
      else state[name] = value;
    }
    changed(Object.keys(parts));
  };
  stream.onerror = gone;
}

/** Do something. Raises an Error with the server's sentence. */
export async function act(action) {
  const response = await fetch("/api/actions", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(action),
  });
  if (!response.ok) throw new Error((await response.json()).detail);
}
