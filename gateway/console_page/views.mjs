// The views, in the order of the navigation. A view is one file: its `show` gets a Page (console.mjs) and returns elements.

/**
 * @typedef {object} View
 * @property {string} name the first part of its address, and of its texts: `nav.NAME`
 * @property {string} [group] its group in the navigation (`nav.group.GROUP`); without one, it is not there
 * @property {string} [icon] of kit/icons.mjs, if it has another name
 * @property {string} [partOf] the view that the navigation marks instead
 * @property {"change" | "administer"} [needs] what the session must be allowed to do for the navigation to offer it
 * @property {() => Promise<{show: (page: import("./console.mjs").Page) => Promise<(Node | string | null)[]>}>} load
 */

/** @type {(kind: "person" | "room") => Promise<{show: (page: import("./console.mjs").Page) => Promise<any[]>}>} */
const profile = async (kind) => {
  const { show } = await import("./views/profile.mjs");
  return { show: (page) => show(page, kind) };
};

/** @type {View[]} */
export const VIEWS = [
  { name: "overview", group: "watch", load: () => import("./views/overview.mjs") },
  { name: "messages", group: "watch", load: () => import("./views/messages.mjs") },
  { name: "conversations", group: "watch", load: () => import("./views/conversations.mjs") },
  { name: "conversation", partOf: "conversations", load: () => import("./views/conversation.mjs") },
  { name: "deliveries", group: "watch", load: () => import("./views/deliveries.mjs") },
  { name: "logs", group: "watch", load: () => import("./views/logs.mjs") },
  { name: "chat", group: "act", load: () => import("./views/chat.mjs") },
  { name: "schedules", group: "act", load: () => import("./views/schedules.mjs") },
  { name: "broadcast", group: "act", needs: "change", load: () => import("./views/broadcast.mjs") },
  { name: "people", group: "manage", load: () => import("./views/people.mjs") },
  { name: "person", partOf: "people", load: () => profile("person") },
  { name: "room", partOf: "people", load: () => profile("room") },
  { name: "agents", group: "manage", load: () => import("./views/agents.mjs") },
  { name: "models", group: "manage", load: () => import("./views/models.mjs") },
  { name: "tools", group: "manage", load: () => import("./views/tools.mjs") },
  { name: "skills", group: "manage", load: () => import("./views/skills.mjs") },
  { name: "usage", group: "manage", load: () => import("./views/usage.mjs") },
  { name: "configuration", group: "manage", icon: "settings", needs: "administer", load: () => import("./views/configuration.mjs") },
  { name: "audit", group: "manage", needs: "administer", load: () => import("./views/audit.mjs") },
  { name: "tokens", group: "manage", needs: "administer", load: () => import("./views/tokens.mjs") },
  { name: "sessions", group: "manage", needs: "administer", load: () => import("./views/sessions.mjs") },
];
