"""Waiting for something to become so, without sleeping.

What lives here: a bell that changes ring, and the wait for it. What does not: what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_AGAIN = 0.25
"""What is not told of is looked at this often; seconds."""


class StillWaiting(AssertionError):
    """What a test waited for did not come."""


class Changes:
    """A bell; whoever changes something rings it."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def tell(self) -> None:
        """Wake whoever waits."""
        for event in self._waiting:
            event.set()

    async def until(self, look: Callable[[], T | None], *, seconds: float, story: Callable[[], str] = str) -> T:
        """Return what `look` returns once it is true; it is asked after every change.

        Raises: StillWaiting, with `story()`: what there was instead.
        """
        event = asyncio.Event()
        self._waiting.add(event)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            while not (found := look()):
                left = end - loop.time()
                if left <= 0:
                    raise StillWaiting(f"not so after {seconds:g} s.\n{story()}")
                event.clear()
                try:
                    async with asyncio.timeout(min(left, _LOOK_AGAIN)):
                        await event.wait()
                except TimeoutError:
                    continue
            return found
        finally:
            self._waiting.discard(event)
