// Cards: questions with buttons, lists and forms, and what became of them. A card may hold several questions.

import { controls, forAll } from "./controls.js";
import { h, icon } from "./dom.js";
import { clockTime, exact, expiry, timeNode } from "./time.js";

const LONG = 220;
const CHECK = "M2.5 6.5l2.3 2.3 4.7-5.1", CROSS = "M3.2 3.2l5.6 5.6m0-5.6L3.2 8.8", DASH = "M3 6h6", CLOCK = "M6 2.8V6l2.2 1.6";
const MARKS = { approved: CHECK, answered: CHECK, mixed: CHECK, denied: CROSS, cancelled: DASH, ignored: DASH, expired: CLOCK, overridden: "M6 2.4v4M6 9v.2" };
const NOTES = { answered: "Answer", overridden: "Reason" };
const NAMED = /^(Approved|Denied|Answered) by [^:.]+$/;

/** Read a card; one from before there were items, forms or notes lacks those. */
const read = (card) => ({ items: [], evidence: [], fields: [], buttons: [], display: "buttons", progress: "", detail: "", outcome: null, ...card });

function value(text, fold) {
  if (text.length <= LONG && text.split("\n").length <= 6) return h("dd", {}, text);
  const start = text.slice(0, 90).split("\n")[0];
  return h("dd", {}, h("details", { "data-fold": fold }, h("summary", { "data-focus": fold }, `${start}… all ${text.length.toLocaleString("en")} characters`), text));
}

const pairs = (fields, fold) => fields.length > 0 && h("dl", { class: "kv" },
  fields.flatMap(([label, text], index) => [h("dt", {}, label), value(String(text), `${fold}-${index}`)]));

const details = (card, place) => [
  pairs(card.fields, `${place}-field`),
  card.evidence.length > 0 && h("ul", { class: "evi", "aria-label": "Evidence" }, card.evidence.map((line) => h("li", {}, line))),
];

function sentence({ text, at, result }, question) {
  const when = h("time", { datetime: new Date(at).toISOString(), title: exact(at) }, clockTime(at));
  if (text === question) return h("div", { class: "sub" }, when, result && ` · ${result}`); // said already
  return h("div", { class: "sub" }, NAMED.test(text) ? [text, " at ", when, ". "] : [text.replace(/\.$/, ""), " ·\u00a0", when, result ? " · " : ""], result ?? "");
}

/** What the person wrote and changed, as a quotation and a list. */
const written = ({ kind, note, changes }, place) => [
  note && h("div", { class: "note" }, h("span", {}, NOTES[kind] ?? "Note"), h("blockquote", {}, note)),
  changes?.length > 0 && h("div", { class: "changed" }, h("span", {}, "Changed before it ran"), pairs(changes, `${place}-change`)),
];

function asked(card, place) {
  if (card.fields.length === 0 && card.evidence.length === 0) return false;
  return h("details", { class: "fold", "data-fold": `${place}-asked` },
    h("summary", { "data-focus": `${place}-fold` }, "What was asked"),
    card.detail && h("div", { class: "evi" }, card.detail), details(card, place));
}

const tick = (kind) => h("span", { class: `tick ${kind}` }, icon(MARKS[kind] ?? DASH));

function settled(card, place, level = "h3") {
  return [
    h("div", { class: "top" }, tick(card.outcome.kind), h("div", {}, h(level, { class: "q" }, card.question), sentence(card.outcome, card.question))),
    written(card.outcome, place),
    asked(card, place),
  ];
}

function open(card, place, context, level = "h3") {
  const note = context.note?.place === place ? context.note.text : "";
  return [
    h("div", { class: "top" }, h(level, { class: "q" }, card.question), card.detail && h("div", { class: "sub" }, card.detail)),
    details(card, place),
    card.progress && h("div", { class: "votes" }, card.progress),
    note && h("div", { class: "said" }, note),
    controls(card, place, context, card.expires_at === null ? null : timeExpiry(card.expires_at)),
  ];
}

/** Whether a card says how something stands and asks nobody here: another, elsewhere, has the buttons. */
const tellsOnly = (card) => [card.items, card.buttons, card.fields, card.evidence].every((part) => part.length === 0) && !card.freeform && !card.detail;

const waiting = (card) => h("div", { class: "top" }, h("span", { class: "tick expired" }, icon(CLOCK)), h("div", {}, h("h3", { class: "q" }, card.question)));

function several(card, context) {
  const note = context.note?.place === "all" ? context.note.text : "";
  const items = card.items.map((given, index) => {
    const item = read(given), place = `item-${index}`;
    return h("li", { class: item.outcome ? "item done" : "item" }, item.outcome ? settled(item, place, "h4") : open(item, place, context, "h4"));
  });
  return [
    h("div", { class: "top" }, card.outcome && tick(card.outcome.kind), h("div", {}, h("h3", { class: "q" }, card.question), card.outcome ? sentence(card.outcome, card.question) : card.detail && h("div", { class: "sub" }, card.detail))),
    h("ol", { class: "items" }, items),
    note && h("div", { class: "said" }, note),
    !card.outcome && forAll(card, context),
  ];
}

/** Build a message's card. `context`: {threadId, messageId, viewer, note, forms, onNote(place, text), onClicked(), onForm()}. */
export function cardNode(given, context) {
  const card = read(given);
  const status = tellsOnly(card);
  const parts = card.items.length > 0 ? several(card, context) : card.outcome ? settled(card, "card") : status ? waiting(card) : open(card, "card", context);
  const kind = [card.outcome && "done", card.items.length > 0 && "several", status && "status"].filter(Boolean).map((one) => ` ${one}`).join("");
  return h("section", { class: `card${kind}`, "aria-label": card.question }, parts);
}

function timeExpiry(at) {
  const node = timeNode(at, expiry);
  node.className = "exp";
  return node;
}
