// The types of the console's modules (console_page/), for `tsc --checkJs` and for readers. Browsers do not load them.

type Child = Node | string | number | null | undefined | false;

/** What a view gets. */
interface Page {
  /** The address after the view's name: #name/rest */
  rest: string;
  /** The filters in the address; current in `onQuery`. */
  query: URLSearchParams;
  /** Change filters. */
  setQuery: (changes: Record<string, string>, options?: { replace?: boolean }) => void;
  /** Called after filters changed; without it, the view is shown anew. */
  onQuery: (call: () => unknown) => void;
  /** Called after something changed, while the view is shown. */
  onLive: (topics: string[], call: () => unknown) => void;
  /** Called once when another view is shown. */
  onLeave: (call: () => unknown) => void;
  /** Whether to show a button for it. */
  may: (what: "change" | "administer") => boolean;
  /** A short notice, with a button that undoes what it says. */
  notify: (text: string, undo?: () => unknown) => void;
  go: (hash: string) => void;
  /** Get from the API, while the view is shown. */
  get: (path: string) => Promise<Answer>;
  /** Show the view anew. */
  show: () => Promise<void>;
  /** Options of runs of an agent that is tried out. */
  draft?: () => Record<string, unknown>;
  /** Aborted when another view is shown. */
  signal: AbortSignal;
}

/** What the API answers: the fields that are lists, so that their rows need no type. */
interface Answer {
  rows: any[];
  findings: any[];
  totals: any[];
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
  /** The first part of its address, and of its texts: `nav.NAME`. */
  name: string;
  /** Its group in the navigation (`nav.group.GROUP`); without one, it is not there. */
  group?: string;
  /** Of kit/icons.mjs, if it has another name. */
  icon?: string;
  /** The view that the navigation marks instead. */
  partOf?: string;
  /** What the session must be allowed to do for the navigation to offer it. */
  needs?: "change" | "administer";
  load: () => Promise<{ show: (page: Page) => Promise<(Node | string | null | false)[]> }>;
}

/** kit/api.mjs: who this browser is. */
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
  /** The key of what is listed, for screen readers. */
  label: string;
  columns: Column[];
  /** What a row is known by when it changes: a field, or what makes a key of it. */
  key: string | ((row: any) => string);
  /** Load all rows, or a page; `before`: the last page's `next`. */
  load: (before: string | null) => Promise<any[] | { rows: any[]; next?: string | null }>;
  /** The key of what to say if there are no rows. */
  empty?: string;
  /** The address that Enter and a click on the row open. */
  open?: (row: any) => string | null;
  rowClass?: (row: any) => string;
}

interface Table {
  element: HTMLElement;
  /** Load the first page anew, for other filters. */
  restart: () => Promise<void>;
  /** Look for changes; rows stay where they are while they are pointed at. */
  refresh: () => Promise<void>;
  /** Show a row anew, in its place. */
  update: (row: any) => void;
}

/** A value and its label. */
type Option = [string, string];

/** A field of a form. */
interface Field {
  name: string;
  label: string;
  type?: "text" | "number" | "area" | "choice" | "check";
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
  /** In the address. */
  name: string;
  label: string;
  /** A choice; the first one has the value "" and means all. */
  options?: Option[];
  /** Of a text. */
  type?: "text" | "date";
  /** Completions; the label stands in the field. */
  complete?: () => Promise<Option[]>;
}

/** A row of values in a chart. */
interface Series {
  label: string;
  /** Names the color: "good", "bad", "warn", "accent" or "soft". */
  kind: string;
  /** One for each time; null: there is none. */
  values: (number | null)[];
}

/** A part of parsed Markdown. */
type Token = string | { t: string; c?: Token[]; [name: string]: any };

/** An event of a run. */
interface RunEvent {
  name: string;
  data: any;
  id: string;
}
