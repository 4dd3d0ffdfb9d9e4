// The console's JSON API: calls that say what went wrong, and a stream that comes back by itself.

const BASE = "/console/api/";
const SILENCE = 25_000;

export class ApiError extends Error {
  constructor(status, { code = "unknown", message = "The server gave an answer that can't be read.", retryable = false, error_id: id = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, retryable, id });
  }
}

/** A connection that failed: the call may or may not have arrived, and may be made again with the same client_id. */
export class Offline extends Error {}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(BASE + path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Offline("The server can't be reached.");
  }
  if (response.ok) {
    try {
      return await response.json();
    } catch {
      throw new Offline("The answer was cut off.");
    }
  }
  throw await failure(response);
}

async function failure(response) {
  const body = await response.json().catch(() => ({}));
  return new ApiError(response.status, body.error);
}

export const get = (path) => call(path);

export const post = (path, body = {}) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const part = encodeURIComponent;

/** A name for one intent, sent again with every retry of it. */
export const clientId = () => crypto.randomUUID();

/** Whether trying the same call again can help. */
export const worthRetrying = (error) => error instanceof Offline || (error instanceof ApiError && error.retryable);

/**
 * Follow the changes of a thread until stopped. `onChange` gets each line, `onState` "up" | "down" | an ApiError that ends it.
 * Returns {stop, hurry}: hurry tries again at once.
 */
export function follow(thread, { onChange, onState }) {
  let stopped = false, failures = 0, abort = null, wake = () => {};
  const pause = (ms) => new Promise((resolve) => { const timer = setTimeout(resolve, ms); wake = () => { clearTimeout(timer); resolve(); }; });

  async function once() {
    abort = new AbortController();
    let watchdog = setTimeout(() => abort.abort(), SILENCE);
    try {
      const response = await fetch(`${BASE}stream${thread ? `?thread=${part(thread)}` : ""}`, { cache: "no-store", signal: abort.signal });
      if (!response.ok) throw await failure(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE);
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines.filter(Boolean)) {
          if (stopped) return;
          const change = JSON.parse(line);
          if (change.kind === "hello") { failures = 0; onState("up"); }
          onChange(change);
        }
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  (async () => {
    while (!stopped) {
      try {
        await once();
      } catch (error) {
        if (!stopped && error instanceof ApiError && !error.retryable) { onState(error); return; }
      }
      if (stopped) return;
      onState("down");
      await pause(Math.min(5000, 300 * 2 ** failures++) * (0.7 + Math.random() * 0.6));
    }
  })();

  return {
    stop() { stopped = true; abort?.abort(); wake(); },
    hurry() { failures = 0; wake(); },
    drop() { abort?.abort(); },
  };
}
