"""Who can read what, and from when on a run is stranded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from durable_core import versions
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing
from durable_core.errors import Stranded
from durable_core.listing import Which, is_dormant, list_owed, list_runs, retire
from durable_core.model import Abilities, Buried, Incarnation, Phase, Run, RunKind, RunStatus
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.stranding import QUIET_MS, Reader, Strandings, readers, unread_since
from durable_core.testing.acts import claim_one, lane_one, parked
from durable_core.testing.builders import event, message, post, step_commit, to_address
from tests.durable_core.conformance.sqlite import KEYS

MINUTE = 60_000
NEXT = versions.CURRENT_SPEC + 1
OLD, NEW = Abilities(code="old"), Abilities(current=NEXT, code="new")
START = 1_700_000_000_000


def reader(**changed: int | None) -> Reader:
    one = Reader(
        deployment="d",
        min_readable=1,
        current=2,
        code="c",
        workflows=("order",),
        started_at=0,
        heartbeat=100 * MINUTE,
        gone_at=None,
    )
    return replace(one, **changed)  # type: ignore[arg-type]


def test_a_reader_is_told_by_format_code_and_workflow() -> None:
    assert reader().reads(1, not_code=None, workflow=None)
    assert reader().reads(2, not_code="other", workflow="order")
    assert not reader().reads(3, not_code=None, workflow=None)
    assert not reader(min_readable=2).reads(1, not_code=None, workflow=None)
    assert not reader().reads(1, not_code="c", workflow=None)
    assert not reader().reads(1, not_code=None, workflow="orders")


def test_who_said_nothing_for_a_minute_is_not_alive() -> None:
    assert reader().lives(100 * MINUTE)
    assert not reader().lives(101 * MINUTE)
    assert not reader(gone_at=100 * MINUTE).lives(100 * MINUTE)


def test_nobody_reads_it_since_the_last_one_left() -> None:
    now = 100 * MINUTE
    gone, silent, blind = reader(gone_at=95 * MINUTE), reader(heartbeat=90 * MINUTE), reader(started_at=10 * MINUTE)
    assert unread_since([reader()], [reader()], now=now, here_since=0) is None
    assert unread_since([gone], [gone], now=now, here_since=0) == 95 * MINUTE
    assert unread_since([gone, silent], [gone, silent], now=now, here_since=0) == 95 * MINUTE
    assert unread_since([silent], [silent], now=now, here_since=0) == 90 * MINUTE
    # of when nobody was there to see, nothing is known
    assert unread_since([], [], now=now, here_since=99 * MINUTE) == 99 * MINUTE
    assert unread_since([], [blind], now=now, here_since=99 * MINUTE) == 10 * MINUTE
    assert unread_since([silent], [silent], now=now, here_since=99 * MINUTE) == 99 * MINUTE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    opened = open_store("sqlite:///:memory:", keys=KeyRing.parse(KEYS), clock=clock)
    await opened.open()
    yield opened
    await opened.close()


async def newer(store: Store, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Have a run that code of the next format wrote."""
    with monkeypatch.context() as patch:
        patch.setattr(versions, "CURRENT_SPEC", NEXT)
        receipt = await store.admit(message(to_address("newer")))
        return await store.run(receipt.run_id)


def minutes(clock: ManualClock, count: float) -> None:
    clock.advance(timedelta(minutes=count))


