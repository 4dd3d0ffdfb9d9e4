"""Keeper: does what has to be done in time from a thread of its own, while the event loop doesn't answer.

What lives here: asking the loop, and acting beside it when it is silent. What does not: what is done (leases.py, a store's).
It helps while a body, a tool or a library blocks the loop. Where one holds the interpreter's lock too, no thread runs at all.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from durable_core.errors import DurableError
from durable_core.lines import blocked_line

log = logging.getLogger("moorings.worker")


class Keeper:
    """Ask the loop every so often whether it is there; act, again and again, as long as it isn't.

    The first act comes at most twice `every` after the loop was last heard of. A loop that is silent for longer than `limit`
    is given up: what never comes back must not be kept for ever. Times in seconds.
    """

    def __init__(self, act: Callable[[], None], *, every: float, limit: float = math.inf, what: str) -> None:
        self._act = act
        self._every = every
        self._limit = limit
        self._what = what
        self._answered = threading.Event()
        self._over = threading.Event()
        """Of the thread that was started last."""

    def start(self) -> None:
        """Begin to ask the running loop, which is to be this thread's."""
        self._answered.set()
        self._over = threading.Event()
        watched = (asyncio.get_running_loop(), threading.get_ident(), self._over)
        threading.Thread(target=self._watch, args=watched, name="moorings-keeper", daemon=True).start()

    def stop(self) -> None:
        """Ask no more; an act that is under way comes to its end by itself."""
        self._over.set()

    # ── on the thread ──

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int, over: threading.Event) -> None:
        asked_at, told, given_up = 0.0, False, False
        while not over.wait(self._every) and not loop.is_closed():
            if self._answered.is_set():
                self._answered.clear()
                asked_at, told, given_up = time.monotonic(), False, False
                with suppress(RuntimeError):  # it is closed just now
                    loop.call_soon_threadsafe(self._answered.set)
            elif loop.is_running():  # one that was left without being closed has nothing to be kept
                silent = time.monotonic() - asked_at
                if silent <= self._limit:
                    told = told or self._tell(silent, thread)
                    self._try()
                elif not given_up:
                    given_up = True
                    log.error("the event loop has not answered for %.1f s; its %s are kept no longer", silent, self._what)

    def _tell(self, silent: float, thread: int) -> bool:
        line = blocked_line(sys._current_frames().get(thread)) or "an unknown line"  # noqa: SLF001 - see watchdog.py
        log.warning(
            "the event loop has not answered for %.1f s, it is at %s; its %s are kept beside it", silent, line, self._what
        )
        return True

    def _try(self) -> None:
        try:
            self._act()
        except DurableError as error:
            log.warning("keeping %s beside a silent event loop: %s", self._what, error)
        except Exception:
            log.exception("keeping %s beside a silent event loop failed", self._what)
