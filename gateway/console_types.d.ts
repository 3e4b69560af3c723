// The types of the console's modules (console_page/), for `tsc --checkJs` and for readers. Browsers do not load them.

type Child = Node | string | number | null | undefined | false;

/** The page, as views use it. */
interface Page {
  /** The address after the view's name: #name/rest */
  rest: string;
  /** The filters in the address; current in `onQuery`. */
  query: URLSearchParams;
  /** Change filters. */
  setQuery: (changes: Record<string, string>, options?: { replace?: boolean }) => void;
  /** Called after filters changed; without it, the view is shown again. */
  onQuery: (call: () => unknown) => void;
  /** Called after something changed, while the view is shown. */
  onLive: (topics: string[], call: () => unknown) => void;
  /** Called once when another view is shown. */
  onLeave: (call: () => unknown) => void;
  /** Called repeatedly while the view is shown; a failed call is tried again. */
  every: (ms: number, call: () => Promise<unknown>) => void;
  /** Whether the session may do something, so that its button is shown: "change" for most actions, "administer" for tokens, tools, skills and agents. */
  may: (what: "change" | "administer") => boolean;
  /** Show a short notice, perhaps with an undo button. */
  notify: (text: string, undo?: () => unknown) => void;
  go: (hash: string) => void;
  /** Send a GET request to the API. Aborted when another view is shown. */
  get: (path: string) => Promise<Answer>;
  /** Show the view again. */
  show: () => Promise<void>;
  /** Options for the runs of an agent that is being tried. */
  draft?: () => Record<string, unknown>;
  /** Aborted when another view is shown. */
  signal: AbortSignal;
}

/** A response of the API. Its lists are named here, so that their rows need no type. */
interface Answer {
  rows: any[];
  findings: any[];
  totals: any[];
  periods: any[];
  models: any[];
  facts: any[];
  settings: any[];
  limits: any[];
  conversations: any[];
  schedules: any[];
  people: any[];
  channels: Record<string, any>;
  [name: string]: any;
}

interface View {
  /** The first part of its address; `nav.NAME` is the key of its title. */
  name: string;
  /** Its group in the navigation (`nav.group.GROUP`); without one, the navigation does not list it. */
  group?: string;
  /** The icon's name in kit/icons.mjs, if it is not the view's. */
  icon?: string;
  /** The view that the navigation marks instead of this one. */
  partOf?: string;
  /** The permission that the session needs for the navigation to list it. */
  needs?: "change" | "administer";
  load: () => Promise<{ show: (page: Page) => Promise<(Node | string | null | false)[]> }>;
}

/** The view that is shown. */
interface Shown extends Address {
  abort: AbortController;
  leave: (() => unknown)[];
  onQuery: (() => unknown) | null;
}

/** #name/rest?query */
interface Address {
  name: string;
  rest: string;
  query: URLSearchParams;
}

/** kit/live.mjs: a function to call after changes, and the time of its last call. */
interface Subscriber {
  topics: Set<string>;
  call: () => unknown;
  timer: number;
  last: number;
  every: number;
}

/** kit/access.mjs: approves or revokes, and shows a notice. */
type PairingAction = (page: Page, pairing: any, refresh: () => Promise<unknown>) => Promise<void>;

/** kit/api.mjs: this browser's session. */
interface Session {
  /** null: no sign-in is needed. */
  id: string | null;
  scope: "read" | "operator" | "admin";
  csrf: string;
  may_change: boolean;
  may_administer: boolean;
  can_sign_out: boolean;
}

/** The key of a label ("" for actions), what a cell shows, and its kind: "text" (wraps), "number" or "actions". */
type Column = [label: string, cell: (row: any) => Child | Child[], kind?: string];

interface TableOptions {
  /** The key of the table's name for screen readers. */
  label: string;
  columns: Column[];
  /** The key that identifies a row: a field, or a function of the row. */
  key: string | ((row: any) => string);
  /** Load all rows, or a page; `before`: the last page's `next`. */
  load: (before: string | null) => Promise<any[] | { rows: any[]; next?: string | null }>;
  /** The text for a table without rows, or its key. */
  empty?: string;
  /** The address that Enter and a click on the row open. */
  open?: (row: any) => string | null;
  isBad?: (row: any) => boolean;
}

