"""Watching: telling this process's listeners what changed, and hearing it from other processes (CORE 20).

What lives here: listeners, the bell, the safety net. What does not: what is done about a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from durable_core.errors import DurableError
from durable_core.store import Listener

LOOK_SECONDS: Final = 0.25
_PATIENCE: Final = 4
"""Looks after which a change that a bell may or may not have announced is told all the same."""


class Watch:
    """Listeners, told on the event loop."""

    def __init__(self, version: Callable[[], Awaitable[int]] | None) -> None:
        self._version = version
        """A number that changes with other processes' commits; None when there are no other processes."""
        self._listeners: dict[object, Listener] = {}
        self._announced = False
        self._looking: asyncio.Task[None] | None = None

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener from now on; returns the way to stop."""
        token = object()
        self._listeners[token] = listener
        if self._looking is None and self._version is not None:
            self._looking = asyncio.get_running_loop().create_task(self._look(self._version))

        def stop() -> None:
            self._listeners.pop(token, None)
            if not self._listeners:
                self._stop_looking()

        return stop

    def tell(self, run_ids: Sequence[str] | None) -> None:
        """Tell all listeners."""
        for listener in tuple(self._listeners.values()):
            listener(run_ids)

    def rung(self, run_ids: Sequence[str] | None) -> None:
        """Another process says what it changed."""
        self._announced = True
        self.tell(run_ids)

    async def close(self) -> None:
        """Forget all listeners."""
        self._listeners.clear()
        looking = self._looking
        self._stop_looking()
        if looking is not None:
            with suppress(asyncio.CancelledError):
                await looking

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self, version: Callable[[], Awaitable[int]]) -> None:
        """Tell of changes that no bell announced.

        A look that finds a change and a bell can't know whether the bell meant all of it. It is told as "anything"
        once things are quiet, or after a second: late, seldom, but never not at all.
        """
        seen = await self._version_or(version, None)
        doubt = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            current = await self._version_or(version, seen)
            announced, self._announced = self._announced, False
            changed, seen = current != seen, current
            if changed and announced:
                doubt += 1
            if (changed and not announced) or (doubt and not changed) or doubt >= _PATIENCE:
                doubt = 0
                self.tell(None)

    async def _version_or(self, version: Callable[[], Awaitable[int]], fallback: int | None) -> int | None:
        try:
            return await version()
        except DurableError:
            return fallback
