"""Leases: how a worker keeps what it holds, on its loop and beside it.

What lives here: renewing in time, learning what is lost. What does not: taking and giving back (worker.py), SQL (the stores).

On the loop a renewal also brings what came in for a run. While the loop doesn't answer, because a body, a tool or a library
blocks it, the process is as healthy as before, and nobody else is to begin its work anew: then all it holds is prolonged from
another thread, fenced in the same way, for as long as `blocked_limit` says (CORE, Replay 9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from durable_core.errors import DurableError
from durable_core.keeper import Keeper
from durable_core.model import Holdings, Interaction, Lane
from durable_core.store import Store

if TYPE_CHECKING:
    from durable_core.worker import Held, WorkerOptions

log = logging.getLogger("moorings.worker")

_ASKS: Final = 8
"""How often the loop is asked in the shortest lease: the first prolonging comes when half of it is left at least."""


class Leases:
    """Keep runs on the loop; runs, lanes and interactions beside it. The mappings are the worker's own."""

    def __init__(
        self,
        store: Store,
        owner: str,
        options: WorkerOptions,
        *,
        runs: Mapping[str, tuple[Held, asyncio.Task[None]]],
        lanes: Mapping[tuple[str, str], tuple[Lane, asyncio.Task[None]]],
        interactions: Mapping[asyncio.Task[None], Interaction],
    ) -> None:
        self._store = store
        self._owner = owner
        self._options = options
        self._runs = runs
        self._lanes = lanes
        self._interactions = interactions
        every = min(options.lease, options.lane_lease) / _ASKS
        self._keeper = Keeper(self._prolong, every=every, limit=options.blocked_limit, what="leases")

    async def keep(self) -> None:
        """Renew until cancelled."""
        self._keeper.start()
        try:
            while True:
                await asyncio.sleep(self._options.lease / 4)
                try:
                    await self.renew()
                except DurableError as error:
                    log.log(logging.WARNING if error.retryable else logging.ERROR, "renewing leases: %s", error)
                except Exception:
                    log.exception("renewing leases failed")
        finally:
            self._keeper.stop()

    async def renew(self) -> None:
        """Prolong the leases of runs; one that is lost is stopped, one to which something came is told."""
        leases = [(run_id, held.claim.epoch) for run_id, (held, _) in self._runs.items()]
        known = await self._store.renew(self._owner, leases, lease_ms=int(self._options.lease * 1000))
        for run_id, _ in leases:
            entry = self._runs.get(run_id)
            if entry is None:
                continue
            held, task = entry
            if run_id not in known:
                held.lost = True
                task.cancel()
            elif known[run_id] != held.claim.signals:
                held.changed.set()

    # ── on the keeper's thread ──

    def _prolong(self) -> None:
        options = self._options
        self._store.prolong(
            self._owner,
            self._held(),
            lease_ms=int(options.lease * 1000),
            lane_lease_ms=int(options.lane_lease * 1000),
            patience=options.lease / 2,
        )

    def _held(self) -> Holdings:
        # list() of a dict's view is one operation of the interpreter: the loop can't change it half-way
        return Holdings(
            runs=tuple((held.claim.run_id, held.claim.epoch) for held, _ in list(self._runs.values())),
            lanes=tuple((lane.channel, lane.address, lane.epoch) for lane, _ in list(self._lanes.values())),
            interactions=tuple((one.prompt.run_id, one.interaction_id, one.epoch) for one in list(self._interactions.values())),
        )
