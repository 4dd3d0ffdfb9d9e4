"""A worker: bounded, fair to its neighbours, first to notice the dead, last to lose anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from durable_core.clock import ManualClock
from durable_core.errors import CommitUnknown, Unavailable
from durable_core.model import Claim, ClaimRequest, Incarnation, Interaction, Lane, Sent
from durable_core.store import Store
from durable_core.testing.acts import claims, park
from durable_core.testing.builders import START_MS, message, post, step_commit, to_address
from durable_core.worker import PORTION, Held, Worker, WorkerOptions
from tests.durable_core.conformance.sqlite import memory_store


@dataclass
class Recorded:
    """Duties that note what they were given."""

    store: Store
    act: Callable[[Held], Awaitable[None]]
    running: set[str] = field(default_factory=set)
    most: int = 0
    seen: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def advance(self, held: Held) -> None:
        run_id = held.claim.run_id
        self.running.add(run_id)
        self.most = max(self.most, len(self.running))
        self.seen.append(run_id)
        self.moved.set()
        try:
            await self.act(held)
        finally:
            self.running.discard(run_id)
            self.moved.set()

    async def send(self, lane: Lane) -> None:
        for place, item in enumerate(lane.items):
            self.sent.append(item.delivery_id)
            last = place == len(lane.items) - 1
            await self.store.finish(lane, "w1", Sent(delivery_id=item.delivery_id, ref="r", release=last))
        self.moved.set()

    async def evaluate(self, interaction: Interaction) -> None:
        raise AssertionError(interaction)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():
                self.moved.clear()
                await self.moved.wait()


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest_asyncio.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    made = await memory_store(clock)
    await made.open()
    yield made
    await made.close()


async def admit(store: Store, count: int) -> list[str]:
    return [(await store.admit(message(to_address(f"a{n}")))).run_id for n in range(count)]


def worker(store: Store, duties: Recorded, **options: Any) -> Worker:
    return Worker(store, duties, owner="w1", deployment="d1", options=WorkerOptions(poll=0.05, **options))


def parking(store: Store) -> Callable[[Held], Awaitable[None]]:
    async def act(held: Held) -> None:
        await park(store, held.claim)

    return act


async def test_no_more_runs_at_once_than_it_has_room_for_and_all_in_the_end(store: Store) -> None:
    gate = asyncio.Event()

    async def act(held: Held) -> None:
        await gate.wait()
        await park(store, held.claim)

    duties = Recorded(store, act)
    runs = await admit(store, 7)
    one = worker(store, duties, concurrency=3)
    await one.start()
    await duties.until(lambda: len(duties.running) == 3)
    assert one.busy == 3
    gate.set()
    await duties.until(lambda: len(duties.seen) == 7 and not duties.running)
    assert duties.seen == runs
    assert duties.most == 3
    await one.drain()


async def test_a_message_for_a_held_run_raises_its_flag_and_no_other(store: Store) -> None:
    first, second = await admit(store, 2)
    flags: dict[str, asyncio.Event] = {}

    async def act(held: Held) -> None:
        flags[held.claim.run_id] = held.changed
        await asyncio.Event().wait()

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(flags) == 2)
    for flag in flags.values():
        flag.clear()
    await store.admit(message(first))
    async with asyncio.timeout(10):
        await flags[first].wait()
    assert not flags[second].is_set()
    await one.drain(0)


async def test_a_drain_lets_work_finish_and_gives_the_rest_back_uncharged(store: Store) -> None:
    first, second = await admit(store, 2)
    gate = asyncio.Event()

    async def act(held: Held) -> None:
        if held.claim.run_id == second:
            try:
                await asyncio.Event().wait()
            finally:
                await store.release(second, held.claim.epoch, timer_at=await store.now(), seen=1, unused=False)
        await gate.wait()
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(duties.running) == 2)
    gate.set()
    await one.drain(0.2)
    assert duties.running == set()
    (claim,) = await claims(store, "w2")
    assert (claim.run_id, claim.charged, claim.interrupted) == (second, 0, False)
    assert (await store.run(first)).step_no == 1


async def test_a_fault_outside_of_a_step_is_charged_and_tried_again_later(store: Store, clock: ManualClock) -> None:
    (run,) = await admit(store, 1)
    attempts: list[int] = []

    async def act(held: Held) -> None:
        attempts.append(held.claim.charged)
        if held.claim.charged < 2:
            raise RuntimeError("a fault")
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    for tries in (1, 2, 3):
        await duties.until(lambda tries=tries: len(attempts) == tries and not duties.running)  # type: ignore[misc]
        clock.advance(timedelta(minutes=1))
        one.kick()
    assert attempts == [0, 1, 2]
    assert (await store.run(run)).step_no == 1
    await one.drain()


async def test_a_store_that_does_not_answer_charges_nothing(store: Store, clock: ManualClock) -> None:
    await admit(store, 1)
    attempts: list[int] = []

    async def act(held: Held) -> None:
        attempts.append(held.claim.charged)
        if len(attempts) < 6:
            raise Unavailable("locked")
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    for tries in range(1, 7):
        await duties.until(lambda tries=tries: len(attempts) == tries and not duties.running)  # type: ignore[misc]
        clock.advance(timedelta(minutes=1))
        one.kick()
    assert attempts == [0] * 6
    await one.drain()


async def test_a_run_that_crashed_its_workers_runs_alone_and_the_others_before_it(store: Store) -> None:
    bad, good = await admit(store, 2)
    for _ in range(2):
        await store.enrol(Incarnation(owner="dead", deployment="d1"))
        taken = {claim.run_id: claim for claim in await claims(store, "dead")}
        assert bad in taken
        await store.release(good, taken[good].epoch, timer_at=await store.now(), seen=1, unused=True)
        await store.reap("dead")
    together: list[set[str]] = []

    async def act(held: Held) -> None:
        together.append(set(duties.running))
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(duties.seen) == 2 and not duties.running)
    assert duties.seen[-1] == bad
    assert together[-1] == {bad}
    assert good in duties.seen
    await one.drain()


async def test_a_run_that_comes_in_while_nothing_was_found_keeps_no_other_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    take = store.claim
    rounds: list[bool] = []

    async def claim(request: ClaimRequest) -> list[Claim]:
        found = await take(request)
        rounds.append(request.alone)
        if rounds != [False]:
            return found
        for one in found:  # as if another had been faster
            await park(store, one)
        await admit(store, 1)  # between the two looks
        return []

    async def act(held: Held) -> None:
        await gate.wait()
        await park(store, held.claim)

    await admit(store, 1)
    monkeypatch.setattr(store, "claim", claim)
    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(duties.running) == 1)
    assert rounds[:2] == [False, True]
    await admit(store, 2)
    await duties.until(lambda: len(duties.running) == 2)
    gate.set()
    await one.drain()


async def test_what_a_dead_neighbour_held_is_taken_at_start(store: Store) -> None:
    (run,) = await admit(store, 1)
    await store.enrol(Incarnation(owner="inc_dead", deployment="d1"))
    assert len(await claims(store, "inc_dead", lease_ms=3_600_000)) == 1
    seen: list[tuple[bool, int]] = []

    async def act(held: Held) -> None:
        seen.append((held.claim.interrupted, held.claim.attempt))
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: bool(seen) and not duties.running)
    assert seen == [(True, 2)]
    assert (await store.run(run)).step_no == 1
    await one.drain()


async def test_what_was_taken_when_the_answer_got_lost_waits_for_no_lease(store: Store) -> None:
    runs = await admit(store, 3)
    take, read, release = store.claim, store.rows, store.release
    given_back: list[tuple[str, int]] = []

    async def lost(request: ClaimRequest) -> list[Claim]:
        store.claim = take  # type: ignore[method-assign]
        assert len(await take(request)) == 3
        raise CommitUnknown("the answer was lost")

    async def away(*args: Any) -> Any:
        store.rows = read  # type: ignore[method-assign]
        raise Unavailable("the database is away")

    async def noting(run_id: str, epoch: int, **how: Any) -> None:
        given_back.append((run_id, epoch))
        await release(run_id, epoch, **how)

    store.claim, store.rows, store.release = lost, away, noting  # type: ignore[method-assign, assignment]
    attempts: list[tuple[int, int]] = []

    async def act(held: Held) -> None:
        attempts.append((held.claim.attempt, held.claim.charged))
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(duties.seen) == 3 and not duties.running)
    assert sorted(duties.seen) == sorted(runs)
    assert sorted(given_back) == sorted((run_id, 1) for run_id in runs)
    assert attempts == [(1, 0)] * 3
    await one.drain()


async def test_input_gets_its_place_while_a_bulk_of_lost_runs_is_taken_back(store: Store, clock: ManualClock) -> None:
    gate = asyncio.Event()
    lost = await admit(store, 8)
    await store.enrol(Incarnation(owner="inc_dead", deployment="d1"))
    assert len(await claims(store, "inc_dead", lease_ms=3_600_000)) == 8
    clock.advance(timedelta(seconds=1))

    async def act(held: Held) -> None:
        if held.claim.run_id in lost:
            await gate.wait()
        await park(store, held.claim)

    duties = Recorded(store, act)
    one = worker(store, duties, concurrency=4)
    await one.start()
    await duties.until(lambda: len(duties.running) == 3)
    fresh = (await store.admit(message(to_address("somebody waits")))).run_id
    await duties.until(lambda: fresh in duties.seen and fresh not in duties.running)
    assert (set(duties.seen) - {fresh}) < set(lost)
    assert duties.most <= 4
    gate.set()
    await duties.until(lambda: len(duties.seen) == 9 and not duties.running)
    await one.drain()


@pytest.mark.parametrize(("places", "portion"), [(1, 1), (2, 1), (8, 6), (64, PORTION)])
async def test_lost_runs_are_taken_back_in_portions_whatever_room_there_is(
    store: Store, clock: ManualClock, places: int, portion: int
) -> None:
    lost = await admit(store, 20)
    await store.enrol(Incarnation(owner="inc_dead", deployment="d1"))
    assert len(await claims(store, "inc_dead", lease_ms=3_600_000, limit=20)) == 20
    clock.advance(timedelta(seconds=1))
    portions: list[int] = []
    take = store.claim

    async def claim(request: ClaimRequest) -> list[Claim]:
        found = await take(request)
        portions.append(len(found))
        return found

    store.claim = claim  # type: ignore[method-assign]
    duties = Recorded(store, parking(store))
    one = worker(store, duties, concurrency=places)
    await one.start()
    await duties.until(lambda: len(duties.seen) == 20 and not duties.running)
    assert sorted(duties.seen) == sorted(lost)
    assert max(portions) == portion
    await one.drain()


async def test_what_works_off_what_is_due_keeps_no_place(store: Store, clock: ManualClock) -> None:
    lost = await admit(store, 8)
    await store.enrol(Incarnation(owner="inc_dead", deployment="d1"))
    assert len(await claims(store, "inc_dead", lease_ms=3_600_000)) == 8
    clock.advance(timedelta(seconds=1))
    duties = Recorded(store, parking(store))
    assert await worker(store, duties, concurrency=4).until_idle() == 8
    assert duties.most == 4
    assert sorted(duties.seen) == sorted(lost)


async def test_what_is_owed_is_sent_once_in_order(store: Store) -> None:
    await admit(store, 1)

    async def act(held: Held) -> None:
        posts = tuple(post(text=str(n)) for n in range(3))
        await store.commit(step_commit(held.claim, outbox=posts, release=True))
        owed.extend(draft.delivery_id for draft in posts)

    owed: list[str] = []
    duties = Recorded(store, act)
    one = worker(store, duties)
    await one.start()
    await duties.until(lambda: len(duties.sent) == 3)
    assert duties.sent == owed
    await one.drain()
