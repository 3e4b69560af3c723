// The icons of the navigation: lines of 20 x 20.

import { svg } from "./elements.mjs";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M3 11l7-7 7 7M5 9v8h4v-5h2v5h4V9",
  messages: "M3 4h14v10H8l-4 3v-3H3z",
  conversations: "M2 4h11v8H7l-3 3v-3H2zM15 8h3v7h-2v3l-3-3H8",
  chat: "M4 3h12v9H9l-4 4v-4H4zM7 7h6M7 9.5h4",
  deliveries: "M2 10l16-7-5 14-3-6zM10 11l8-8",
  people: "M7 9a3 3 0 100-6 3 3 0 000 6zM1 17c0-4 2.5-6 6-6s6 2 6 6M13 3.5a3 3 0 010 5.5M15 11.5c2.5.5 4 2.5 4 5.5",
  broadcast: "M3 8v4h3l6 4V4L6 8zM15 7c1.5 1.5 1.5 4.5 0 6",
  sessions: "M5 9V6a5 5 0 0110 0v3M3 9h14v9H3zM10 12v3",
  usage: "M3 17V9h3v8M8.5 17V4h3v13M14 17v-6h3v6",
  agents: "M5 7h10v9H5zM10 7V3M7.5 11h.01M12.5 11h.01M8 14h4M2 10v3M18 10v3",
  logs: "M3 5h14M3 9h10M3 13h12M3 17h7",
  audit: "M5 2h7l4 4v12H5zM8 9h5M8 13h5",
  tokens: "M7 10a4 4 0 104 4M10 11l7-7M14 7l3 3",
  schedules: "M10 3a7 7 0 100 14 7 7 0 000-14zM10 6v4l3 2",
  models: "M10 2l7 4v8l-7 4-7-4V6zM3 6l7 4 7-4M10 10v8",
  tools: "M12 3a4 4 0 00-3 6l-6 6 2 2 6-6a4 4 0 005-5l-2 2-3-3 2-2z",
  skills: "M4 3h12v14H4zM7 7h6M7 10h6M7 13h3",
  settings: "M10 7a3 3 0 100 6 3 3 0 000-6zM10 2v2M10 16v2M2 10h2M16 10h2M4.5 4.5l1.5 1.5M14 14l1.5 1.5M4.5 15.5L6 14M14 6l1.5-1.5",
};

/** Return an icon; a circle for an unknown name. */
export const icon = (/** @type {string} */ name) =>
  svg("svg", { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true" },
    svg("path", { d: PATHS[name] ?? "M10 4a6 6 0 100 12 6 6 0 000-12z" }));
