"""Hearing of other processes' changes, and knowing at once who died."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from durable_core.clock import ManualClock
from durable_core.errors import Unavailable
from durable_core.model import ClaimRequest, Incarnation, ToNew
from durable_core.stores.postgres.alive import DEAD_AFTER_MS, Heartbeats
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.listen import MOST_BYTES, lock_of, payload
from durable_core.stores.postgres.servers import Seen
from durable_core.stores.postgres.store import PostgresStore
from durable_core.testing.builders import START_MS, message, new_run
from tests.durable_core.conformance.postgres import KEYS, postgres_store
from tests.durable_core.stores.postgres.conftest import Open
from tests.durable_core.stores.postgres.relay import Relay

PATIENCE_SECONDS = 30


class Heard:
    """A listener one can wait for."""

    def __init__(self, store: PostgresStore) -> None:
        self.news: asyncio.Queue[Sequence[str] | None] = asyncio.Queue()
        store.watch(self.news.put_nowait)

    async def until(self, *wanted: str | None) -> list[Sequence[str] | None]:
        """Wait until all runs were told of; None for anything."""
        heard: list[Sequence[str] | None] = []
        missing = set(wanted)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while missing:
                news = await self.news.get()
                heard.append(news)
                missing -= {None} if news is None else set(news)
        return heard


async def a_run(store: PostgresStore) -> str:
    return (await store.admit(message(ToNew(new=new_run())))).run_id


async def gone(store: PostgresStore) -> None:
    """Let a store's process die, as far as the server can tell."""
    ear = store._ear
    assert ear is not None
    await ear.close()
    store._ear = None


async def cut(url: str) -> None:
    """Cut all connections that listen."""
    connection = await asyncpg.connect(dsn(url))
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def test_another_process_hears_of_a_change_and_this_one_hears_it_once(open_one: Open) -> None:
    one, other = await open_one(), await open_one()
    here, there = Heard(one), Heard(other)
    run_id, last = await a_run(one), await a_run(other)
    await there.until(run_id, last)
    heard = await here.until(last)
    assert sum(news is not None and run_id in news for news in heard) == 1, "one's own ring is not heard again"


async def test_many_changes_are_told_together(open_one: Open) -> None:
    one, other = await open_one(), await open_one()
    there = Heard(other)
    runs = await asyncio.gather(*(a_run(one) for _ in range(20)))
    heard = await there.until(*runs)
    assert len(heard) < len(runs)


def test_what_does_not_fit_is_told_as_anything() -> None:
    runs = {f"ses_{number:026}" for number in range(300)}
    assert payload("inc_1", runs) == "inc_1:*"
    assert len(payload("inc_1", set(list(runs)[:200])).encode()) <= MOST_BYTES


async def test_what_the_dead_did_not_tell_is_told_by_whoever_finds_them_dead(open_one: Open) -> None:
    dying, finder, third = [await open_one() for _ in range(3)]
    await dying.enrol(Incarnation(owner=dying.incarnation, deployment="d1"))
    dying._bell = None  # it dies before it tells
    await a_run(dying)
    here, there = Heard(finder), Heard(third)
    await gone(dying)
    assert await finder.reap(dying.incarnation) == 0
    await here.until(None)
    await there.until(None)


async def test_a_listener_that_was_cut_off_comes_back_and_tells_that_anything_may_have_changed(
    open_one: Open, migrated_url: str
) -> None:
    one, other = await open_one(), await open_one()
    there = Heard(other)
    await cut(migrated_url)
    await there.until(None)
    run_id = await a_run(one)
    await there.until(run_id)


async def test_a_listener_whose_server_says_it_stops_and_is_not_gone_yet_comes_back(
    open_one: Open, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.listen._LOOK_SECONDS", 0.05)
    one = await open_one()
    async with Relay.before(migrated_url) as (relay, url):
        store = await open_one(url)
        there = Heard(store)
        relay.stop()
        await there.until(None)
        run_id = await a_run(one)
        await there.until(run_id)
        await store.close()


async def test_processes_of_a_namespace_with_a_long_name_hear_of_each_other(postgres_url: str) -> None:
    from durable_core import schema

    name = "n" * 63
    await asyncio.to_thread(schema.upgrade, postgres_url, namespace=name)
    one, other = (postgres_store(postgres_url, ManualClock(START_MS), namespace=name) for _ in range(2))
    await one.open()
    await other.open()
    there = Heard(other)
    await there.until(await a_run(one))
    await one.close()
    await other.close()


async def test_who_died_is_known_at_once_and_who_lives_is_left_alone(open_one: Open) -> None:
    one, other = await open_one(), await open_one()
    for store in (one, other):
        await store.enrol(Incarnation(owner=store.incarnation, deployment="d"))
    assert (await one.due(one.incarnation)).dead == ()
    await gone(other)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await one.due(one.incarnation)).dead != (other.incarnation,):
            await asyncio.sleep(0)
    await one.reap(other.incarnation)
    assert (await one.due(one.incarnation)).owners == (one.incarnation,)


async def test_a_living_owner_is_not_reaped(open_one: Open) -> None:
    one, other = await open_one(), await open_one()
    await other.enrol(Incarnation(owner=other.incarnation, deployment="d"))
    await one.reap(other.incarnation)
    assert other.incarnation in (await one.due(one.incarnation)).owners


async def test_a_listener_that_was_cut_off_takes_its_lock_again(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    heard = Heard(store)
    await cut(migrated_url)
    await heard.until(None)
    connection = await asyncpg.connect(dsn(migrated_url))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock_of(store.incarnation)):
            await connection.execute("SELECT pg_advisory_unlock_all()")
            await asyncio.sleep(0)
    await connection.close()


