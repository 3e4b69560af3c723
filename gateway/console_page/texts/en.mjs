// The console's words in English, by group: t("nav.chat") is `chat` of `nav`. `texts/zh.mjs` has the same keys.

/** @type {Record<string, Record<string, string>>} */
export const texts = {
  nav: {
    overview: "Overview", messages: "Messages", conversations: "Conversations", deliveries: "Deliveries", people: "People",
    broadcast: "Broadcast", sessions: "Sessions", "group.watch": "Watch", "group.act": "Act", "group.manage": "Manage", chat: "Chat",
    configuration: "Configuration", logs: "Logs", audit: "Audit", tokens: "Tokens", usage: "Usage", agents: "Agents", models: "Models",
    tools: "Tools", skills: "Skills", schedules: "Schedules",
  },
  shell: {
    language: "Language", skip: "Skip to the content", views: "Views", live: "Changes appear at once",
    "not-live": "Not connected: changes do not appear",
  },
  "sign-in": {
    token: "Admin token, or a named token from `parley token create`",
    hint: "The admin token is in admin_token in the data folder. The service also prints a link that signs in.",
    "no-token": "This is not a token: it contains invalid characters.", ended: "The session has ended. Sign in again.",
    "link-used": "This link was already used, or has expired. Sign in with a token.",
  },
  action: {
    "sign-in": "Sign in", "sign-out": "Sign out", cancel: "Cancel", close: "Close", again: "Try again", undo: "Undo",
    reconnect: "Reconnect", answer: "Answer", resend: "Send again", discard: "Discard", approve: "Approve", revoke: "Revoke", end: "End", send: "Send",
    edit: "Edit", reject: "Reject", stop: "Stop", repeat: "Answer again", save: "Save", rotate: "Rotate", delete: "Delete",
    download: "Download", "let-in-person": "Let this person in", "let-in-chat": "Let this chat in", restore: "Restore",
  },
  notice: {
    failed: "That did not work.", "no-answer": "Parley does not answer. Is it running?",
  },
  time: {
    never: "never", now: "just now", s: "{count} s ago", min: "{count} min ago", h: "{count} h ago", d: "{count} d ago",
  },
  table: {
    older: "Show older", news: "{count} new", actions: "Actions",
  },
  filter: {
    search: "Search", all: "all",
  },
  column: {
    received: "Received", where: "Where", who: "Who", message: "Message", state: "State", used: "Last used",
    waiting: "Waiting", created: "Created", content: "Content", attempts: "Attempts", asked: "Asked", channel: "Channel", code: "Code",
    approved: "Approved", last: "Last message", kind: "Kind", name: "Name",
  },
  state: {
    ready: "ready", degraded: "degraded", unreachable: "unreachable", connected: "connected", failed: "failed",
    pending: "pending", sending: "sending", uncertain: "uncertain", delivered: "delivered", current: "this browser", done: "done",
    completed: "completed", in_progress: "in progress", approved: "approved", answered: "answered", undelivered: "not delivered", waiting: "waiting for a person",
    silent: "said nothing", stopped: "stopped", running: "running", refused: "refused", not_addressed: "not for the bot", queued: "queued",
    interrupted: "replaced by a newer one", deleted: "deleted", joined: "answered together", command: "command", problem: "problem",
    warning: "warning", note: "note", ok: "ok", restart: "waits for a restart", taken_over: "a person answers", listed: "in allowed_users",
    open: "open to all", disabled: "disabled", deferred: "on demand", in_prompt: "in the prompt", denied: "denied", rejected: "rejected",
    paused: "paused", unchanged: "unchanged", skipped: "skipped", missed: "missed", discarded: "discarded",
  },
  overview: {
    channels: "Channels", since: "since", "last-event": "last event", problems: "{count} problem|{count} problems",
    findings: "{count} thing needs attention|{count} things need attention", well: "All checks passed.", again: "Look again",
    all: "All checks ({count})", failed: "failed turns", undelivered: "not delivered", uncertain: "perhaps not delivered",
    waiting: "wait for a person", refused: "refused", people: "want to be let in", span: "Show the last", hour: "hour", day: "day", week: "week", messages: "Messages", answers: "answered",
    errors: "failed", others: "neither", sign: "First sign", answer: "Answer", tokens: "Tokens", cost: "Cost",
  },
  messages: {
    search: "Words, people or places", "no-text": "(text not kept)",
    "repeat-words": "New text of the message; empty = unchanged",
    "repeat-text": "The agent forgets it and all that followed. The answer is sent to the same chat.",
  },
  conversation: {
    title: "Conversation",
  },
  speaker: {
    human: "User", ai: "Agent", tool: "Tool",
  },
  deliveries: {
    "sent-again": "The delivery is sent again.", discarded: "The delivery is discarded.",
    search: "Part of the error", "resend-all": "Send all {count} again", "discard-all": "Discard all {count}",
    "resend-text": "Uncertain ones may appear twice. This cannot be undone.", "resend-done": "{changed} of {count} are sent again.",
    "discard-done": "{changed} of {count} are discarded.", remaining: "{count} more match. Do it again for them.", restored: "Restored, as before.",
    twice: "If it is sent again, it may appear twice.", once: "It changes a message, so sending it again shows nothing twice.",
    "once-until": "Until {time}, {platform} drops a second send by its key: it cannot appear twice.",
  },
  people: {
    waiting: "Waiting for approval", "nobody-waits": "Nobody is waiting.", "approved-list": "Approved",
    "nobody-approved": "Nobody has been approved by code. The configuration of a channel says who else may use it.",
    approved: "{name} is approved.", revoked: "{name} no longer has access.", rooms: "Rooms",
    month: "This month", members: "People answered",
  },
  sessions: {
    browser: "Browser", link: "Sign-in link", address: "Address",
    "opened-with": "Signed in with", "not-opened": "not opened yet", admin: "admin token or link", scope: "Scope",
    ended: "The session has ended.", "new-link": "New sign-in link",
    "link-text": "This link signs in once, with all rights, within 12 hours. Send it only to an administrator.",
    text: "A session ends with the token that opened it, or after a week without use.",
  },
  chat: {
    new: "New conversation", threads: "Conversations of this page", "no-threads": "None yet.",
    empty: "Write to the agent. Files can be dropped here.", agent: "Agent or graph", files: "Add files", "leave-out": "Leave out",
    working: "The agent is working …", plan: "Plan", artifacts: "Files from the agent", approval: "The agent asks for approval",
    question: "The agent asks", answer: "Answer", reason: "Reason for rejecting", "edit-title": "Edit the message",
    "edit-text": "The agent forgets the message and all that followed, and answers the new text. Changes by its tools remain.",
    fork: "In a copy of the conversation, without its files", "no-text": "Write the message first.",
    gone: "The service no longer has the state before this message.", arguments: "Arguments", values: "Values", input: "As JSON:",
    lost: "Parley does not answer. The page keeps trying …",
    "read-only": "You may only read here. To write, sign in with a token of the scope operator or admin.",
  },
  broadcast: {
    about: "One message to each chat in which somebody wrote to the bot.", text: "Message, as Markdown", to: "To",
    private: "Private chats", groups: "Groups", all: "Private chats and groups", every: "All connected channels", count: "Count chats",
    chats: "Chats", denied: "Not admitted", "left-out": "Left out", "no-channel": "No channel is enabled.", nobody: "Nobody would get it.",
    send: "Send to {count} chat|Send to {count} chats", sent: "It is sent to {count} chat.|It is sent to {count} chats.",
    stopped: "The broadcast is stopped. Messages already on their way are still sent.", past: "Past broadcasts",
  },
  reason: {
    pairing: "The person has to be approved.", group_pairing: "The group has to be approved.",
    not_allowed: "The channel does not admit this person or group.",
    external: "The channel admits no guests or people from outside.", disabled: "The channel does not answer here.",
    from_bot: "It is from another bot.", empty: "It has no content that the bot reads.",
    queue_full: "Too many messages waited in the conversation.", rate_limited: "The person sent too many messages.",
    not_addressed: "People wrote it to each other.", unsupported: "The bot does not read this kind of message.",
    too_late: "It came too late.", taken_over: "A person had taken over the conversation.",
    approval: "A tool waits for an approval in the chat.", question: "The agent asks in the chat.",
  },
  list: {
    time: "Time", none: "Nothing found.", saved: "Done.", deleted: "Deleted.", enable: "Enable", disable: "Disable",
  },
  configuration: {
    key: "Key", value: "Value", source: "Source", default: "default", restart: "changes after a restart", edit: "Edit the file",
    about: "Secrets are hidden: leave <hidden-1> to keep the secret.", difference: "Difference",
  },
  logs: {
    level: "Level", logger: "Module",
  },
  tokens: {
    expires: "Expires", days: "Days until it expires; empty = never", new: "New token", once: "Copy it now: it is not shown again.",
    sure: "Programs that use its current value lose access at once.",
  },
  takeover: {
    title: "Who answers", about: "Answer people yourself, as the bot, until you hand back.",
    begin: "Take over", begun: "You have taken over. The running turn is stopped.", by: "{by} answers here, and the agent is silent.",
    text: "Your message as the bot", send: "Send as the bot", sent: "Your message is on its way.", summary: "What the agent will read",
    end: "Hand back", ended: "The agent answers again. With the next message, it reads what it missed.",
  },
  timeline: {
    fork: "Fork in the chat", forget: "Forget", forgotten: "The memory is deleted.",
    "forget-text": "All that the bot remembers about {scope} is deleted for good. The messages here stay.",
    unknown: "The agent's server does not answer, so its messages are missing.",
    gone: "No longer in the thread: summarized, undone or answered again.", why: "Why",
    decision: "Answered because", queue: "Waited", run: "Run",
    used: "{model} × {count}: {input_tokens} tokens ({cached_tokens} cached) → {output_tokens}, ${cost}",
    sent: "Last sent", event: "Event", prompt: "Next prompt",
  },
  admitted: {
    private: "private chat", mention: "for the bot", follow_up: "follows up in a thread", answer: "answers a question",
    schedule: "schedule", hook: "another system",
  },
  profile: {
    memory: "Memory", fact: "Fact", add: "Add a fact", "forget-one": "Forget", forget: "Forget everything", configured: "as configured",
    "forget-text": "All facts are deleted, for all agents, and usage stays only in sums. This cannot be undone.",
    settings: "Settings in force",
  },
  source: {
    model: "Model", default: "Default", service: "Service", channel: "Channel", room: "Room", person: "Person", command: "Command",
    agent: "Agent", platform: "Platform", message: "Last message", host: "This machine",
  },
  usage: {
    input_tokens: "Input tokens", output_tokens: "Output tokens", calls: "Calls", since: "From", until: "To", others: "others",
  },
  agents: {
    about: "Description", default: "default", groups: "Tool groups", "name-hint": "Another name makes a copy.",
    "list-hint": "Empty: all, -: none. {groups}", new: "New agent", prompt: "Prompt", "lead-prompt": "Prompt of the lead agent",
    try: "Try it as it stands in the form, saved or not. Nobody else sees this.",
  },
  model: {
    can: "Can", vision: "see images", thinking: "think", context: "Context, tokens", price: "$ / million, in / out", used: "Used by",
    test: "Test",
  },
  tool: {
    from: "From", "built-in": "Parley", web: "web", mcp: "MCP", custom: "configuration", tokens: "tokens", call: "Call",
    "call-text": "The server really runs it. Guardrails do not apply.", servers: "MCP servers", address: "Address or command",
    server: "MCP server", "server-text": "*** keeps a stored secret.", add: "Add a server", remove: "Its stored secrets are deleted too.",
    decisions: "Decisions of guardrails", reason: "Reason",
  },
  skill: {
    public: "public", custom: "custom", read: "Read", history: "History", rollback: "Undo this change", install: "Install a file",
  },
  schedules: {
    next: "Next", last: "Last run", runs: "Runs", run: "Run now", pause: "Pause", resume: "Resume", new: "New schedule", cron: "cron",
    every: "every", once: "once", times: "Times", "times-hint": "cron: 0 9 * * 1-5; every: 30m, 1d; once: 2026-12-01T09:00",
    timezone: "Time zone", "timezone-hint": "Empty = the owner's", hours: "Active hours", due: "Due",
  },
  remedy: {
    admitted: "The bot answers them now.", setting: "Setting: {key}",
    allowed_users: "To let this person in, add {id} to {key}.",
  },
};
