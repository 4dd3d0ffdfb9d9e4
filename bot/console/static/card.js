// Cards: a question with buttons, and what became of it.

import { ApiError, clientId, part, post, worthRetrying } from "./api.js";
import { announce, h, icon } from "./dom.js";
import { clockTime, exact, expiry, keep, timeNode } from "./time.js";

const LONG = 220;
const MARKS = { approved: "M2.5 6.5l2.3 2.3 4.7-5.1", denied: "M3.2 3.2l5.6 5.6m0-5.6L3.2 8.8", cancelled: "M3.2 3.2l5.6 5.6m0-5.6L3.2 8.8", expired: "M6 2.8V6l2.2 1.6", ignored: "M3 6h6" };
const STYLES = { primary: "btn pri", danger: "btn danger", plain: "btn" };

function value(text, index) {
  if (text.length <= LONG && text.split("\n").length <= 6) return h("dd", {}, text);
  const start = text.slice(0, 90).split("\n")[0];
  return h("dd", {}, h("details", { "data-fold": `field-${index}` }, h("summary", {}, `${start}… all ${text.length.toLocaleString("en")} characters`), text));
}

const details = (card) => [
  card.fields.length > 0 && h("dl", { class: "kv" }, card.fields.flatMap(([label, text], index) => [h("dt", {}, label), value(String(text), index)])),
  card.evidence.length > 0 && h("ul", { class: "evi", "aria-label": "Evidence" }, card.evidence.map((line) => h("li", {}, line))),
];

function settled(card) {
  const { kind, text, at, result } = card.outcome;
  const when = h("time", { datetime: new Date(at).toISOString(), title: exact(at) }, clockTime(at));
  return h("section", { class: "card done", "aria-label": card.question },
    h("div", { class: "top" },
      h("span", { class: `tick ${kind}` }, icon(MARKS[kind] ?? MARKS.ignored)),
      h("div", {},
        h("h3", { class: "q" }, card.question),
        h("div", { class: "sub" }, text.replace(/[.\s]+$/, ""), /^\w+ by [^:,.]+$/.test(text) ? " at " : ", ", when, ". ", result ?? ""))),
    (card.detail || card.fields.length > 0 || card.evidence.length > 0) && h("details", { class: "fold", "data-fold": "asked" },
      h("summary", { "data-focus": "fold" }, "What was asked"),
      card.detail && h("div", { class: "evi" }, card.detail), details(card)));
}

/** Build a message's card. `context`: {threadId, messageId, viewer, note, onNote(text), onClicked()}. */
export function cardNode(card, context) {
  if (card.outcome) return settled(card);
  const buttons = card.buttons.map((button, index) => h("button", {
    type: "button", class: STYLES[button.style] ?? "btn", "data-focus": `button-${index}`,
    on: { click: (event) => click(event.currentTarget, button, context) },
  }, button.label));
  return h("section", { class: "card", "aria-label": card.question },
    h("div", { class: "top" }, h("h3", { class: "q" }, card.question), card.detail && h("div", { class: "sub" }, card.detail)),
    details(card),
    context.note && h("div", { class: "said" }, context.note),
    buttons.length > 0 && h("div", { class: "acts" }, buttons,
      card.expires_at !== null && timeExpiry(card.expires_at)));
}

function timeExpiry(at) {
  const node = timeNode(at, expiry);
  node.className = "exp";
  return node;
}

async function click(target, button, context) {
  const group = target.closest(".acts");
  const all = [...group.querySelectorAll("button")];
  if (all.some((one) => one.getAttribute("aria-disabled") === "true")) return;
  for (const one of all) one.setAttribute("aria-disabled", "true");
  const expires = group.querySelector(".exp");
  const say = (text) => { if (expires) keep(expires, () => text); };
  say("Recording…");
  const body = { message_id: context.messageId, author: context.viewer, value: button.value, client_id: clientId() };
  for (let tries = 0; ; tries += 1) {
    try {
      const answer = await post(`threads/${part(context.threadId)}/clicks`, body);
      announce(spoken(button.label, answer));
      context.onNote(answer.status === "settled" || answer.status === "pending" ? "" : answer.reason || words(answer.status));
      break;
    } catch (error) {
      if (worthRetrying(error) && context.stillShown() && tries < 60) {
        say("Waiting for the connection…");
        await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 500 * 2 ** tries)));
        continue;
      }
      context.onNote(error instanceof ApiError ? `${error.message}${error.id ? ` (${error.id})` : ""}` : "That didn't arrive. Click again.");
      break;
    }
  }
  context.onClicked();
}

const words = (status) => (status === "already_settled" ? "Somebody else was first." : "You can't answer this one.");
const spoken = (label, answer) => (answer.status === "settled" ? `${label}: recorded` : answer.status === "pending" ? `${label}: recorded, still waiting` : answer.reason || words(answer.status));