async def test_nobody_is_called_dead_just_after_the_server_started_or_this_process_came_back(
    open_one: Open, migrated_url: str
) -> None:
    from durable_core.clock import DatabaseClock
    from durable_core.crypto import KeyRing
    from durable_core.stores.postgres.connect import Settings

    patient = PostgresStore(Settings(url=migrated_url), keys=KeyRing.parse(KEYS), clock=DatabaseClock(), grace=1e9)
    await patient.open()
    await patient.enrol(Incarnation(owner="inc_gone", deployment="d"))
    assert (await patient.due(patient.incarnation)).dead == ()
    await patient.close()
    store = await open_one()
    assert (await store.due(store.incarnation)).dead == ("inc_gone",)


async def test_who_can_not_show_that_it_lives_takes_nothing_and_calls_nobody_dead(
    open_one: Open, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can, takes it for dead, and from it whatever it takes, as often as it does."""
    store = await open_one()
    await store.enrol(Incarnation(owner="inc_gone", deployment="d"))
    request = ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=9)

    async def refused(_url: str, *, seen: Seen) -> asyncpg.Connection:
        raise Unavailable("there is no way")

    with monkeypatch.context() as patch:
        patch.setattr("durable_core.stores.postgres.listen.connect", refused)
        await cut(migrated_url)
        assert store._ear is not None
        while store._ear.is_heard:
            await asyncio.sleep(0)
        _, begun = await store.begin(message(ToNew(new=new_run())), request)
        assert begun is None, "what comes in is accepted all the same"
        with pytest.raises(Unavailable):
            await store.claim(request)
        with pytest.raises(Unavailable):
            await store.claim_lanes(store.incarnation, limit=1, lease_ms=60_000)
        with pytest.raises(Unavailable):
            await store.take_interactions(store.incarnation, limit=1, lease_ms=60_000)
        assert (await store.due(store.incarnation)).dead == ()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not store._ear.is_heard:
            await asyncio.sleep(0)
        assert len(await store.claim(request)) == 1
        while (await store.due(store.incarnation)).dead != ("inc_gone",):
            await asyncio.sleep(0)


async def test_a_listener_on_another_server_than_the_rest_is_made_anew_and_nobody_is_called_dead_for_it(open_one: Open) -> None:
    store = await open_one()
    await store.enrol(Incarnation(owner="inc_gone", deployment="d"))
    heard = Heard(store)
    assert store._ear is not None
    store._ear._server = 0.0  # as on one that was started at another time
    assert (await store.due(store.incarnation)).dead == ()
    await heard.until(None)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await store.due(store.incarnation)).dead != ("inc_gone",):
            await asyncio.sleep(0)


async def test_behind_a_pooler_whoever_could_not_beat_calls_nobody_dead(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.alive.BEAT_SECONDS", 0)
    clock = ManualClock(START_MS)
    store, silent = (postgres_store(migrated_url, clock, pooler=True) for _ in range(2))
    for one, owner in ((silent, "inc_2"), (store, "inc_1")):
        await one.open()
        await one.enrol(Incarnation(owner=owner, deployment="d"))
    await silent.close()
    clock._now_ms += DEAD_AFTER_MS + 1
    assert (await store.due("inc_1")).dead == ("inc_2",)
    beaten = asyncio.Event()

    async def away(*_: object, **__: object) -> None:
        beaten.set()
        raise Unavailable("it is away")

    monkeypatch.setattr(store._database, "write", away)
    await beaten.wait()
    await asyncio.sleep(0)
    assert (await store.due("inc_1")).dead == ()
    monkeypatch.undo()
    await store.close()


async def test_behind_a_pooler_silence_is_death(migrated_url: str) -> None:
    clock = ManualClock(START_MS)
    store = postgres_store(migrated_url, clock, pooler=True)
    await store.open()
    assert isinstance(store._alive, Heartbeats)
    for owner in ("inc_1", "inc_2"):
        await store.enrol(Incarnation(owner=owner, deployment="d"))
    clock._now_ms += DEAD_AFTER_MS
    await store.renew("inc_1", (), lease_ms=1)
    clock._now_ms += 1
    assert (await store.due("inc_3")).dead == ("inc_2",)
    await store.reap("inc_2")
    assert (await store.due("inc_3")).owners == ("inc_1",)
    await store.close()


@pytest.mark.parametrize("name", ["inc_1", "ä"])
def test_locks_are_64_bits(name: str) -> None:
    assert -(1 << 63) <= lock_of(name) < 1 << 63


async def test_behind_a_pooler_the_store_beats_for_those_it_enrolled(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.alive.BEAT_SECONDS", 0)
    clock = ManualClock(START_MS)
    store = postgres_store(migrated_url, clock, pooler=True)
    await store.open()
    await store.enrol(Incarnation(owner="inc_1", deployment="d"))
    clock._now_ms += DEAD_AFTER_MS + 1
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await store.due("inc_2")).dead:
            await asyncio.sleep(0)
    await store.close()


async def test_behind_a_pooler_changes_of_others_are_noticed_too(migrated_url: str) -> None:
    one, other = (postgres_store(migrated_url, ManualClock(START_MS), pooler=True) for _ in range(2))
    await one.open()
    await other.open()
    there = Heard(other)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while there.news.empty():
            await a_run(one)
    assert there.news.get_nowait() is None
    await one.close()
    await other.close()
