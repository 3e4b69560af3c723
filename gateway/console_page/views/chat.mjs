// Talk to an agent or graph through the LangGraph-compatible API: this page's threads, and one of them.

import {
  activeRun, ago, append, asked, button, checkpointBefore, element, empty, fileLinks, filePicker, form as fields,
  formatAddress, growing, head, joinRun, json, language, link, newId, parseAll, plan, post, QUESTION, select, small, soft, startRun, t, textOf,
  turns, upload,
} from "../kit.mjs";

const SOURCE = "console";
const DEFAULT = "lead_agent";
const OPTIONS = { is_plan_mode: true, subagent_enabled: true };
const THREADS = 50;
const SUBJECT_CHARS = 80;
const LOOK_MS = 5000;
/** @type {Record<string, (one: any) => unknown>} */
const SHOWN = { messages: (one) => one?.type, todos: (one) => one?.status, artifacts: (one) => typeof one === "string" };

/** The first message of a new thread: {thread, start}. @type {{thread: string, start: Record<string, unknown>} | null} */
let first = null;

/** @param {Page} page */
export async function show(page) {
  const id = encodeURIComponent(page.rest);
  const [assistants, thread] = /** @type {[any[], any]} */ (await Promise.all([post("api/assistants/search", { limit: 1000 }), id ? page.get(`api/threads/${id}`) : null]));
  const mayChange = page.may("change");

  /** @type {any} */
  let state = { values: {}, interrupts: [] };
  let run = "";
  let isRunning = false;
  let isLost = false;
  let takesMessages = true;
  let seen = "";
  let problem = "";
  /** @type {File[]} */
  let files = [];
  /** @type {Map<string, any>} */
  const subagents = new Map();
  /** @type {Map<string, ReturnType<typeof growing>>} */
  const live = new Map();

  const list = element("ul.threads");
  const log = element("div.log", { role: "log", "aria-label": t("nav.chat"), tabindex: "0" });
  const talked = thread?.metadata?.assistant_id;
  const chosen = select(assistants.map((one) => [one.assistant_id, one.name]),
    talked || assistants.find((one) => one.name === DEFAULT)?.assistant_id, { "aria-label": t("chat.agent") });
  const field = element("textarea", { rows: 3, "aria-label": t("column.message"), placeholder: t("column.message") });
  const picker = filePicker({ multiple: true }, (more) => addFiles(more));
  const dropped = element("ul.files");
  const stop = button(t("action.stop"), async () => {
    if (run) await post(`api/threads/${id}/runs/${run}/cancel`);
  }, { class: "danger" });
  const sendButton = element("button", { type: "submit", class: "primary" }, t("action.send"));
  const addButton = button(t("chat.files"), () => picker.click(), { class: "quiet" });
  const form = element("form.compose.card", {}, field, dropped, picker, element("div.buttons", {},
    chosen, addButton, stop, sendButton));

  const draw = () => {
    const { messages, todos, artifacts, others } = parts();
    const held = log.contains(document.activeElement) || document.activeElement === stop;
    const known = new Set(messages.map((one) => one.id));
    for (const one of live.keys()) if (known.has(one)) live.delete(one);
    const opened = new Set([...log.querySelectorAll("details[open]")].map((one) => /** @type {HTMLElement} */ (one).dataset.call));
    const interrupts = isRunning ? [] : /** @type {any[]} */ (state.interrupts ?? []);
    keepEnd(() => {
      log.replaceChildren();
      append(log, [
        mayChange && !messages.length && !isRunning && !others && empty(t("chat.empty")),
        turns(id, messages, subagents, isRunning, mayChange && !isRunning ? edit : null),
        [...live.values()].map((one) => one.node),
        offered(messages),
        plan(todos),
        artifacts.length > 0 && element("section.card.artifacts", {}, element("h3", {}, t("chat.artifacts")), fileLinks(id, artifacts)),
        others && element("details.step", { "data-call": "values" }, element("summary", {}, t("chat.values")), json(others)),
        interrupts.map((one) => asked(one, mayChange ? (answer) => go({ command: { resume: { [one.id]: answer } } }) : null)),
        isRunning && element("p.soft.working", {}, t(isLost ? "chat.lost" : "chat.working")),
        problem && element("p.error", { role: "alert" }, problem),
      ]);
      for (const one of log.querySelectorAll("details")) one.open = opened.has(one.dataset.call);
      stop.hidden = !isRunning;
      sendButton.disabled = isRunning;
    });
    if (held && document.activeElement === document.body) (mayChange && !interrupts.length ? field : log).focus();
  };

  const graph = () => assistants.find((one) => one.assistant_id === chosen.value);

  /** Return the parts of the state to show. Other graphs may store anything under these names. @type {() => Parts} */
  const parts = () => {
    const values = state.values ?? {};
    const [messages, todos, artifacts] = Object.entries(SHOWN).map(([name, fits]) =>
      (Array.isArray(values[name]) && values[name].every(fits) ? values[name] : []));
    const others = graph()?.graph_id === DEFAULT ? [] : Object.entries(Object(values) === values ? values : { values })
      .filter(([, value]) => ![messages, todos, artifacts].includes(value));
    return { messages, todos, artifacts, others: others.length ? Object.fromEntries(others) : null };
  };

  /** Ask for the graph's input: a message, or other values as JSON. */
  const choose = async () => {
    const schemas = graph()?.graph_id === DEFAULT ? null : await page.get(`api/assistants/${chosen.value}/schemas`);
    const names = Object.keys(schemas?.input_schema?.properties ?? {});
    takesMessages = !names.length || names.includes("messages");
    field.placeholder = takesMessages ? t("column.message") : `${t("chat.input")} {${names.map((one) => `"${one}": …`).join(", ")}}`;
    addButton.hidden = !takesMessages;
  };
  chosen.addEventListener("change", choose);

  const showEnd = () => { log.scrollTop = log.scrollHeight; };

  /** Change the log. If its end was in view, keep it in view. */
  const keepEnd = (/** @type {() => unknown} */ change) => {
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    change();
    if (isAtEnd) showEnd();
  };

  /** The answers that a question of the agent offers. */
  const offered = (/** @type {any[]} */ messages) => {
    const last = messages.at(-1);
    if (isRunning || !mayChange || last?.name !== QUESTION) return null;
    const { options } = messages.flatMap((one) => one.tool_calls ?? []).find((one) => one.id === last.tool_call_id)?.args ?? {};
    return Array.isArray(options) && element("div.buttons.offered", {}, options.map((one) => button(String(one), () => say(String(one), []))));
  };

  const load = async () => {
    const [found, { updated_at }] = await Promise.all([page.get(`api/threads/${id}/state`), page.get(`api/threads/${id}`)]);
    [state, seen] = [found, updated_at];
    await parseAll(parts().messages);
  };

  const onEvent = (/** @type {RunEvent} */ { name, data }) => {
    if (name === "lost") {
      if (!isLost) {
        isLost = true;
        draw();
      }
      return;
    }
    if (isLost) {
      isLost = false;
      live.clear(); // All events follow again.
      draw();
    }
    if (name === "messages" && String(data[0]?.type).startsWith("AI")) {
      const text = textOf(data[0].content);
      if (!text) return;
      if (!live.has(data[0].id)) {
        if (parts().messages.some((/** @type {any} */ one) => one.id === data[0].id)) return;
        live.set(data[0].id, growing());
        draw();
      }
      keepEnd(() => live.get(data[0].id)?.add(text));
    } else if (name === "values") {
      state = { values: data, interrupts: [] };
      draw();
      // After the run, a person may be writing in a form of the log.
      void parseAll(parts().messages).then(() => { if (isRunning && !page.signal.aborted) draw(); });
    } else if (name === "custom" && data?.task_id) {
      subagents.set(data.task_id, { ...subagents.get(data.task_id), ...data });
      draw();
    } else if (name === "error") problem = String(data?.message ?? data?.error ?? t("notice.failed"));
  };

  /** Follow a run to its end. */
  const follow = async (/** @type {() => Promise<string>} */ start) => {
    isRunning = true;
    problem = "";
    draw();
    showEnd();
    try {
      run = await start();
      if (!page.signal.aborted) await joinRun(id, run, onEvent, page.signal);
    } catch (error) {
      if (page.signal.aborted) return;
      problem = /** @type {Error} */ (error).message;
    }
    isRunning = isLost = false;
    run = "";
    live.clear();
    await load().catch((error) => { problem ||= error.message; });
    if (page.signal.aborted) return;
    draw();
    void refresh();
  };

  /** Start a run. Create the thread first in a new conversation. */
  const go = async (/** @type {Record<string, any>} */ start) => {
    const assistant = start.assistant_id ?? chosen.value;
    const configurable = optionsOf(assistants.find((one) => one.assistant_id === assistant));
    await follow(() => startRun(id, { assistant_id: assistant, config: { configurable: { language: language(), ...configurable, ...page.draft?.() } }, ...start }));
    const [said] = start.input?.messages ?? [];
    if (problem && said && !parts().messages.some((one) => one.id === said.id)) field.value ||= said.content; // It did not arrive.
  };

  const say = async (/** @type {string} */ text, /** @type {File[]} */ given) => {
    const input = takesMessages ? null : JSON.parse(text);
    const target = id || (await post("api/threads", { metadata: {
      source: SOURCE, subject: text.slice(0, SUBJECT_CHARS) || given[0]?.name, assistant_id: chosen.value } })).thread_id;
    /** @type {any} */
    const message = { type: "human", content: text, id: newId() };
    if (given.length) message.additional_kwargs = { files: await upload(target, given) };
    field.value = "";
    files = [];
    showFiles();
    return startIn(target, { input: input ?? { messages: [message] } });
  };

  /** Start a run here, or in another thread, which is shown. @param {string} target @param {Record<string, unknown>} start */
  const startIn = (target, start) => {
    if (target === id) return go(start);
    first = { thread: target, start: { ...start, assistant_id: chosen.value } };
    page.go(formatAddress("chat", target));
  };

  /** Edit a person's message. All that followed is removed, here or in a copy of the thread. */
  const edit = (/** @type {any} */ message, /** @type {Element} */ article) => {
    const made = fields([
      { name: "text", label: t("chat.edit-title"), type: "area", value: textOf(message.content), hint: t("chat.edit-text") },
      { name: "fork", label: t("chat.fork"), type: "check" },
    ], {
      label: t("action.send"),
      submit: async ({ text, fork }) => {
        if (!text.trim()) throw new Error(t("chat.no-text"));
        const target = fork === "true" ? (await post(`api/threads/${id}/copy`)).thread_id : id;
        const checkpoint = await checkpointBefore(target, message.id, t("chat.gone"));
        const changed = { type: "human", content: text, id: newId(), additional_kwargs: message.additional_kwargs ?? {} };
        void startIn(target, { input: { messages: [changed] }, checkpoint });
      },
    });
    article.replaceChildren(made, button(t("action.cancel"), draw, { class: "quiet" }));
    made.querySelector("textarea")?.focus();
    article.scrollIntoView({ block: "nearest" });
  };

  const showFiles = () => dropped.replaceChildren(...files.map((file) => element("li", {}, file.name, " ",
    button("✕", () => { files = files.filter((one) => one !== file); showFiles(); }, { class: "quiet small", "aria-label": `${t("chat.leave-out")} ${file.name}` }))));
  const addFiles = (/** @type {Iterable<File> | undefined} */ more) => {
    files = [...files, ...(more ?? [])];
    showFiles();
  };

  /** List the threads again, while the view is shown. */
  const refresh = () => listThreads().catch((error) => { if (!page.signal.aborted) throw error; });

  const listThreads = async () => {
    const found = await post("api/threads/search", {
      metadata: { source: SOURCE }, limit: THREADS, sort_by: "updated_at", sort_order: "desc",
      select: ["thread_id", "updated_at", "metadata", "values.title"] });
    list.replaceChildren(...found.map((/** @type {any} */ one) => {
      const made = link(formatAddress("chat", one.thread_id), one.values?.title || one.metadata?.subject || one.thread_id);
      if (one.thread_id === page.rest) made.setAttribute("aria-current", "page");
      return element("li", {}, made, small(ago(one.updated_at)));
    }));
    if (!found.length) list.replaceChildren(element("li.soft", {}, t("chat.no-threads")));
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (isRunning || sendButton.disabled || (!text && !files.length)) return;
    sendButton.disabled = true;
    try {
      await say(text, files);
    } finally {
      sendButton.disabled = isRunning;
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });

  const conversation = element("div.talk", {}, log, mayChange ? form : soft(t("chat.read-only")));
  conversation.addEventListener("dragover", (event) => event.preventDefault());
  conversation.addEventListener("drop", (event) => {
    event.preventDefault();
    if (mayChange) addFiles(event.dataTransfer?.files);
  });

  // Load the run first, because it may end meanwhile.
  const active = id && await activeRun(id, page.signal);
  await Promise.all([id && load(), listThreads(), choose()]);
  draw();
  page.every(LOOK_MS, async () => {
    await listThreads();
    if (!id || isRunning) return;
    const [found, other] = await Promise.all([page.get(`api/threads/${id}`), activeRun(id, page.signal)]);
    if (isRunning) return;
    if (other) void follow(async () => other);
    else if (found.updated_at !== seen && !log.querySelector("form:focus-within")) await load().then(draw);
  });
  if (first?.thread === page.rest) {
    const { start } = first;
    first = null;
    void go(start);
  } else if (active) void follow(async () => active);
  // The log has a height once it is in the page.
  requestAnimationFrame(showEnd);
  const isWide = window.matchMedia("(min-width: 52rem)").matches;
  return [
    head(t("nav.chat"), mayChange && link("#chat", t("chat.new"))),
    element("div.chat", {},
      element("details.card.aside", { open: isWide }, element("summary", {}, t("chat.threads")), list), conversation),
  ];
}

/** Return the options of Parley's agent that its assistant does not set. Other graphs get none. */
const optionsOf = (/** @type {any} */ assistant) => (assistant?.graph_id !== DEFAULT ? {} : Object.fromEntries(
  Object.entries(OPTIONS).filter(([name]) => !(name in { ...assistant.config?.configurable, ...assistant.context }))));
