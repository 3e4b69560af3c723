// The functions of kit/ that views use.

export * from "./kit/access.mjs";
export * from "./kit/address.mjs";
export * from "./kit/api.mjs";
export * from "./kit/chart.mjs";
export * from "./kit/dialog.mjs";
export * from "./kit/elements.mjs";
export * from "./kit/filters.mjs";
export * from "./kit/list.mjs";
export * from "./kit/manage.mjs";
export * from "./kit/markdown.mjs";
export * from "./kit/message_actions.mjs";
export * from "./kit/runs.mjs";
export * from "./kit/table.mjs";
export * from "./kit/takeover.mjs";
export * from "./kit/texts.mjs";
export * from "./kit/turns.mjs";
