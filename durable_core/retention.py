"""Retention as a duty of a worker: content that has been kept long enough goes, a batch at a time.

What lives here: when to purge and how much at once. What does not: what is deleted (each store's retention module), how long an
app keeps content (the layer above says so when it makes a run).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NoReturn

from durable_core.errors import Unavailable
from durable_core.store import Store

log = logging.getLogger("moorings.retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOptions:
    """How gently content is deleted; times in seconds."""

    batch: int = 50
    """Runs a transaction."""
    pause: float = 1.0
    """At least so long between two batches: work comes first."""
    idle: float = 60.0
    """How long to rest when nothing was left to delete."""


class Purger:
    """Deletes what is over. Any number of processes may do so at once: what one has deleted the next doesn't find."""

    def __init__(self, store: Store, options: PurgeOptions | None = None) -> None:
        self._store = store
        self._options = options or PurgeOptions()
        self.purged = 0
        """How many runs' content this process has deleted."""

    async def forever(self) -> NoReturn:
        """Delete batch by batch until cancelled; a store that doesn't answer is asked again later."""
        wait = self._options.pause
        while True:
            await asyncio.sleep(wait)
            try:
                wait = await self.turn()
            except Unavailable as error:
                log.warning("content that is over can't be deleted now: %s", error)
                wait = self._options.idle
            except Exception:
                log.exception("deleting content that is over failed; trying again later")
                wait = self._options.idle

    async def once(self, batches: int = 20) -> None:
        """Delete what is over now, at most so many batches: for who doesn't stay."""
        for _ in range(batches):
            if await self.turn() == self._options.idle:
                return

    async def turn(self) -> float:
        """Delete one batch; return how long to rest before the next."""
        gone = await self._store.purge(limit=self._options.batch)
        if not gone:
            return self._options.idle
        self.purged += len(gone)
        log.info("deleted the content of %d ended runs, %d since this process began", len(gone), self.purged)
        return self._options.pause if len(gone) >= self._options.batch else self._options.idle
