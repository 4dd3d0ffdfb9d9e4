// What can be pressed on a card: buttons, a list to choose from, forms that open in place.

import { ApiError, clientId, part, post, worthRetrying } from "./api.js";
import { announce, h } from "./dom.js";
import { keep } from "./time.js";

const STYLES = { primary: "btn pri", danger: "btn danger", plain: "btn" };

/** Draw a question's controls, its open form below them. `expires` stands at the end of the row. */
export function controls(card, place, context, expires) {
  const form = opened(context, place);
  const described = card.buttons.some((button) => button.description);
  const direct = card.buttons.filter((button) => !button.form);
  const inList = card.display === "select" && direct.length > 0;
  const row = (inList ? card.buttons.filter((button) => button.form) : card.buttons).map((button, index) => one(button, index, place, context, form));
  const drawn = inList ? [list(direct, place, context)] : [];
  if (described && !inList) drawn.push(h("div", { class: "choices" }, card.buttons.map((button, index) => h("div", {}, row[index], button.description && h("span", {}, button.description)))));
  else drawn.push(...row);
  return [
    (drawn.length > 0 || expires) && h("div", { class: described && !inList ? "acts tall" : "acts" }, drawn, expires ?? h("span", { class: "exp" })),
    form && card.buttons.filter((button) => button.form && button.value === form.value).map((button) => fill(button, form, place, context)),
  ];
}

/** Draw the buttons for all questions of a card. */
export const forAll = (card, context) => card.buttons.length > 0 && h("div", { class: "acts all" },
  card.buttons.map((button, index) => one(button, index, "all", context, null)), h("span", { class: "exp" }));

const opened = (context, place) => { const form = context.forms.get(`${context.messageId}/${place}`); return form?.viewer === context.viewer ? form : null; };

function one(button, index, place, context, form) {
  const open = form?.value === button.value;
  return h("button", {
    type: "button", class: STYLES[button.style] ?? "btn", "data-focus": `${place}-button-${index}`,
    "aria-expanded": button.form ? String(open) : null,
    on: { click: (event) => (button.form ? toggle(button, open, place, context) : press(event.currentTarget, { label: button.label, value: button.value }, place, context)) },
  }, button.label);
}

function toggle(button, open, place, context) {
  const key = `${context.messageId}/${place}`;
  if (open) context.forms.delete(key);
  else context.forms.set(key, { viewer: context.viewer, value: button.value, fields: Object.fromEntries(button.form.fields.map((field) => [field.name, field.value])) });
  context.onForm();
  if (!open) document.querySelector(`[data-message="${CSS.escape(context.messageId)}"] [data-focus="${CSS.escape(`${place}-field-0`)}"]`)?.focus();
}

/** Draw a long list of options: chosen first, then sent, so that keys can wander through it. */
function list(options, place, context) {
  const id = `${context.messageId}-${place}-list`;
  const select = h("select", { id, "data-focus": `${place}-list` },
    h("option", { value: "" }, "Choose an answer"),
    options.map((option) => h("option", { value: option.value }, option.description ? `${option.label}: ${option.description}` : option.label)));
  select.value = chosen.get(id) ?? "";
  const send = h("button", {
    type: "button", class: "btn pri", "data-focus": `${place}-choose`,
    on: { click: (event) => {
      const option = options.find((one_) => one_.value === select.value);
      if (option) press(event.currentTarget, { label: option.label, value: option.value }, place, context);
      else select.focus();
    } },
  }, "Answer");
  select.addEventListener("change", () => chosen.set(id, select.value));
  return h("div", { class: "list" }, h("label", { class: "hidden", for: id }, "Choose an answer"), select, send);
}

/** What was chosen in a list and not sent yet, so that a redrawn card keeps it. */
const chosen = new Map();

/** Draw an open form; what is typed stays with it until it is sent or closed. */
function fill(button, form, place, context) {
  const close = () => { context.forms.delete(`${context.messageId}/${place}`); context.onForm(); };
  const fields = button.form.fields.map((field, index) => {
    const id = `${context.messageId}-${place}-${index}`;
    const tall = field.multiline || field.value.includes("\n");
    const input = h(tall ? "textarea" : "input", { id, name: field.name, maxlength: 3000, rows: tall ? 3 : null, type: tall ? null : "text", required: field.required, autocomplete: "off", "data-focus": `${place}-field-${index}` });
    input.value = form.fields[field.name] ?? field.value;
    input.addEventListener("input", () => { form.fields[field.name] = input.value; });
    return h("div", { class: "field" }, h("label", { for: id }, field.label), input);
  });
  const send = h("button", { type: "submit", class: STYLES[button.style] === "btn" ? "btn pri" : STYLES[button.style], "data-focus": `${place}-send` }, button.form.submit);
  return h("form", {
    class: "fill", "aria-label": button.form.title,
    on: {
      submit: (event) => {
        event.preventDefault();
        press(send, { label: button.form.submit, value: button.form.value, fields: { ...form.fields }, done: () => context.forms.delete(`${context.messageId}/${place}`) }, place, context);
      },
      keydown: (event) => {
        if (event.key === "Escape") { event.stopPropagation(); close(); document.querySelector(`[data-message="${CSS.escape(context.messageId)}"] [aria-expanded][data-focus^="${place}-"]`)?.focus(); }
        else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
      },
    },
  }, h("h4", {}, button.form.title), fields, h("div", { class: "send" }, send, h("button", { type: "button", class: "btn", "data-focus": `${place}-close`, on: { click: close } }, "Cancel")));
}

async function press(target, { label, value, fields = {}, done = () => {} }, place, context) {
  const card = target.closest(".card");
  const all = [...card.querySelectorAll(".acts button, .fill button, .acts select")];
  if (all.some((button) => button.getAttribute("aria-disabled") === "true")) return;
  for (const button of all) button.setAttribute("aria-disabled", "true");
  const expires = (target.closest(".item") ?? card).querySelector(target.closest(".all") ? ".all .exp" : ".exp");
  const say = (text) => { if (expires) keep(expires, () => text); };
  say("Recording…");
  const body = { message_id: context.messageId, author: context.viewer, value, fields, client_id: clientId() };
  for (let tries = 0; ; tries += 1) {
    try {
      const answer = await post(`threads/${part(context.threadId)}/clicks`, body);
      const kept = RECORDED.has(answer.status);
      if (kept) done();
      announce(kept ? `${label}: ${SPOKEN[answer.status] ?? "recorded"}` : answer.reason || words(answer.status));
      context.onNote(place, kept ? "" : answer.reason || words(answer.status));
      break;
    } catch (error) {
      if (worthRetrying(error) && context.stillShown() && tries < 60) {
        say("Waiting for the connection…");
        await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 500 * 2 ** tries)));
        continue;
      }
      context.onNote(place, error instanceof ApiError ? `${error.message}${error.id ? ` (${error.id})` : ""}` : "That didn't arrive. Click again.");
      break;
    }
  }
  context.onClicked();
}

const RECORDED = new Set(["settled", "pending", "counted", "aside"]);
const SPOKEN = { pending: "recorded, still waiting", counted: "recorded, more people have to say so", aside: "a link comes in a message for you alone" };
const words = (status) => (status === "already_settled" ? "Somebody else was first." : "You can't answer this one.");
