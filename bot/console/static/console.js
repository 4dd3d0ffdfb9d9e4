// The console: one state, what changes it, and who draws it.

import { ApiError, follow, get, part } from "./api.js";
import { restoreOutgoing, setUpComposer } from "./compose.js";
import { announce, byId } from "./dom.js";
import { closeDrawer, setUpFrame } from "./frame.js";
import { drawPanel, setUpPanel, tookClock, tookDeployment } from "./panel.js";
import { drawCast, drawThreads } from "./side.js";
import { drawChips, drawThread, setUpThread } from "./thread.js";
import { drawTurns, pill, setUpInspector } from "./turns.js";

const NEW = "new";
const PATIENCE = 700;
const HIDDEN_FOR = 20_000;

const state = {
  cast: [], threads: [], viewer: sessionStorage.getItem("moorings.viewer") ?? localStorage.getItem("moorings.viewer"),
  threadId: null, place: NEW, thread: null, messages: [], turns: [], live: null, agent: null,
  outgoing: restoreOutgoing(), notes: new Map(), forms: new Map(), redraw: new Map(), worker: { state: "up", pid: null },
  online: true, late: false, loaded: false, loading: false, locked: false, revokes: false, moves: false, deploys: false, deployment: { runs: "", stage: null }, ahead: 0, problem: null, jump: true,
};
let stream = null, lateTimer = 0, hideTimer = 0;

// Drawing

function draw() {
  drawCast(state, { onSpeak: speakAs });
  drawThreads(state, { onOpen: go });
  drawThread(state, actions);
  drawTurns(state);
  drawPanel(state);
  drawHead();
  composer.show();
}

function drawHead() {
  const title = state.problem ? "Not here" : state.threadId ? state.thread?.title ?? "" : "New thread";
  byId("title").textContent = title || "Thread";
  byId("place").textContent = state.threadId ? state.thread?.channel ?? "" : "";
  document.title = title ? `${title} · Moorings` : "Moorings console";
  const shown = state.late ? ["Reconnecting", ""] : state.problem ? null : pill(state);
  const node = byId("pill");
  node.hidden = shown === null;
  if (shown) [node.textContent, node.className] = [shown[0], `pill ${shown[1]}`.trim()];
  const banner = byId("banner");
  banner.hidden = !state.late && !state.locked;
  const words = state.locked
    ? "This page's key is no longer accepted. Open the address printed in the terminal."
    : "The server can't be reached. Reconnecting; what you send waits here and goes out once.";
  banner.classList.toggle("bad", state.locked);
  if (banner.textContent !== words) banner.textContent = words;
}

// Reading

/** Wrap a read so that calls during it lead to exactly one more, and only the newest answer counts. */
function reader(read) {
  let running = null, again = false;
  return function load() {
    if (running) { again = true; return running; }
    running = (async () => {
      do {
        again = false;
        try {
          await read();
        } catch (error) {
          fail(error);
        }
      } while (again);
      running = null;
      draw();
    })();
    return running;
  };
}

const loadState = reader(async () => {
  const { cast, threads, revokes, moves = false, deploys = false, ahead_ms: ahead } = await get("state");
  Object.assign(state, { cast, threads, revokes, moves, deploys, loaded: true });
  tookClock(state, ahead);
  if (!cast.some((member) => member.id === state.viewer)) state.viewer = cast[0]?.id ?? null;
});

const loadThread = reader(async () => {
  const { threadId, viewer } = state;
  if (!threadId || !viewer) return;
  state.loading = true;
  const sent = state.outgoing.filter((entry) => entry.state === "sent");
  const answer = await get(`threads/${part(threadId)}?viewer=${part(viewer)}`);
  if (threadId !== state.threadId || viewer !== state.viewer) { loadThread(); return; }
  const seen = new Set(state.messages.map((message) => message.id));
  if (answer.messages.some((message) => message.private && !seen.has(message.id))) state.notes.clear();
  Object.assign(state, { thread: answer.thread, messages: answer.messages, loading: false, problem: null });
  state.agent = answer.thread.agent ?? answer.messages.findLast((message) => message.author.agent)?.author ?? state.agent;
  state.outgoing = state.outgoing.filter((entry) => !(sent.includes(entry) && entry.threadId === threadId));
  composer.remember();
});

const loadTurns = reader(async () => {
  const { threadId } = state;
  if (!threadId) return;
  const { turns } = await get(`threads/${part(threadId)}/timeline`);
  if (threadId === state.threadId) state.turns = turns;
});

function fail(error) {
  state.loading = false;
  if (!(error instanceof ApiError)) return; // offline: the stream notices and says so
  if (error.status === 401) state.locked = true;
  else if (error.status === 404 && error.code === "unknown_thread") missing();
  else announce(error.message);
}

function missing() {
  Object.assign(state, { problem: { title: "This thread isn't here", text: "The address may be from other data. Pick another thread, or start one.", action: "Start a thread" }, messages: [], turns: [], live: null, thread: null, threadId: null, place: NEW });
}

