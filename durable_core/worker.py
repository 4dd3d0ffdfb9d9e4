"""A worker: claims due work with bounded concurrency, takes back what the dead held, drains.

What lives here: when to claim and how to let go; purging goes on beside it. What does not: keeping what was claimed (leases.py),
what a run, a lane or an interaction does next (the layer above).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from durable_core import internal
from durable_core.errors import DurableError, LeaseLost, Unavailable
from durable_core.failpoints import hit
from durable_core.leases import Leases
from durable_core.model import ALONE_AFTER_CRASHES, INTERNAL, Abilities, Claim, ClaimRequest, Incarnation, Interaction, Lane
from durable_core.retention import PurgeOptions, Purger
from durable_core.store import Store
from durable_core.strays import Strays

log = logging.getLogger("moorings.worker")

PORTION: Final = 16
"""Runs that lost their worker are taken up to so many at a time: who waits for an answer stands behind no more of them."""


@dataclass(slots=True)
class Held:
    """A run while this worker has it: the claim, and a flag raised when something about the run changed."""

    claim: Claim
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    recovers: bool = False
    """Taken after its worker had died, or had lost it."""


class Duties(Protocol):
    """What the layer above does with what a worker takes."""

    async def advance(self, held: Held) -> None:
        """Advance a run until it is released."""

    async def send(self, lane: Lane) -> None:
        """Send a lane's items in order and give it back."""

    async def evaluate(self, interaction: Interaction) -> None:
        """Decide who may answer, then settle or refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Bounds of one worker; times in seconds."""

    concurrency: int = 64
    lanes: int = 32
    interactions: int = 4
    lease: float = 60.0
    lane_lease: float = 45.0
    blocked_limit: float = 600.0
    """How long an event loop that doesn't answer, since something blocks it, keeps what it holds; then it is left to others."""
    poll: float = 1.0
    """Safety net under the wake-up; also how soon a dead neighbour's work is noticed."""
    purge: PurgeOptions = field(default_factory=PurgeOptions)
    settle: float = 0.02
    """How long changes of runs at work here gather before they are looked at: most of them are this worker's own commits."""


