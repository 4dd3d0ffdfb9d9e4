"""Watchdog: names the line on which a body holds its thread.

What lives here: one thread that looks at running bodies. What does not: deciding what becomes of them (`replay`).
It can't interrupt a body. One that never yields holds up all that its process does, but for its leases (leases.py).

A body is not to answer for time in which nothing of its process ran: it was stopped, or its machine, or another thread held the
interpreter's lock. So what counts is the time that this thread saw it run, or the processor's, whichever is more.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Final

from durable_core.lines import running_line

log = logging.getLogger("moorings.replay")

_SHORTEST: Final = 0.005
_LONGEST: Final = 0.5
_IDLE_LOOKS: Final = 20
"""Looks at nothing before the thread sleeps until a body runs again."""


class Watch:
    """One body while it runs: written by its thread, read by the watchdog's and back."""

    __slots__ = ("_cpu", "_seen", "_stretch", "home", "limit", "line", "on_blocked", "run_id", "since", "thread", "told")

    def __init__(self, run_id: str, home: str, limit: float, on_blocked: Callable[[str | None, float], None]) -> None:
        self.run_id = run_id
        self.home = home
        self.limit = limit
        self.on_blocked = on_blocked
        self.thread = 0
        self.since = 0.0
        self.line: str | None = None
        self.told = False
        self._cpu = 0.0
        self._seen = (0.0, 0.0)
        """How long it was seen to run, and until when; one value, since two threads use it."""
        self._stretch = max(limit / 2, 2 * _SHORTEST)
        """The most that counts between two looks: a thread that looks four times in the limit was itself not run for longer."""

    def begin(self) -> None:
        """Begin to count; on the body's thread."""
        self.line, self.told = None, False
        self.since = now = time.monotonic()
        self._seen = (0.0, now)
        self._cpu = time.thread_time()

    def look(self) -> float:
        """Look at it, and return for how many seconds it was seen to run."""
        now = time.monotonic()
        seen = self._until(now)
        self._seen = (seen, now)
        return seen

    def held(self) -> float:
        """Return for how many seconds it has held its thread; on that thread."""
        now = time.monotonic()
        if now - self.since <= self.limit:
            return now - self.since
        return max(self._until(now), time.thread_time() - self._cpu)

    def _until(self, now: float) -> float:
        seen, looked = self._seen
        return seen + min(now - looked, self._stretch)


class Watchdog:
    """Look at the bodies that run, and note the line of one that runs for long."""

    def __init__(self) -> None:
        self._running: dict[int, Watch] = {}
        self._awake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def enter(self, watch: Watch) -> Watch | None:
        """Begin to watch a body on this thread; return the one it runs inside of, for `leave`."""
        thread = watch.thread = threading.get_ident()
        outer = self._running.get(thread)
        watch.begin()
        self._running[thread] = watch
        if not self._awake.is_set():
            self._wake()
        return outer

    def leave(self, watch: Watch, outer: Watch | None) -> float:
        """Stop watching it; return for how many seconds it held its thread."""
        if outer is None:
            self._running.pop(watch.thread, None)
        else:
            self._running[watch.thread] = outer
        return watch.held()

    def _wake(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="moorings-watchdog", daemon=True)
                self._thread.start()
        self._awake.set()

    def _look(self) -> None:
        idle = 0
        while True:
            running = list(self._running.values())
            idle = 0 if running else idle + 1
            if idle > _IDLE_LOOKS:
                self._awake.clear()
                if not self._running:  # one that came before the clear saw it set, and woke nobody
                    self._awake.wait()
                else:
                    self._awake.set()
                idle = 0
                continue
            for watch in running:
                self._look_at(watch)
            time.sleep(max(_SHORTEST, min(_LONGEST, *(watch.limit / 4 for watch in running))) if running else _LONGEST / 10)

    def _look_at(self, watch: Watch) -> None:
        seconds = watch.look()
        if watch.told or seconds < watch.limit / 2:
            return
        line = running_line(sys._current_frames().get(watch.thread), watch.home)  # noqa: SLF001 - the only way to see another thread's line
        if self._running.get(watch.thread) is not watch:
            return
        watch.line = line
        if seconds >= watch.limit:
            watch.told = True
            log.warning("workflow %s holds its thread for %.1f s at %s", watch.run_id, seconds, line or "an unknown line")
            watch.on_blocked(line, seconds)


@cache
def watchdog() -> Watchdog:
    """Return the watchdog of this process: threads and their frames are the process's too."""
    return Watchdog()