interface Table {
  element: HTMLElement;
  /** Load the first page again, for other filters. */
  restart: () => Promise<void>;
  /** Look for changes; rows stay where they are while they are pointed at. */
  refresh: () => Promise<void>;
  /** Redraw a row in place. */
  update: (row: any) => void;
}

/** A value and its label. */
type Option = [string, string];

/** A field of a form. */
interface Field {
  name: string;
  label: string;
  type?: "text" | "number" | "area" | "choice" | "check" | "file";
  value?: string;
  hint?: string;
  /** For a choice. */
  options?: Option[];
  required?: boolean;
  /** Longest text, characters. */
  max?: number;
  rows?: number;
}

/** A filter of a list. */
interface Filter {
  /** Its name in the address. */
  name: string;
  label: string;
  /** For a choice. The first option has the value "" and means all. */
  options?: Option[];
  /** For a text field. */
  type?: "text" | "date";
  /** Completions; the label stands in the field. */
  complete?: () => Promise<Option[]>;
}

/** A row of values in a chart. */
interface Series {
  label: string;
  /** Names the color: "good", "bad", "warn", "accent" or "soft". */
  kind: string;
  /** One for each time; null: no value. */
  values: (number | null)[];
}

/** A part of parsed Markdown. */
type Token = string | { t: string; c?: Token[]; [name: string]: any };

/** The parts of a thread's state that the chat shows. */
interface Parts {
  messages: any[];
  todos: any[];
  artifacts: string[];
  others: Record<string, unknown> | null;
}

/** An event of a run; `lost`: the stream broke off, and all events follow again once the service answers. */
interface RunEvent {
  name: string;
  data: any;
}

/** A row of GET /api/conversations/{thread_id}/timeline. */
interface TimelineRow {
  id: string;
  kind: string;
  state: string;
  cause: string;
  speech: { text: string; language: string; source: string; }[];
  files: any[];
  usage: any[];
  messages: (Record<string, any> & { tool_calls: any[] })[];
  deliveries: (Record<string, any> & { failed_attempts: any[] })[];
  [name: string]: any;
}

/** The functions of the kit that views call. */
interface Kit {
  // kit/access.mjs
  /** Return the tables of open requests and of approvals. Approving and revoking do not ask, and can be undone. */
  pairingTables: (page: Page) => { waiting: Table; approved: Table; refresh: () => Promise<unknown>; };
  /** Return the button that lets in the sender of a refused message, or the chat, if an approval does. */
  letIn: (page: Page, row: any, refresh: () => Promise<unknown>) => false | HTMLButtonElement;

  // kit/address.mjs
  /** Write an address. Empty filters are left out. */
  formatAddress: (name: string, rest?: string, query?: Record<string, string | null | undefined> | URLSearchParams) => string;

  // kit/api.mjs
  /** Add files to a thread; return them in the form in which messages name them. */
  upload: (thread: string, files: Iterable<File>) => Promise<any[]>;
  /**
   * Send a request and return its JSON, or its text if it is not JSON. Statuses in `accepted` are not errors.
   * @param path relative to the service: "api/channels"
   */
  request: (path: string, options?: { method?: string; body?: unknown; accepted?: number[]; headers?: Record<string, string>; signal?: AbortSignal; }) => Promise<any>;
  /** Send a request and return the response, whatever its status: for streams and files. Raises ApiError without an answer. `body`: a FormData or Blob is sent as it is, everything else as JSON. */
  send: (path: string, options?: { method?: string; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal; }) => Promise<Response>;

  // kit/chart.mjs
  /** Return a chart. */
  chart: (options: { label: string; times: string[]; series: Series[]; format: (value: number) => string; isLines?: boolean; }) => HTMLElement;