async def test_it_takes_ten_minutes_without_anybody_who_reads_it(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await newer(store, monkeypatch)
    assert run.spec_version == NEXT
    here = Strandings(store=store, abilities=OLD, since=START)
    there = Strandings(store=store, abilities=NEW, since=START)
    assert not await here.is_stranded(run)
    minutes(clock, 10)
    assert await here.is_stranded(run)
    assert not await there.is_stranded(run), "who reads it doesn't call it stranded"
    with pytest.raises(Stranded) as refused:
        await here.check(run)
    assert (refused.value.run_id, refused.value.spec_version, refused.value.deployment) == (run.run_id, NEXT, "d1")
    assert not await here.is_stranded(replace(run, status=RunStatus.ENDED))


async def test_a_newer_worker_that_lives_or_left_lately_keeps_it(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await newer(store, monkeypatch)
    here = Strandings(store=store, abilities=OLD, since=START)
    await store.enrol(Incarnation(owner="new", deployment="d2", abilities=NEW))
    minutes(clock, 30)
    await store.renew("new", [], lease_ms=MINUTE)
    assert not await here.is_stranded(run)
    await store.withdraw("new")
    minutes(clock, 9.9)
    assert not await here.is_stranded(run), "a deploy may be under way"
    minutes(clock, 0.1)
    assert await here.is_stranded(run)
    await store.enrol(Incarnation(owner="newer", deployment="d3", abilities=NEW))
    assert not await here.is_stranded(run)
    assert {one.deployment for one in await readers(store) if one.lives(await store.now())} == {"d3"}


async def test_who_has_just_begun_waits_to_see(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await newer(store, monkeypatch)
    minutes(clock, 60)
    begun = Strandings(store=store, abilities=OLD, since=await store.now())
    assert not await begun.is_stranded(run), "after a whole outage the newer version may be just behind"
    await store.enrol(Incarnation(owner="old", deployment="d1", abilities=OLD))
    minutes(clock, 9)
    assert not await begun.is_stranded(run)
    minutes(clock, 1)
    assert await begun.is_stranded(run)


async def test_an_older_worker_was_there_to_see(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await newer(store, monkeypatch)
    await store.enrol(Incarnation(owner="old", deployment="d1", abilities=OLD))
    minutes(clock, 20)
    await store.renew("old", [], lease_ms=MINUTE)
    begun = Strandings(store=store, abilities=OLD, since=await store.now())
    assert await begun.is_stranded(run)


async def test_what_some_code_gave_back_waits_for_other_code(store: Store, clock: ManualClock) -> None:
    await store.admit(message())
    claim = await claim_one(store)
    await store.strand(claim.run_id, claim.epoch, reason="an input is newer", code="old")
    run = await store.run(claim.run_id)
    here = Strandings(store=store, abilities=OLD, since=START)
    minutes(clock, 10)
    assert await here.is_stranded(run)
    assert not await replace(here, abilities=replace(OLD, code="fixed")).is_stranded(run)
    await store.enrol(Incarnation(owner="w", deployment="d", abilities=replace(OLD, code="fixed")))
    assert not await here.is_stranded(run)
    await store.withdraw("w")
    assert await store.unstrand(run.run_id)
    assert not await here.is_stranded(await store.run(run.run_id))


async def test_quiet_is_ten_minutes() -> None:
    assert QUIET_MS == 10 * MINUTE


# Lists


async def test_runs_are_listed_as_asked(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = (await store.admit(message(to_address("idle")))).run_id
    await store.commit(step_commit(await claim_one(store), release=True, phase=Phase.IDLE))
    minutes(clock, 1)
    busy = (await store.admit(message(to_address("busy")))).run_id
    claim = await claim_one(store)
    minutes(clock, 1)
    await store.strand(claim.run_id, claim.epoch, reason="why", code="c")
    minutes(clock, 1)
    new = await newer(store, monkeypatch)
    assert [line.run_id for line in await list_runs(store, Which())] == [new.run_id, busy, idle]
    assert [line.run_id for line in await list_runs(store, Which(), limit=1)] == [new.run_id]
    (marked,) = await list_runs(store, Which(marked=True, status=RunStatus.OPEN, kind=RunKind.SESSION))
    assert (marked.run_id, marked.stranded, marked.stranded_code, marked.name) == (busy, "why", "c", "support")
    assert [line.run_id for line in await list_runs(store, Which(outside=(OLD.min_readable, OLD.current)))] == [new.run_id]
    assert [line.run_id for line in await list_runs(store, Which(deployment="d2"))] == []
    assert len(await list_runs(store, Which(phase=Phase.IDLE, deployment="d1"))) == 3
    now = await store.now()
    unfinished = [line.run_id for line in await list_runs(store, Which(unfinished_before=now))]
    assert unfinished == [busy]
    assert await is_dormant(store, busy, since=now)
    assert not await is_dormant(store, busy, since=0)
    assert not await is_dormant(store, idle, since=now)
    assert not await is_dormant(store, new.run_id, since=now)


async def test_retiring_a_deployment_ends_what_it_has_and_nothing_else(store: Store) -> None:
    mine = [await parked(store, address=f"a{n}") for n in range(3)]
    new = message(to_address("other"))
    other = (await store.admit(new)).run_id
    await store.end(mine[0], reason="before", events=())
    await store.commit(step_commit(await claim_one(store), release=True, move=None))
    told: list[str] = []

    def events(line: object) -> tuple:
        told.append(line.run_id)  # type: ignore[attr-defined]
        return (event("over"),)

    ended = await retire(store, "d1", events=events)
    assert set(ended) == {mine[1], mine[2], other} == set(told)
    assert (await store.run(mine[1])).end_reason == "retired"
    assert await retire(store, "d1", events=events) == []


async def test_dead_letters_are_listed(store: Store) -> None:
    letter = post(text="dead")
    await store.admit(message())
    claim = await claim_one(store)
    await store.commit(step_commit(claim, outbox=(letter, post()), release=True))
    lane = await lane_one(store)
    await store.finish(lane, "w1", Buried(delivery_id=letter.delivery_id, error="too long", release=True))
    (line,) = await list_owed(store)
    assert (line.delivery_id, line.run_id, line.last_error, line.state) == (letter.delivery_id, claim.run_id, "too long", "dead")
    assert len(await list_owed(store, state="pending")) == 1
