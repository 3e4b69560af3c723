// A web page without a browser: React on happy-dom, with a hook that tests can watch.
import { Window } from "happy-dom";

import { page, until } from "./service.mjs";

export const window = new Window({ url: `${page}/` });
globalThis.window = window;
globalThis.document = window.document;
globalThis.HTMLElement = window.HTMLElement;
globalThis.HTMLIFrameElement = window.HTMLIFrameElement;
globalThis.navigator ??= window.navigator; // Node has its own since version 21

const { createElement, useEffect } = await import("react");
const { createRoot } = await import("react-dom/client");

// Mounts a component that only calls the hook. `use` reads the values that a page would show.
export function mount(hook, options, use) {
  const root = createRoot(window.document.createElement("div"));
  const shown = { renders: [], now: undefined, hook: undefined, mounted: false };
  function Probe(props) {
    shown.hook = hook(props);
    shown.now = use(shown.hook);
    shown.renders.push(shown.now);
    // Wait for the hook's effects, because one of them abandons runs submitted before it.
    useEffect(() => void (shown.mounted = true));
    return null;
  }
  const draw = (given) => root.render(createElement(Probe, given));
  draw(options);
  return {
    ready: () => until(() => shown.mounted, "the first render and its effects"),
    get hook() {
      return shown.hook;
    },
    get now() {
      return shown.now;
    },
    get renders() {
      return shown.renders;
    },
    draw,
    leave: () => root.unmount(),
    until: (found, what) =>
      until(() => shown.now && found(shown.now, shown.hook), what, () => JSON.stringify(shown.renders.slice(-3))),
  };
}

// Waits until a page shows exactly these messages and is not loading.
export async function idle(opened, said) {
  await opened.until(
    (now, hook) => !now.loading && !hook.isThreadLoading && now.said.join("|") === said.join("|"),
    `the messages ${said.join("|")}`,
  );
}
