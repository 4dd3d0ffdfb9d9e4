// The right side: what happened, step by step; one step looked into.

import { get, part } from "./api.js";
import { byId, h, reconcile } from "./dom.js";
import { exact, keep, now, span } from "./time.js";

const STATES = { recorded: "recorded", cut: "cut off", waiting: "waiting", running: "running", failed: "failed" };

function stepNode(step, open) {
  if (step.kind === "mark") return h("li", { class: "step move" }, h("div", { title: exact(step.started_at) }, h("span", { class: "knob move", "aria-hidden": "true" }), h("span", {}, h("b", {}, step.label), h("small", {}, step.note))));
  const duration = h("span", { class: "dur", title: step.ended_at === null ? `since ${exact(step.started_at)}` : exact(step.started_at) });
  if (step.ended_at === null) keep(duration, () => span(Math.max(0, now() - step.started_at)));
  else duration.textContent = span(step.duration_ms);
  const bar = step.share > 0 && step.state !== "running" && h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(1, step.share * 100)}%` } }));
  return h("li", { class: `step ${step.state}` },
    h("button", { type: "button", "data-focus": "step", on: { click: open } },
      h("span", { class: `knob ${step.state}` }, h("span", { class: "hidden" }, STATES[step.state])),
      h("span", {}, h("b", {}, step.label), step.by && [" ", h("span", { class: "by", title: `Deployment ${step.by}` }, step.by)], step.note && h("small", {}, step.note), bar),
      duration));
}

const list = (turn, threadId) => {
  const node = h("ol", { class: "steps" });
  drawSteps(node, turn, threadId);
  return node;
};

function drawSteps(node, turn, threadId) {
  reconcile(node, turn.steps.map((step, place) => ({ step, place })), {
    key: ({ place }) => place,
    version: ({ step }) => JSON.stringify([step.kind, step.label, step.state, step.note, step.by, step.ended_at, step.share]),
    build: ({ step }) => stepNode(step, () => inspect(threadId, turn, step)),
  });
}

function fill(node, turn, threadId) {
  const sub = node.querySelector(".sub");
  if (sub.textContent !== turn.summary) sub.textContent = turn.summary;
  sub.classList.toggle("failed", turn.state === "failed");
  drawSteps(node.querySelector(".steps"), turn, threadId);
  return node;
}

function latestNode(turn, threadId) {
  return fill(h("section", { class: "turn", "data-turn": turn.turn_id }, h("h2", {}, `Turn ${turn.number}`), h("p", { class: "sub" }), h("ol", { class: "steps" })), turn, threadId);
}

export function drawTurns(state) {
  const box = byId("turns");
  const latest = state.turns.at(-1);
  if (!latest) {
    box.replaceChildren(h("div", { class: "turn" }, h("h2", {}, "What happened"), h("p", { class: "sub none" }, "Send a message, and each step shows here as it is recorded.")));
    return;
  }
  const id = `${state.threadId}/${latest.turn_id}`;
  let current = box.querySelector(".turn[data-turn]");
  let older = box.querySelector(".older");
  if (!current || box.dataset.turn !== id) {
    older = h("div", { class: "older" });
    current = latestNode(latest, state.threadId);
    box.replaceChildren(current, older);
    box.dataset.turn = id;
  } else fill(current, latest, state.threadId);
  reconcile(older, state.turns.slice(0, -1).reverse(), {
    key: (turn) => turn.turn_id,
    version: (turn) => JSON.stringify([turn.summary, turn.steps.map((step) => [step.label, step.by])]),
    build: (turn) => h("details", { class: "earlier", "data-fold": turn.turn_id },
      h("summary", { "data-focus": "turn" }, h("b", {}, `Turn ${turn.number}`), turn.summary), list(turn, state.threadId)),
  });
}

/** The short word on a turn for the header: [words, class], or null. */
export function pill(state) {
  const turn = state.turns.at(-1);
  if (!state.threadId || !turn) return null;
  if (turn.state === "running" && state.worker.state === "restarting") return ["Worker restarting", ""];
  if (turn.state === "running") return ["Working", "work"];
  if (turn.state === "waiting") return [turn.steps.findLast((step) => step.state === "waiting")?.label ?? "Waiting", ""];
  if (turn.state === "failed") return ["Failed", "bad"];
  if (turn.state === "cancelled") return ["Cancelled", ""];
  return ["Done", "ok"];
}

// One step

async function inspect(threadId, turn, step) {
  const dialog = byId("inspector"), body = byId("inspector-body");
  byId("inspector-title").textContent = `${step.label} · turn ${turn.number}, step ${step.index}`;
  body.replaceChildren(h("p", { class: "hidden" }, "Loading"), h("div", { class: "bone" }), h("div", { class: "bone" }));
  dialog.showModal();
  try {
    const found = await get(`threads/${part(threadId)}/steps/${step.index}?turn=${part(turn.turn_id)}`);
    const shown = [["Input", found.input], ["Records", found.records], ["Output", found.output]].filter(([, value]) => value !== undefined && value !== null);
    body.replaceChildren(...shown.map(([label, value]) => h("section", {}, h("h3", {}, label), h("pre", {}, typeof value === "string" ? value : JSON.stringify(value, null, 2)))));
    if (shown.length === 0) body.replaceChildren(h("p", {}, "Nothing is recorded for this step yet."));
  } catch (error) {
    body.replaceChildren(h("p", {}, error.status === 404 ? "Nothing is recorded for this step yet." : `${error.message} Close this and try again.`), error.id ? h("p", { class: "quiet" }, error.id) : "");
  }
}

export function setUpInspector() {
  const dialog = byId("inspector");
  byId("inspector-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
