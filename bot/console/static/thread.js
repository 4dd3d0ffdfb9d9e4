// The middle: messages, what is being sent, what is being written, and the states of an empty or missing thread.

import { cardNode } from "./card.js";
import { byId, h, icon, reconcile } from "./dom.js";
import { markdown } from "./markdown.js";
import { avatar } from "./side.js";
import { exact, timeNode } from "./time.js";

const EYE = "M1.2 6S3 2.8 6 2.8 10.8 6 10.8 6 9 9.2 6 9.2 1.2 6 1.2 6zM6 7.2a1.2 1.2 0 100-2.4 1.2 1.2 0 000 2.4z";
const NEAR = 90;
let atEnd = true;

export const IDEAS = [
  ["hello", "A greeting, with the number of this message"],
  ["refund 40 for ch_1", "Asks first; Alice may say yes herself"],
  ["refund 140 for ch_1", "Over 100, so only Farah of finance may"],
  ["deploy api", "A workflow that plans, asks, waits and rolls out"],
  ["issue Broken link", "Needs an account: sign in, and it goes on as you"],
  ["slow 5", "A tool that takes 5 seconds: kill the worker meanwhile"],
  ["stream 40", "Forty words, written as they come"],
  ["fail 2", "The model fails twice, then answers"],
];

export function drawChips(onSay) {
  byId("chips").replaceChildren(...IDEAS.slice(1, 6).map(([text]) => h("button", { type: "button", class: "chip", title: `Send “${text}”`, on: { click: () => onSay(text) } }, text)));
}

function article(author, { kind = "", id = null, head = [], body = [] }) {
  return h("article", { class: `msg ${kind}`.trim(), "data-message": id }, avatar(author),
    h("div", { class: "body" },
      h("div", { class: "who" }, h("b", {}, author.name), author.agent && h("span", { class: "tag" }, "agent"), head), body));
}

const text = (source) => source.trim() !== "" && h("div", { class: "text" }, markdown(source));

function messageNode(message, state, actions) {
  const viewer = state.cast.find((member) => member.id === state.viewer);
  const note = state.notes.get(message.id);
  return article(message.author, {
    kind: [message.private && "private", message.notice && "notice"].filter(Boolean).join(" "), id: message.id,
    head: [timeNode(message.at), message.edited_at !== null && !message.card && h("span", { class: "state", title: exact(message.edited_at) }, "edited")],
    body: [
      text(message.text),
      message.card && cardNode(message.card, {
        threadId: state.threadId, messageId: message.id, viewer: state.viewer,
        note: note && note.viewer === state.viewer ? note : null, forms: state.forms, onForm: () => actions.onForm(message.id),
        stillShown: () => state.messages.some((one) => one.id === message.id && !one.card?.outcome),
        onNote: (place, words) => actions.onNote(message.id, place, words), onClicked: actions.onClicked,
      }),
      message.private && h("div", { class: "only" }, icon(EYE, 13), `Only ${viewer ? viewer.name : "you"} can see this`),
    ],
  });
}

function outgoingNode(entry, state, actions) {
  const author = state.cast.find((member) => member.id === entry.author) ?? { name: entry.author, initial: "?" };
  const failed = entry.state === "failed";
  const words = { sending: "sending", waiting: "waiting for the connection", sent: "sent", failed: "not sent" }[entry.state];
  return article(author, {
    kind: failed ? "sending unsent" : "sending",
    head: h("span", { class: "state" }, words),
    body: [
      text(entry.text),
      failed && h("div", { class: "only" }, entry.error),
      failed && h("div", { class: "again" },
        h("button", { type: "button", class: "btn", "data-focus": "edit", on: { click: () => actions.onEdit(entry) } }, "Edit"),
        h("button", { type: "button", class: "btn", "data-focus": "drop", on: { click: () => actions.onDiscard(entry) } }, "Discard")),
    ],
  });
}

function agentOf(state) {
  const last = state.messages.findLast((message) => message.author.agent);
  return state.live?.author ?? last?.author ?? state.agent ?? { name: "Agent", initial: "A", agent: true };
}

