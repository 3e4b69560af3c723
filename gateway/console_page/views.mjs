// The views, in the order of the navigation. A view is one file: its `show` gets a Page (../console_types.d.ts) and returns elements.

/** @type {(kind: "person" | "room") => ReturnType<View["load"]>} */
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