  // kit/dialog.mjs
  /** Return an input for files that a button clicks. */
  filePicker: (attributes: Record<string, any>, chosen: (files: File[]) => unknown) => HTMLInputElement;
  /** Return a form. `submit` gets its values; an error that it throws is shown below the fields. */
  form: (fields: Field[], options: { label: string; submit: (values: Record<string, string>) => unknown; more?: Node[]; }) => HTMLFormElement;
  /** Return the values of a form; a checkbox is "true" or "false". */
  valuesOf: (made: HTMLFormElement) => Record<string, string>;
  /** Open a dialog with a form. Resolves with the result of `submit`, or null if it was closed. */
  ask: (options: { title: string; text?: string | Node; fields?: Field[]; label: string; danger?: boolean; wide?: boolean; submit: (values: Record<string, string>) => unknown; }) => Promise<any>;
  /** Show something in a dialog, such as a raw payload. */
  showDialog: (title: string, ...content: Node[]) => void;
  /** Show a value to copy, once. */
  showValue: (title: string, text: string, value: string) => void;

  // kit/elements.mjs
  /** Return a time as "5 min ago", with the full time as its title. The shell keeps it current. */
  ago: (iso: string | null | undefined) => HTMLElement;
  /** Return a state as a colored label, in the reader's language. */
  pill: (state: string, title?: string) => HTMLElement;
  /** Return a link to a view. */
  link: (hash: string, ...children: Child[]) => HTMLAnchorElement;
  /** Return a note for an empty place. */
  empty: (text: string, ...more: Child[]) => HTMLParagraphElement;
  /** Return a list of names and values. */
  facts: (pairs: [Child, Child][]) => HTMLElement;
  /** Return an SVG element. */
  svg: (tag: string, attributes?: Record<string, any>, ...children: (Child | Child[])[]) => SVGElement;
  /** Return a button whose promise is awaited: it is disabled meanwhile, and a failure is shown as a notice. */
  button: (label: Child, onclick: (event: MouseEvent) => unknown, attributes?: Record<string, any>) => HTMLButtonElement;
  /** Return the name of a conversation's chat, with the platform's IDs as its title. */
  place: (row: { channel: string; chat: string; topic?: string; place?: string; }) => HTMLSpanElement;
  /** Return a link to the person or room with the usage ID `row[kind]`, with its known name; null without an ID. */
  profileLink: (row: any, kind: string) => HTMLAnchorElement | null;
  /** Return a small button; its label is the key of a text. */
  act: (key: string, onclick: () => unknown, kind?: string) => HTMLButtonElement;
  /** Return a choice. @param value the one that is chosen */
  select: (options: Option[], value?: string, attributes?: Record<string, any>) => HTMLSelectElement;
  /** Return a heading with buttons beside it. */
  head: (title: Child | Child[], ...buttons: (Child | Child[])[]) => HTMLDivElement;

  // kit/filters.mjs
  /** Return the filters of a view. @param options the label of a search field, whose name is "q" */
  filterBar: (page: Page, filters: Filter[], options?: { search?: string; }) => HTMLFormElement;
  /**
   * Return completions from the names in a list of the service.
   * @param path of the list
   * @param id the key of the values
   * @param name the key of the names; rows without one are left out
   */
  named: (path: string, id: string, name: string) => () => Promise<[string, string][]>;
  /** Return values as options. */
  choices: (values: readonly string[], label?: (value: string) => string) => Option[];
  /** Return a filter for states. */
  stateFilter: (name: string, label: string, states: string[]) => Filter;
  /** Load a list by pages of 50 from a route with `offset`; `path` ends with "?" or a filter. */
  byOffset: (page: Page, path: (query: string) => string, field: string) => (before: string | null) => Promise<{ rows: any; next: string | null; }>;

  // kit/list.mjs
  /** Return a list's table, and the elements of its view. `formats`: for downloads. */
  list: (page: Page, options: Omit<TableOptions, "label" | "load"> & { name: string; path: string; filters?: Filter[]; search?: string; formats?: string[]; actions?: Node[]; }) => Promise<{ table: Table; content: (HTMLElement | null)[]; }>;

  // kit/live.mjs
  /**
   * Call a function after changes of these topics, at most once a second, or every 5 s during constant changes. Returns a function that ends it.
   * @param topics "messages", "deliveries", "access", "channels", "takeovers", "people"
   */
  subscribe: (topics: string[], call: () => unknown) => () => void;

