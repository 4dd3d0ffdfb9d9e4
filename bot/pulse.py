"""Whether the database answers and can be written, for whoever asks if work would be taken.

What lives here: asking it, at most once a second however many want to know. What does not: who asks (server/health.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from durable_core.errors import DurableError
from durable_core.store import Store

PATIENCE_SECONDS: Final = 3.0
"""What takes longer is no answer: a server that is frozen says nothing at all."""
FRESH_SECONDS: Final = 1.0


@dataclass(slots=True)
class Pulse:
    """The last answer, and the question that is under way."""

    store: Store
    _asking: asyncio.Task[bool] | None = None
    _beats: bool = False
    _until: float = 0.0

    async def beats(self) -> bool:
        """Whether the database answers and takes writes, or did within the last second."""
        if asyncio.get_running_loop().time() < self._until:
            return self._beats
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="moorings-pulse")
        return await asyncio.shield(self._asking)  # who asked first may have gone: the answer is for the others too

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.store.probe()
            self._beats = True
        except (DurableError, TimeoutError):
            self._beats = False
        finally:
            self._asking = None
        self._until = asyncio.get_running_loop().time() + FRESH_SECONDS
        return self._beats
