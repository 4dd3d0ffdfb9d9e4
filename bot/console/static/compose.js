// The composer and what is on its way: nothing typed is lost, every retry carries the same client_id.

import { ApiError, clientId, part, post, worthRetrying } from "./api.js";
import { announce, byId } from "./dom.js";

const KEPT = "moorings.outgoing";
const draftKey = (place) => `moorings.draft.${place}`;

function load(key, fallback) {
  try {
    return JSON.parse(sessionStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function restoreOutgoing() {
  return load(KEPT, []).filter((entry) => entry.state !== "sent").map((entry) => ({ ...entry, state: entry.state === "failed" ? "failed" : "waiting" }));
}

const remember = (state) => sessionStorage.setItem(KEPT, JSON.stringify(state.outgoing));

/** Set up the composer. `actions`: {draw(), onPosted(entry, answer)}. Returns {say, flush, show, edit, discard}. */
export function setUpComposer(state, actions) {
  const form = byId("form"), box = byId("say");
  let flushing = false, timer = 0, tries = 0, shown = null;

  const grow = () => { box.style.setProperty("height", "auto"); box.style.setProperty("height", `${Math.min(180, box.scrollHeight)}px`); };

  function say(text) {
    if (!text.trim() || !state.viewer || state.locked) return false;
    state.outgoing.push({ clientId: clientId(), place: state.place, threadId: state.threadId, author: state.viewer, text, state: "sending", error: "" });
    state.jump = true;
    remember(state);
    actions.draw();
    flush();
    return true;
  }

  async function flush() {
    clearTimeout(timer);
    if (flushing) return;
    flushing = true;
    try {
      for (let entry; (entry = state.outgoing.find((one) => one.state === "sending" || one.state === "waiting")); ) {
        if (!(await send(entry))) break;
      }
    } finally {
      flushing = false;
      remember(state);
    }
  }

  /** Send one entry; false means wait before trying again. */
  async function send(entry) {
    const path = entry.threadId ? `threads/${part(entry.threadId)}/messages` : "threads";
    try {
      const answer = await post(path, { author: entry.author, text: entry.text, client_id: entry.clientId });
      tries = 0;
      entry.state = "sent";
      for (const other of state.outgoing) {
        if (other.place === entry.place && !other.threadId) { other.threadId = answer.thread_id; if (other !== entry) other.place = answer.thread_id; }
      }
      await actions.onPosted(entry, answer);
      return true;
    } catch (error) {
      if (worthRetrying(error)) {
        entry.state = "waiting";
        timer = setTimeout(flush, Math.min(8000, 500 * 2 ** tries++));
        actions.draw();
        return false;
      }
      entry.state = "failed";
      entry.error = error instanceof ApiError ? `${error.message}${error.id ? ` (${error.id})` : ""}` : "Something went wrong. Edit it and send it again.";
      announce(`Not sent. ${entry.error}`);
      actions.draw();
      return true;
    }
  }

  function show() {
    const viewer = state.cast.find((member) => member.id === state.viewer);
    const label = viewer ? `Message as ${viewer.name}` : "Message";
    box.placeholder = label;
    byId("say-label").textContent = label;
    if (shown === state.place) return;
    shown = state.place;
    box.value = sessionStorage.getItem(draftKey(state.place)) ?? "";
    grow();
  }

  function discard(entry) {
    state.outgoing = state.outgoing.filter((one) => one !== entry);
    remember(state);
    box.focus();
    actions.draw();
  }

  function edit(entry) {
    box.value = box.value.trim() ? `${entry.text}\n${box.value}` : entry.text;
    sessionStorage.setItem(draftKey(state.place), box.value);
    discard(entry);
    grow();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!say(box.value)) return;
    box.value = "";
    sessionStorage.removeItem(draftKey(state.place));
    grow();
    box.focus();
  });
  box.addEventListener("input", () => { sessionStorage.setItem(draftKey(state.place), box.value); grow(); });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });

  return { say, flush, show, edit, discard, remember: () => remember(state) };
}
