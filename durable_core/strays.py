"""Strays: runs that a worker may have taken without knowing, since the answer to its claim was lost on the way.

What lives here: finding them and giving them back; else each would wait until its lease is over. What does not: when a worker
claims (worker.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from durable_core.errors import CommitUnknown, LeaseLost
from durable_core.model import Claim, ClaimRequest
from durable_core.store import Store

if TYPE_CHECKING:
    from durable_core.worker import Held

_OWNED: Final = "SELECT run_id, epoch FROM moor_run WHERE owner = :owner"


class Strays:
    """The strays of one worker. What it holds and what is beginning are the worker's own collections."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        held: Mapping[str, tuple[Held, asyncio.Task[None]]],
        beginning: Collection[asyncio.Task[Any]],
    ) -> None:
        self._store = store
        self._owner = owner
        self._held = held
        self._beginning = beginning
        self._expected = False

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        """Claim as the store does. Raises: what that does."""
        try:
            return await self._store.claim(request)
        except CommitUnknown:
            self.expect()
            raise

    def expect(self) -> None:
        """There may be some from now on."""
        self._expected = True

    async def give_back(self) -> None:
        """Give back what may be there, uncharged; call it while no claim is under way.

        Raises:
            Unavailable: the database is still away; call it again.
        """
        if not self._expected:
            return
        self._expected = False
        try:
            owned = await self._store.rows(_OWNED, {"owner": self._owner})
            if under_way := [task for task in self._beginning if not task.done()]:  # they may be about to hold what was seen
                await asyncio.wait(under_way)
            now = await self._store.now()
            for run_id, epoch in ((str(run_id), int(epoch or 0)) for run_id, epoch in owned):
                entry = self._held.get(run_id)
                if entry is None or entry[0].claim.epoch < epoch:
                    with contextlib.suppress(LeaseLost):
                        await self._store.release(run_id, epoch, timer_at=now, seen=0, unused=True)
        except BaseException:
            self._expected = True
            raise
