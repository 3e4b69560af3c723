// Turns the server's trees into elements: strings are set as text, and only the tags below are made.

import { element } from "/console/kit/elements.mjs";

const TAGS = new Set([
  "p", "strong", "em", "u", "del", "code", "pre", "blockquote", "ul", "ol", "li", "table", "tr", "th", "td", "hr", "br",
  "mark", "details", "summary", "span",
]);

/**
 * Return the node of a tree: a string, or [tag, attributes, ...children].
 * @param {import("./server.mjs").Tree} tree
 * @returns {Node}
 */
export function treeNode(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, ...children] = tree;
  const inner = children.map(treeNode);
  if (tag === "a") return linkTo(attributes.href, inner);
  if (tag === "h") return element("p", { class: "heading" }, inner);
  if (tag === "spoiler") return element("details", { class: "spoiler" }, element("summary", {}, "…"), inner);
  return element(/** @type {any} */ (TAGS.has(tag) ? tag : "span"), {}, inner);
}

/** @param {string} address @param {Node[]} inner */
function linkTo(address, inner) {
  const isWeb = /^(https?|mailto):/i.test(address);
  return isWeb ? element("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, inner) : element("span", {}, inner);
}
