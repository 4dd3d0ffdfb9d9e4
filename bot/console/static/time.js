// Times in words, kept true while the page is open.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const ticking = new WeakMap();

let ahead = 0;

/** The demo's clock can be moved on: every "now" of the page is the server's. */
export const now = () => Date.now() + ahead;
export const setAhead = (ms) => { ahead = ms; tick(); };

const pad = (number) => String(number).padStart(2, "0");

export function clockTime(ms) {
  const date = new Date(ms);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

export function exact(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "full", timeStyle: "medium" });
}

/** A day and a time, such as "Thu 3 Dec, 07:43". */
export const dated = (ms) => `${new Date(ms).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })}, ${clockTime(ms)}`;

export function ago(ms, at = now()) {
  const passed = at - ms;
  if (passed < 45 * SECOND) return "just now";
  if (passed < HOUR) return `${Math.max(1, Math.round(passed / MINUTE))} min ago`;
  const date = new Date(ms);
  const days = Math.round((new Date(at).setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / DAY);
  if (days === 0) return clockTime(ms);
  if (days === 1) return `yesterday ${clockTime(ms)}`;
  return `${date.toLocaleDateString("en", { day: "numeric", month: "short" })} ${clockTime(ms)}`;
}

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

export function expiry(ms, at = now()) {
  const left = ms - at;
  if (left <= 0) return "expired, being closed";
  if (left < MINUTE) return "expires in under a minute";
  if (left < 90 * MINUTE) return `expires in ${Math.round(left / MINUTE)} min`;
  if (left < 36 * HOUR) return `expires in ${count(Math.round(left / HOUR), "hour")}`;
  return `expires in ${count(Math.round(left / DAY), "day")}`;
}

export function span(ms) {
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`;
  return count(Math.floor(ms / DAY), "day");
}

/** Keep a node's text equal to what `write()` says, once a second, as long as it is in the page. */
export function keep(node, write) {
  node.textContent = write();
  node.dataset.tick = "";
  ticking.set(node, write);
  return node;
}

export function timeNode(ms, write = ago) {
  const node = document.createElement("time");
  node.dateTime = new Date(ms).toISOString();
  node.title = exact(ms);
  return keep(node, () => write(ms));
}

function tick() {
  for (const node of document.querySelectorAll("[data-tick]")) {
    const write = ticking.get(node);
    const text = write ? write() : null;
    if (text !== null && node.textContent !== text) node.textContent = text;
  }
}

setInterval(tick, SECOND);