// Following

function listen() {
  stream?.stop();
  stream = follow(state.threadId, { onChange: changed, onState: connection });
}

function connection(now) {
  clearTimeout(lateTimer);
  if (now === "up") {
    if (state.late) announce("Connected again");
    Object.assign(state, { online: true, late: false, live: null });
    loadState().then(() => Promise.all([loadThread(), loadTurns()]));
    composer.flush();
  } else if (now === "down") {
    state.online = false;
    lateTimer = setTimeout(() => { state.late = true; draw(); }, state.late ? 0 : PATIENCE);
  } else {
    fail(now);
    draw();
    if (now.status === 404) stream = follow(null, { onChange: changed, onState: connection });
  }
}

/** Let a tab nobody looks at give its connection back: a browser keeps six to one server, over all tabs. */
function rest() {
  clearTimeout(hideTimer);
  if (document.hidden) hideTimer = setTimeout(() => { stream?.stop(); stream = null; }, HIDDEN_FOR);
  else if (stream === null) listen();
}

let frame = 0;
const drawSoon = () => { frame ||= requestAnimationFrame(() => { frame = 0; draw(); }); };

function changed(change) {
  const mine = change.thread === undefined || change.thread === state.threadId;
  if (change.kind === "threads") loadState();
  else if (change.kind === "messages" && mine) loadThread();
  else if (change.kind === "timeline" && mine) loadTurns();
  else if (change.kind === "live" && mine) { state.live = change.text === null ? null : change; drawSoon(); }
  else if (change.kind === "clock") {
    if (tookClock(state, change.ahead_ms)) Promise.all([loadThread(), loadTurns()]);
  } else if (change.kind === "deployment") {
    if (change.runs !== state.deployment.runs) loadTurns();
    tookDeployment(state, change);
    drawSoon();
  } else if (change.kind === "worker") {
    if (change.state === "restarting") state.live = null;
    if (change.state !== state.worker.state) announce(change.state === "up" ? "The worker is up" : "The worker restarts");
    state.worker = { state: change.state, pid: change.pid };
    drawSoon();
  }
}

// Acting

function speakAs(id) {
  state.viewer = id;
  sessionStorage.setItem("moorings.viewer", id); // this tab
  localStorage.setItem("moorings.viewer", id); // the next one
  state.notes.clear();
  announce(`Speaking as ${state.cast.find((member) => member.id === id)?.name}`);
  draw();
  loadThread();
}

/** Move at once: what is typed next belongs to the new place, and the event of the move comes only later. */
const go = (id) => { closeDrawer(); location.hash = encodeURIComponent(id); route(); };

let routed = false;

function route() {
  let wanted = "";
  try {
    wanted = decodeURIComponent(location.hash.slice(1));
  } catch { /* a broken address is an unknown one */ }
  const id = wanted === "" || wanted === NEW ? null : wanted;
  if (routed && id === state.threadId && state.problem === null) return; // the event of a move that was made already
  routed = true;
  Object.assign(state, { threadId: id, place: id ?? NEW, thread: state.threads.find((thread) => thread.id === id) ?? null, messages: [], turns: [], live: null, problem: null, loading: id !== null, jump: true });
  state.notes.clear();
  listen();
  draw();
}

const actions = {
  draw,
  onSay: (text) => { composer.say(text); byId("say").focus(); },
  onNew: () => { go(NEW); byId("say").focus(); },
  onEdit: (entry) => composer.edit(entry),
  onDiscard: (entry) => composer.discard(entry),
  onNote: (id, place, text) => {
    if (text) state.notes.set(id, { viewer: state.viewer, place, text });
    else state.notes.delete(id);
    actions.onForm(id);
  },
  onForm: (id) => {
    state.redraw.set(id, (state.redraw.get(id) ?? 0) + 1);
    draw();
  },
  onClicked: () => loadThread(),
  onPosted: async (entry, answer) => {
    if (entry.place === NEW && state.place === NEW) {
      entry.place = answer.thread_id;
      history.replaceState(null, "", `#${encodeURIComponent(answer.thread_id)}`);
      route();
    } else {
      entry.place = answer.thread_id;
      await loadThread();
    }
    draw();
  },
};

const composer = setUpComposer(state, actions);

async function start() {
  setUpFrame();
  setUpThread();
  setUpPanel(state, { draw });
  setUpInspector();
  drawChips(actions.onSay);
  byId("new-thread").addEventListener("click", actions.onNew);
  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", rest);
  addEventListener("online", () => stream?.hurry());
  addEventListener("offline", () => stream?.drop());
  setInterval(() => { if (state.online && ["running", "waiting"].includes(state.turns.at(-1)?.state)) loadTurns(); }, 20_000);
  draw();
  await loadState();
  if (location.hash === "" && state.threads.length > 0) history.replaceState(null, "", `#${encodeURIComponent(state.threads[0].id)}`);
  route();
}

start();
