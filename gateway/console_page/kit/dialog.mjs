// Forms, and dialogs that ask for something. Actions that can be undone offer that instead of asking.

import { button, element, select, small } from "./elements.mjs";
import { t } from "./texts.mjs";

let lastId = 0;

/** @type {Kit["filePicker"]} */
export const filePicker = (attributes, chosen) => element("input.unseen", {
  type: "file", tabindex: "-1", "aria-hidden": "true", ...attributes,
  onchange(/** @type {any} */ { target }) {
    const files = [...target.files];
    target.value = ""; // The same file can be chosen again.
    return chosen(files);
  },
});

/** Return a labelled input. @param {Field} field */
export function input(field) {
  const id = `field-${++lastId}`;
  const shared = { id, name: field.name, required: field.required, maxlength: field.max };
  /** @type {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} */
  let made;
  if (field.type === "area") {
    made = element("textarea", { ...shared, rows: field.rows ?? 5 });
    made.value = field.value ?? "";
  } else if (field.type === "choice") {
    made = select(field.options ?? [], field.value, shared);
  } else {
    const isCheck = field.type === "check";
    made = element("input", { ...shared, type: isCheck ? "checkbox" : field.type ?? "text", multiple: field.type === "file", autocomplete: "off" });
    if (isCheck) /** @type {HTMLInputElement} */ (made).checked = field.value === "true";
    else made.value = field.value ?? "";
  }
  return element("label", { class: field.type === "check" ? "field check" : "field", for: id },
    element("span", {}, field.label), made, field.hint && small(field.hint));
}

/** @type {Kit["form"]} */
export function form(fields, { label, submit, more = [] }) {
  const error = element("p.error", { role: "alert" });
  const send = element("button", { type: "submit", class: "primary" }, label);
  const made = element("form.form", {}, ...fields.map(input), ...more, error, send);
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    error.textContent = "";
    send.disabled = true;
    try {
      await submit(valuesOf(made));
    } catch (failure) {
      error.textContent = /** @type {Error} */ (failure).message;
    } finally {
      send.disabled = false;
    }
  });
  return made;
}

/** @type {Kit["valuesOf"]} */
export function valuesOf(made) {
  const found = [...made.elements].filter((one) => /** @type {any} */ (one).name);
  return Object.fromEntries(found.map((one) => {
    const field = /** @type {HTMLInputElement} */ (one);
    return [field.name, field.type === "checkbox" ? String(field.checked) : field.value];
  }));
}

/** @type {Kit["ask"]} */
export function ask({ title, text, fields = [], label, danger = false, wide = false, submit }) {
  return new Promise((resolve) => {
    /** @type {any} */
    let result = null;
    const cancel = button(t("action.cancel"), () => dialog.close(), { class: "quiet" });
    const body = form(fields, {
      label,
      submit: async (values) => {
        result = (await submit(values)) ?? true;
        dialog.close();
      },
    });
    const send = /** @type {HTMLButtonElement} */ (body.querySelector("button[type=submit]"));
    if (danger) send.className = "danger";
    const buttons = element("div.buttons", {}, cancel);
    send.replaceWith(buttons);
    buttons.append(send);
    const heading = element("h2", { id: `dialog-${++lastId}` }, title);
    const dialog = element("dialog", { "aria-labelledby": heading.id, class: wide ? "wide" : "" },
      heading, text && (text instanceof Node ? text : element("p", {}, text)), body);
    open(dialog);
    dialog.addEventListener("close", () => resolve(result));
    /** @type {HTMLElement | null} */ (body.querySelector("input, textarea, select"))?.focus();
  });
}

/** Open a dialog, which is removed when it is closed. */
function open(/** @type {HTMLDialogElement} */ dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** @type {Kit["showDialog"]} */
export function showDialog(title, ...content) {
  const dialog = element("dialog.wide", { "aria-label": title });
  dialog.append(
    element("header", {}, element("h2", {}, title), button("✕", () => dialog.close(), { class: "quiet", "aria-label": t("action.close") })),
    element("div.dialog-body", { tabindex: "0" }, ...content));
  open(dialog);
}

/** @type {Kit["showValue"]} */
export function showValue(title, text, value) {
  const field = element("input", { type: "text", readonly: true, value, "aria-label": title });
  showDialog(title, element("p", {}, text), field);
  field.select();
}
