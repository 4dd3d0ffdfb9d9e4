"""Inputs of a process that works itself: admitted, and their runs taken by its worker, in one transaction, while it has room.

What lives here: when that is done. What does not: what an input says (starts.py, signals.py), the transaction (the store).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from durable_core.errors import CommitUnknown, LeaseLost, Unavailable
from durable_core.model import Admission, ClaimRequest, Receipt, ToAddress, ToNew, ToRun
from durable_core.store import Store
from durable_core.worker import Worker, WorkerOptions

FIRST_EPOCH: Final = 1
"""That of a run that was taken with its first input."""


_TAKEN: Final = """
    SELECT run_id, epoch FROM moor_run WHERE owner = :owner AND run_id IN (
        SELECT run_id FROM moor_run WHERE run_id = :run_id
        UNION ALL SELECT run_id FROM moor_address WHERE channel = :channel AND address = :address
    )
"""


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
            await self._give_back(admission.target)
            raise
        if claim is not None:
            self._worker.hold(claim)
        return receipt

    async def _give_back(self, target: ToAddress | ToRun | ToNew) -> None:
        """Give a run back that may have been taken: else it would wait until its lease is over."""
        with contextlib.suppress(LeaseLost, Unavailable):
            for run_id, epoch in await self._taken(target):
                if not self._worker.holds(run_id):
                    now = await self._store.now()
                    await self._store.release(run_id, epoch, timer_at=now, seen=0, unused=True)

    async def _taken(self, target: ToAddress | ToRun | ToNew) -> list[tuple[str, int]]:
        """Return the run that an input went to, if this process's worker owns it, and under which epoch."""
        if isinstance(target, ToNew):
            return [(target.new.run_id, FIRST_EPOCH)]
        at, run_id = ((target.channel, target.address), "") if isinstance(target, ToAddress) else (("", ""), target.run_id)
        owner = self._request.owner
        found = await self._store.rows(_TAKEN, {"owner": owner, "run_id": run_id, "channel": at[0], "address": at[1]})
        return [(str(one), int(epoch or 0)) for one, epoch in found]
