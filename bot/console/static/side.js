// The left side: who speaks, and the threads.

import { byId, h, reconcile } from "./dom.js";

export function avatar(author, { label = false } = {}) {
  const agent = author.agent === true;
  const props = { class: agent ? "av agent" : "av", "aria-hidden": label ? null : "true" };
  if (!agent && author.color) props.style = { background: author.color };
  return h("span", props, author.initial || author.name.slice(0, 1));
}

export function drawCast(state, { onSpeak }) {
  reconcile(byId("cast"), state.cast, {
    key: (member) => member.id,
    version: (member) => `${member.id === state.viewer}|${JSON.stringify(member)}`,
    build: (member) => h("button", {
      type: "button", class: "row", "aria-pressed": String(member.id === state.viewer), "data-focus": "row",
      on: { click: () => onSpeak(member.id) },
    }, avatar(member), h("span", { class: "t1" }, member.name), h("span", { class: "role" }, member.role)),
  });
}

export function drawThreads(state, { onOpen }) {
  const rows = state.threads.length > 0 || !state.loaded ? state.threads : [{ id: "", none: true }];
  reconcile(byId("threads"), rows, {
    key: (thread) => thread.id,
    version: (thread) => `${thread.id === state.threadId}|${thread.title}|${thread.waiting}|${thread.none}`,
    build: (thread) => (thread.none
      ? h("p", { class: "none" }, "None yet.")
      : h("button", {
        type: "button", class: "row", title: thread.title, "aria-current": thread.id === state.threadId ? "true" : null, "data-focus": "row",
        on: { click: () => onOpen(thread.id) },
      }, h("span", { class: "t1" }, thread.title || "Untitled"),
      thread.waiting && h("span", { class: "dot", title: "Waits for a person" }, h("span", { class: "hidden" }, ", waits for a person")))),
  });
}