function drawLive(state) {
  const box = byId("live");
  const turn = state.turns.at(-1);
  const working = state.threadId !== null && turn?.state === "running";
  if (!state.live && !working) { box.replaceChildren(); return; }
  const author = { ...agentOf(state), agent: true };
  const restarted = state.live?.attempt > 1 ? h("span", { class: "state" }, `attempt ${state.live.attempt}`) : null;
  const state_ = state.live?.text ? "writing" : state.worker.state === "restarting" ? "worker restarting" : "working";
  const body = state.live?.text ? h("div", { class: "text" }, markdown(state.live.text)) : h("div", { class: "dots" }, h("i"), h("i"), h("i"));
  if (state.live?.text) (body.lastElementChild ?? body).append(h("span", { class: "caret" }));
  box.replaceChildren(article(author, { head: [h("span", { class: "state" }, state_), restarted], body }));
}

function drawBlank(state, actions) {
  const box = byId("blank");
  const pending = state.outgoing.some((entry) => entry.place === state.place);
  const stamp = `${state.problem}|${state.loaded}|${state.loading}|${state.threadId}|${state.viewer}|${pending}|${state.messages.length > 0}`;
  if (box.dataset.stamp === stamp) return;
  box.dataset.stamp = stamp;
  const viewer = state.cast.find((member) => member.id === state.viewer);
  if (state.problem) {
    box.replaceChildren(h("div", { class: "blank" }, h("h2", {}, state.problem.title), h("p", {}, state.problem.text),
      state.problem.action && h("div", {}, h("button", { type: "button", class: "btn pri", on: { click: actions.onNew } }, state.problem.action))));
  } else if (!state.loaded || (state.threadId && state.loading && state.messages.length === 0)) {
    const bone = () => h("div", { class: "msg", "aria-hidden": "true" }, h("span", { class: "av bone" }), h("div", {}, h("div", { class: "bone short" }), h("div", { class: "bone long" })));
    box.replaceChildren(h("div", { class: "flow" }, h("p", { class: "hidden" }, "Loading"), bone(), bone()));
  } else if (!state.threadId && !pending) {
    box.replaceChildren(h("div", { class: "blank" },
      h("h2", {}, "Start a thread"),
      h("p", {}, `Type a message below as ${viewer ? viewer.name : "someone"}, or send one of these. Nothing is lost, whatever you break.`),
      h("div", { class: "ideas" }, IDEAS.map(([idea, why]) => h("button", { type: "button", class: "idea", on: { click: () => actions.onSay(idea) } }, h("b", {}, idea), h("span", {}, why))))));
  } else box.replaceChildren();
}

/** Draw the thread, staying at the end if the reader was there. */
export function drawThread(state, actions) {
  const scroller = byId("thread");
  reconcile(byId("messages"), state.problem ? [] : state.messages, {
    key: (message) => `${state.threadId}/${message.id}`,
    version: (message) => `${message.version}|${state.viewer}|${state.notes.get(message.id)?.text ?? ""}|${state.redraw.get(message.id) ?? 0}`,
    build: (message) => messageNode(message, state, actions),
  });
  reconcile(byId("outgoing"), state.outgoing.filter((entry) => entry.place === state.place), {
    key: (entry) => entry.clientId,
    version: (entry) => `${entry.state}|${entry.error}`,
    build: (entry) => outgoingNode(entry, state, actions),
  });
  drawLive(state);
  drawBlank(state, actions);
  atEnd ||= state.jump;
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  state.jump = false;
  watchEnd();
}

function watchEnd() {
  const scroller = byId("thread");
  const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  atEnd = left < NEAR;
  byId("latest").hidden = left < NEAR * 2;
}

export function setUpThread() {
  const scroller = byId("thread");
  scroller.addEventListener("scroll", watchEnd, { passive: true });
  byId("latest").addEventListener("click", () => { scroller.scrollTop = scroller.scrollHeight; byId("say").focus(); });
  new ResizeObserver(() => {
    if (atEnd) scroller.scrollTop = scroller.scrollHeight; // the composer grew, a banner came
    watchEnd();
  }).observe(scroller);
}
