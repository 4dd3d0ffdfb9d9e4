"""Beginning runs where they are started: admitted and taken by this process's worker in one transaction, while it has room.

What lives here: when that is done. What does not: what a start says (starts.py), the transaction (the store).
"""

from __future__ import annotations

import asyncio

from durable_core.model import Admission, ClaimRequest, Receipt
from durable_core.store import Store
from durable_core.worker import Worker


class Beginnings:
    """The starts of one process whose worker advances runs."""

    def __init__(self, store: Store, worker: Worker, *, lease: float) -> None:
        able = worker.incarnation.abilities
        self._store = store
        self._worker = worker
        self._request = ClaimRequest(owner=worker.incarnation.owner, lease_ms=int(lease * 1000), limit=1, abilities=able)
        self._tasks: set[asyncio.Task[Receipt]] = set()
        self._closed = False

    async def admit(self, admission: Admission) -> Receipt:
        """Accept the first input of a new run; what is taken with it is advanced, also if the caller is cancelled meanwhile."""
        if self._closed or self._worker.spare <= len(self._tasks):
            return await self._store.admit(admission)
        task = asyncio.create_task(self._begin(admission))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Take no more, and wait for what is under way."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _begin(self, admission: Admission) -> Receipt:
        receipt, claim = await self._store.begin(admission, self._request)
        if claim is not None:
            self._worker.hold(claim)
        return receipt
