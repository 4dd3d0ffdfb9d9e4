"""Inputs of a process that works itself: admitted, and their runs taken by its worker, in one transaction, while it has room.

What lives here: when that is done. What does not: what an input says (starts.py, signals.py), the transaction (the store).
"""

from __future__ import annotations

import asyncio

from durable_core.errors import CommitUnknown
from durable_core.model import Admission, ClaimRequest, Receipt
from durable_core.store import Store
from durable_core.worker import Worker, WorkerOptions


class Beginnings:
    """What is started and signalled in one process whose worker advances runs."""

    def __init__(self, store: Store, worker: Worker, options: WorkerOptions) -> None:
        able = worker.incarnation.abilities
        self._store = store
        self._worker = worker
        self._most = options.concurrency // 2
        """Half of the places are left to what is due."""
        lease_ms = int(options.lease * 1000)
        self._request = ClaimRequest(owner=worker.incarnation.owner, lease_ms=lease_ms, limit=1, abilities=able)
        self._closed = False

    async def admit(self, admission: Admission) -> Receipt:
        """Accept an input; the run that is taken with it is advanced, also if the caller is cancelled meanwhile."""
        worker = self._worker
        if self._closed or worker.alone or worker.busy + len(worker.beginning) >= self._most:
            return await self._store.admit(admission)
        task = asyncio.create_task(self._begin(admission))
        worker.beginning.add(task)
        task.add_done_callback(worker.beginning.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Take no more, and wait for what is under way."""
        self._closed = True
        while under_way := self._worker.beginning:
            await asyncio.wait(under_way)

    async def _begin(self, admission: Admission) -> Receipt:
        try:
            receipt, claim = await self._store.begin(admission, self._request)
        except CommitUnknown:
            self._worker.strays.expect()
            self._worker.kick()
            raise
        if claim is not None:
            self._worker.hold(claim)
        return receipt