  // kit/manage.mjs
  /** Change something, show a notice, and offer to undo. @param back the body that undoes it; null: it cannot be undone */
  change: (page: Page, path: string, method: string, body: unknown, back: unknown, refresh: () => unknown) => Promise<void>;
  /** Return the rows in a field of a response. */
  rowsOf: (path: string, field: string) => Promise<any[]>;
  /** Return a button that switches `enabled`, as `change` does. */
  toggle: (page: Page, path: string, method: string, isOn: boolean, refresh: () => unknown, words?: string[]) => HTMLButtonElement;

  // kit/markdown.mjs
  /** Return the parsed form of texts, in order. */
  parseMarkdown: (texts: string[]) => Promise<Token[][]>;

  // kit/message_actions.mjs
  /** Return why a message has no answer, and how to let its sender in. */
  reasonOf: (row: any) => Child[];
  /** Return the buttons of a message. @param row `text`: its full text, if known @param done called after an action */
  messageActions: (page: Page, row: { id: string; kind: string; state: string; text?: string; remedy?: any; undelivered?: number[]; }, done: () => unknown) => (false | HTMLButtonElement)[];

  // kit/runs.mjs
  /**
   * Start a run and return its ID.
   * @param body the run: `assistant_id`, and `input` or `command`, perhaps `checkpoint`
   */
  startRun: (thread: string, body: Record<string, unknown>) => Promise<string>;
  /**
   * Report the events of a run from its beginning, until it ends. Raises ApiError.
   * @param signal ends the reading, not the run
   */
  joinRun: (thread: string, run: string, report: (event: RunEvent) => void, signal: AbortSignal) => Promise<void>;
  /** Return the ID of a thread's active run; null if no run is active. */
  activeRun: (thread: string, signal: AbortSignal) => Promise<string | null>;
  /**
   * Return the checkpoint before a message. A run from there forgets the message and all that followed. Raises ApiError 404.
   * @param message its ID
   * @param gone the error message if the service no longer has it
   */
  checkpointBefore: (thread: string, message: string, gone: string) => Promise<any>;

  // kit/table.mjs
  /** Arrow keys (and j, k) move among the rows, Enter opens one. */
  moveFocus: (event: KeyboardEvent, body: HTMLElement, open: ((line: Element) => string | null) | undefined) => void;
  /** Return a table that is loaded. */
  loadedTable: (label: string, key: TableOptions["key"], load: TableOptions["load"], columns: Column[], more?: Partial<TableOptions>) => Promise<Table>;
  /** Return a plain table for a few rows. @param labels keys of texts */
  simpleTable: (labels: string[], rows: Child[][], nothing?: string) => HTMLDivElement;

  // kit/takeover.mjs
  /** Return the panel of the conversation that continues in a thread, which keeps itself current; null if none does. */
  takeoverPanel: (page: Page, thread: string) => Promise<HTMLElement | null>;

  // kit/texts.mjs
  /**
   * Return a text with its values filled in: "{count} new". A text with "one|many" is chosen by `count`.
   * @param key GROUP.NAME
   * @param otherwise the text for an unknown key
   */
  t: (key: string, values?: Record<string, string | number>, otherwise?: string) => string;

  // kit/turns.mjs
  /** Return an answer that is being written, and a function that adds to it. */
  growing: () => { node: HTMLElement; add: (text: string) => void; };
  /** Return the elements of a thread's messages. @param subagents the last event of each, by the tool call that started it @param edit called by the button of a person's message */
  turns: (thread: string, messages: any[], subagents: Map<string, any>, isRunning: boolean, edit: ((message: any, article: Element) => void) | null) => HTMLElement[];
  /** Return one tool call: its name and state, with its arguments and result folded. */
  step: (call: any, result: any, subagent: any, isRunning: boolean) => HTMLDetailsElement;
  /** Return a run's question to a person. @param answer null: this person may not answer */
  asked: (interrupt: { id: string; value: any; }, answer: ((answer: unknown) => unknown) | null) => HTMLElement;
  /** Return links to files of a thread. @param paths as the agent sees them */
  fileLinks: (thread: string, paths: string[]) => HTMLUListElement;
}