class Worker:
    """One incarnation at work on a store."""

    def __init__(
        self,
        store: Store,
        duties: Duties,
        *,
        owner: str,
        deployment: str,
        abilities: Abilities | None = None,
        options: WorkerOptions | None = None,
    ) -> None:
        self._store = store
        self._duties = duties
        self._options = options or WorkerOptions()
        self._abilities = internal.able(abilities or Abilities())
        self.incarnation = Incarnation(
            owner=owner, deployment=deployment, abilities=self._abilities, host=socket.gethostname(), pid=os.getpid()
        )
        self._purger = Purger(store, self._options.purge)
        self._wake = asyncio.Event()
        self._held: dict[str, tuple[Held, asyncio.Task[None]]] = {}
        self._lanes: dict[tuple[str, str], tuple[Lane, asyncio.Task[None]]] = {}
        self._interactions: dict[asyncio.Task[None], Interaction] = {}
        self._leases = Leases(store, owner, self._options, runs=self._held, lanes=self._lanes, interactions=self._interactions)
        self.alone = False  # whether one that crashed its workers may be here: nothing begins beside it
        self.beginning: set[asyncio.Task[object]] = set()
        """Starts under way that may bring their runs along (engine/beginning.py)."""
        self.strays = Strays(store, owner, held=self._held, beginning=self.beginning)
        self._claimed = 0
        self._limit: int | None = None
        self._shares = True  # whether places are kept for what somebody waits for
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._soon: asyncio.TimerHandle | None = None

    # ── life ──

    async def start(self) -> None:
        """Enrol, take back what the dead held, begin to claim."""
        await self._store.enrol(self.incarnation)
        self._unwatch = self._store.watch(self._on_change)
        await self._reap((await self._store.due(self.incarnation.owner, self._abilities)).dead)
        self._loops = [
            asyncio.create_task(self._forever(self._claim_due, "claim"), name="moorings-claim"),
            asyncio.create_task(self._leases.keep(), name="moorings-renew"),
            asyncio.create_task(self._purger.forever(), name="moorings-purge"),
        ]

    async def until_idle(self, limit: int | None = None, *, once: bool = False) -> int:
        """In place of `start`: do what is due, at most `limit` runs, then stop; how often a run was taken.

        With `once`, what comes due meanwhile is left for another time.

        Raises:
            Unavailable: the database's own; what was taken is given back.
        """
        owner = self.incarnation.owner
        self._limit, self._shares = limit, False
        await self._store.enrol(self.incarnation)
        self._unwatch = self._store.watch(self._on_change)
        self._loops = [asyncio.create_task(self._leases.keep(), name="moorings-renew")]
        try:
            await self._reap((await self._store.due(owner, self._abilities)).dead)
            while True:
                self._wake.clear()
                pause = await self._claim_due()
                if once and self._claimed:
                    self._limit = self._claimed
                if pause and not self._work() and not self._wake.is_set():
                    await self._purger.once()
                    return self._claimed
                if pause:
                    await self._pause(pause)
        finally:
            await self.drain(0)

    async def drain(self, seconds: float = 30.0) -> None:
        """Stop claiming, let work finish for `seconds`, release the rest uncharged."""
        self._stopping = True
        for loop in (*self._loops[:1], *self._loops[2:]):  # leases are renewed to the end
            loop.cancel()
        work = self._work()
        if work and seconds > 0:
            await asyncio.wait(work, timeout=seconds)
        late = [task for task in work if not task.done()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=5)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._unwatch()
        if self._soon is not None:
            self._soon.cancel()
        try:
            await self._store.withdraw(self.incarnation.owner)
        except DurableError as error:
            log.warning("this worker's end can't be written down, others see it by its death: %s", error)

    def _work(self) -> list[asyncio.Task[None]]:
        return [task for _, task in (*self._held.values(), *self._lanes.values())] + list(self._interactions)

    def kick(self) -> None:
        """Look for due work now."""
        self._wake.set()

    @property
    def purged(self) -> int:
        """How many runs' content this worker has deleted since its start, their retention being over."""
        return self._purger.purged

    @property
    def busy(self) -> int:
        """How many runs are being advanced."""
        return len(self._held)

    # ── hearing of changes ──

    def _on_change(self, run_ids: Sequence[str] | None) -> None:
        elsewhere = run_ids is None
        for run_id in self._held if run_ids is None else run_ids:
            entry = self._held.get(run_id)
            if entry is None:
                elsewhere = True
            else:
                entry[0].changed.set()
        if elsewhere:
            self._wake.set()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(self._options.settle, self._wake_soon)

    def _wake_soon(self) -> None:
        self._soon = None
        self._wake.set()

    # ── claiming ──

    async def _forever(self, turn: Callable[[], Awaitable[float]], name: str) -> None:
        """Repeat `turn`; it says after how many seconds to look again without a wake-up."""
        while not self._stopping:
            self._wake.clear()
            try:
                pause = await turn()
            except DurableError as error:
                log.log(logging.WARNING if error.retryable else logging.ERROR, "%s: %s; looking again", name, error)
                pause = self._options.poll
            except Exception:
                log.exception("%s failed; looking again", name)
                pause = self._options.poll
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        # not wait_for: before Python 3.12 it swallows a cancellation that comes together with the wake-up (cpython 86296)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _claim_due(self) -> float:
        """Take what is due and what there is room for; the seconds until something else is due."""
        await self.strays.give_back()
        due = await self._store.due(self.incarnation.owner, self._abilities)
        if due.dead:
            await self._reap(due.dead)
            return 0.0
        took = 0
        # a lease that is over, of one who is alive but frozen, is due as well
        if due.run_at is not None and due.run_at <= due.now:
            took += await self._claim_runs()
        if due.lane_at is not None and due.lane_at <= due.now:
            took += await self._claim_lanes()
        if due.interaction_at is not None and due.interaction_at <= due.now:
            took += await self._take_interactions()
        if took:
            return 0.0
        # what is due but not takable here (no room, taken meanwhile) is looked at again when something changes
        later = [at - due.now for at in (due.run_at, due.lane_at, due.interaction_at) if at is not None and at > due.now]
        return min([self._options.poll, *(wait / 1000 for wait in later)])

    async def _claim_runs(self) -> int:
        room = self._options.concurrency - len(self._held) - len(self.beginning)
        if self._limit is not None:
            room = min(room, self._limit - self._claimed)
        if room <= 0 or self.alone:
            return 0
        owner, lease_ms = self.incarnation.owner, int(self._options.lease * 1000)
        recovering = self._room_to_recover()
        request = ClaimRequest(owner=owner, lease_ms=lease_ms, limit=room, abilities=self._abilities, recovering=recovering)
        claims = await self.strays.claim(request)
        if not claims and not self._held and not self.beginning:
            self.alone = True  # nothing begins meanwhile
            try:
                claims = await self.strays.claim(replace(request, limit=1, alone=True))
            finally:
                self.alone = any(claim.crashes >= ALONE_AFTER_CRASHES for claim in claims)  # others may have come in meanwhile
        self._claimed += len(claims)
        for claim in claims:
            self.hold(claim)
        return len(claims)

    def _room_to_recover(self) -> int | None:
        """Of the places a quarter is kept from runs that lost their worker; whoever works off what is due, keeps none."""
        if not self._shares:
            return None
        most = self._options.concurrency * 3 // 4 or 1
        return min(PORTION, max(0, most - sum(held.recovers for held, _ in self._held.values())))

    def hold(self, claim: Claim) -> None:
        """Advance a run that was taken."""
        hit("claim.after")
        stale = self._held.get(claim.run_id)
        if stale is not None:  # its lease ran out unnoticed, while this loop was blocked
            stale[0].lost = True
            stale[1].cancel()
        held = Held(claim, recovers=claim.interrupted)
        self._held[claim.run_id] = (held, asyncio.create_task(self._advance(held), name=f"run-{claim.run_id}"))

    async def _advance(self, held: Held) -> None:
        run_id = held.claim.run_id
        try:
            await self._duties.advance(held)
        except LeaseLost:
            log.info("lease of %s is lost; another worker has it", run_id)
        except asyncio.CancelledError:
            if not self._stopping and not held.lost:
                raise
        except Unavailable as error:
            log.warning("%s: %s; it is given back and tried again", run_id, error)
            await self._give_back(held, charged=False)
        except Exception:
            log.exception("advancing %s failed outside of its step", run_id)
            await self._give_back(held, charged=True)
        finally:
            if run_id in self._held and self._held[run_id][0] is held:
                del self._held[run_id]
            self.alone = False
            self._wake.set()

    async def _give_back(self, held: Held, *, charged: bool) -> None:
        """Return a run to be tried again a little later: charged for a fault of code, not for a store that didn't answer."""
        claim = held.claim
        seen = claim.signals.inbox_seq
        while not self._stopping:
            try:
                later = await self._store.now() + 1000 * (claim.charged + 1)
                if charged:
                    await self._store.charge(claim.run_id, claim.epoch, error="internal error", retry_at=later, seen=seen)
                else:
                    await self._store.release(claim.run_id, claim.epoch, timer_at=later, seen=seen, unused=False)
            except LeaseLost:
                return
            except Unavailable:
                await asyncio.sleep(self._options.poll)
            except DurableError as error:
                log.error("%s can't be given back, its lease has to be over first: %s", claim.run_id, error)  # noqa: TRY400 - it says it
                return
            else:
                return

    # ── lanes and interactions ──

    async def _claim_lanes(self) -> int:
        room = self._options.lanes - len(self._lanes)
        if room <= 0:
            return 0
        owner, lease_ms = self.incarnation.owner, int(self._options.lane_lease * 1000)
        lanes = await self._store.claim_lanes(owner, limit=room, lease_ms=lease_ms, channels=self._abilities.channels)
        for lane in lanes:
            key = (lane.channel, lane.address)
            task = asyncio.create_task(self._guard(partial(self._send, lane), f"lane {lane.channel}"))
            self._lanes[key] = (lane, task)
            task.add_done_callback(lambda _, key=key: self._lane_done(key))  # type: ignore[misc]
        return len(lanes)

    async def _send(self, lane: Lane) -> None:
        try:
            if lane.channel == INTERNAL:
                await internal.deliver(self._store, lane, self.incarnation.owner)
            else:
                await self._duties.send(lane)
        except asyncio.CancelledError:
            with contextlib.suppress(LeaseLost, Unavailable):
                await self._store.release_lane(lane, self.incarnation.owner)
            raise

    def _lane_done(self, key: tuple[str, str]) -> None:
        self._lanes.pop(key, None)
        self._wake.set()

    async def _take_interactions(self) -> int:
        room = self._options.interactions - len(self._interactions)
        if room <= 0:
            return 0
        lease_ms = int(self._options.lane_lease * 1000)
        taken = await self._store.take_interactions(self.incarnation.owner, limit=room, lease_ms=lease_ms)
        for interaction in taken:
            task = asyncio.create_task(self._guard(partial(self._duties.evaluate, interaction), "interaction"))
            self._interactions[task] = interaction
            task.add_done_callback(self._interaction_done)
        return len(taken)

    def _interaction_done(self, task: asyncio.Task[None]) -> None:
        self._interactions.pop(task, None)
        self._wake.set()

    async def _guard(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        try:
            await work()
        except LeaseLost:
            log.info("%s: lease lost; another worker has it", what)
        except Unavailable as error:
            log.warning("%s: %s", what, error)
        except Exception:
            log.exception("%s failed; it is taken again when its lease is over", what)

    # ── the dead ──

    async def _reap(self, dead: Sequence[str]) -> None:
        """Take back what dead incarnations hold; a lease is not waited for (CORE 22)."""
        for owner in dead:
            log.info("took back %d runs of dead worker %s", await self._store.reap(owner), owner)
