"""Retention: what is over goes in small batches, open readers end, and a SQLite file gives the space back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from hashlib import shake_256
from pathlib import Path

import pytest
import pytest_asyncio

from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.codec import encode
from durable_core.crypto import KeyRing
from durable_core.errors import ContentGone, Unavailable
from durable_core.model import Incarnation, Interaction, Lane
from durable_core.retention import PurgeOptions, Purger
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.stores.sqlite.vacuum import vacuum
from durable_core.streams import EventView, Streams
from durable_core.testing.acts import claim_one, claims, send_all
from durable_core.testing.builders import MINUTE, START_MS, event, message, ms, new_run, post, step_commit, to_address
from durable_core.worker import Held, Worker, WorkerOptions
from tests.durable_core.conformance.sqlite import KEYS, memory_store


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest_asyncio.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    made = await memory_store(clock)
    await made.open()
    await made.enrol(Incarnation(owner="w1", deployment="d1"))
    yield made
    await made.close()


async def ended(store: Store, address: str, *, keep_ms: int | None = 0, size: int = 0) -> str:
    """Have a run that has ended, with a step of so many bytes that don't compress."""
    receipt = await store.admit(message(to_address(address, new=new_run(keep_ms=keep_ms))))
    claim = await claim_one(store)
    commit = step_commit(claim, events=(event("said"),), end="done")
    noise = encode({"noise": shake_256(address.encode()).digest(size)})
    await store.commit(replace(commit, step=replace(commit.step, output=noise)))
    return receipt.run_id


class Idle:
    """Duties of a worker that has nothing to do."""

    async def advance(self, held: Held) -> None:
        raise AssertionError(held)

    async def send(self, lane: Lane) -> None:
        raise AssertionError(lane)

    async def evaluate(self, interaction: Interaction) -> None:
        raise AssertionError(interaction)


# When


async def test_a_batch_at_a_time(store: Store, clock: ManualClock) -> None:
    runs = [await ended(store, f"a{n}") for n in range(5)]
    clock.advance(ms(MINUTE))
    purger = Purger(store, PurgeOptions(batch=2, pause=1.0, idle=60.0))
    assert [await purger.turn() for _ in range(4)] == [1.0, 1.0, 60.0, 60.0]
    assert purger.purged == 5
    assert all([(await store.run(run_id)).purged_at is not None for run_id in runs])


async def test_two_purgers_share_the_work(store: Store, clock: ManualClock) -> None:
    for n in range(6):
        await ended(store, f"a{n}")
    clock.advance(ms(MINUTE))
    first, second = (Purger(store, PurgeOptions(batch=4)) for _ in range(2))
    await asyncio.gather(first.turn(), second.turn())
    assert (first.purged + second.purged, await second.turn()) == (6, PurgeOptions().idle)


async def test_a_worker_purges_beside_its_work(store: Store, clock: ManualClock) -> None:
    run_id = await ended(store, "a")
    clock.advance(ms(MINUTE))
    changed = asyncio.Event()
    store.watch(lambda run_ids: changed.set() if run_ids is not None and run_id in run_ids else None)
    worker = Worker(
        store, Idle(), owner="w2", deployment="d1", options=WorkerOptions(purge=PurgeOptions(pause=0.0, idle=0.0), poll=60)
    )
    await worker.start()
    async with asyncio.timeout(10):
        await changed.wait()
        while worker.purged == 0:
            await asyncio.sleep(0)
    await worker.drain(0)
    assert (await store.run(run_id)).purged_at is not None


async def test_a_store_that_is_away_is_asked_again() -> None:
    asked = asyncio.Event()

    class Away:
        calls = 0

        async def purge(self, *, limit: int) -> list[str]:
            self.calls += 1
            if self.calls == 1:
                raise Unavailable("away")
            if self.calls == 2:
                raise ZeroDivisionError
            asked.set()
            return []

    purger = Purger(Away(), PurgeOptions(pause=0.0, idle=0.0))  # type: ignore[arg-type]
    task = asyncio.create_task(purger.forever())
    async with asyncio.timeout(10):
        await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Readers


async def test_a_follower_of_what_goes_ends_cleanly(store: Store) -> None:
    streams = Streams(store)
    streams.start()
    receipt = await store.admit(message(to_address("a")))
    claim = await claim_one(store)
    await store.commit(step_commit(claim, events=(event("one"), event("two")), end="done"))
    got: list[EventView] = []
    async for view in streams.follow(receipt.run_id):
        got.append(view)
        await store.forget(receipt.run_id)
    assert [view.data["text"] for view in got] == ["one", "two"]
    assert [view async for view in streams.follow(receipt.run_id)] == []
    with pytest.raises(ContentGone):
        await streams.read(receipt.run_id)
    streams.stop()


# The file


async def on_file(path: Path, clock: ManualClock) -> SqliteStore:
    store = open_store(f"sqlite:///{path}", keys=KeyRing.parse(KEYS), clock=clock)
    assert isinstance(store, SqliteStore)
    await store.open()
    await store.enrol(Incarnation(owner="w1", deployment="d1"))
    return store


def size(path: Path) -> int:
    return path.stat().st_size


async def filled(path: Path, clock: ManualClock) -> int:
    """Put 4 MB into ended sessions, the file's size."""
    store = await on_file(path, clock)
    for n in range(8):
        await ended(store, f"a{n}", size=500_000)
    await store.close()
    return size(path)


async def purged(path: Path, clock: ManualClock) -> int:
    clock.advance(ms(MINUTE))
    store = await on_file(path, clock)
    assert len(await store.purge(limit=50)) == 8
    await store.close()
    return size(path)


SKELETON = (
    "SELECT run_id, seq, idx, type, refs, attempt, at FROM moor_event ORDER BY run_id, seq",
    "SELECT run_id, n, kind, name, attempt, spec_version, deployment, started_at, completed_at FROM moor_step ORDER BY run_id, n",
    "SELECT run_id, seq, kind, submission_id, principal, at, taken_step FROM moor_command ORDER BY run_id, seq",
    "SELECT delivery_id, channel, address, lane_seq, state, ref, attempts, at, done_at FROM moor_outbox ORDER BY delivery_id",
    "SELECT source, key, submission_id, run_id, seq, kind, digest, outcome, done_at FROM moor_admission ORDER BY submission_id",
)


async def test_all_but_the_content_stays_as_it_was(store: Store, clock: ManualClock) -> None:
    receipt = await store.admit(message(to_address("a", new=new_run(keep_ms=0))))
    claim = await claim_one(store)
    sent = step_commit(claim, events=(event("one", refs=(("a", "command:1#/text"),)), event("two", visible=False)))
    await store.commit(replace(sent, outbox=(post(), post())))
    await send_all(store)
    await store.commit(step_commit(claim, step_n=1, consume=False, end="done"))
    kept = await ended(store, "b", keep_ms=None)
    before = [await store.rows(sql, {}) for sql in SKELETON]
    assert all(before)
    clock.advance(ms(MINUTE))
    assert await store.purge(limit=10) == [receipt.run_id]
    assert [await store.rows(sql, {}) for sql in SKELETON] == before
    bodies = "SELECT count(*) FROM moor_event WHERE run_id = :run_id AND length(body) > 0"
    assert await store.rows(bodies, {"run_id": receipt.run_id}) == [(0,)]
    assert len(await store.steps(kept)) == 1


async def test_a_new_file_shrinks_when_content_goes(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    full = await filled(path, clock)
    assert full > 3_000_000
    assert await purged(path, clock) < full / 4


async def test_many_small_bodies_give_their_space_back_too(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    store = await on_file(path, clock)
    for n in range(40):  # side by side, so that pages hold rows of several runs
        await store.admit(message(to_address(f"a{n}", new=new_run(keep_ms=0))))
    held = await claims(store, limit=40)
    for n in range(10):
        for claim in held:
            told = tuple(event(shake_256(f"{n}{place}".encode()).hexdigest(150)) for place in range(3))
            end = "done" if n == 9 else None
            await store.commit(step_commit(claim, step_n=n, consume=n == 0, events=told, end=end))
    await store.close()
    full = size(path)
    clock.advance(ms(MINUTE))
    store = await on_file(path, clock)
    assert len(await store.purge(limit=50)) == 40
    await store.close()
    assert size(path) < 0.6 * full


async def test_an_old_file_shrinks_by_vacuum_and_then_by_itself(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "moorings.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema.memory_script())
    full = await filled(path, clock)
    assert await purged(path, clock) == full
    before, after = vacuum(str(path))
    assert (before, after < full / 4, size(path)) == (full, True, after)
    full = await filled(path, clock)
    assert await purged(path, clock) < full / 4


async def test_a_dropped_key_is_nowhere_in_the_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    store = await on_file(path, clock)
    runs = [await ended(store, f"a{n}", keep_ms=None) for n in range(20)]
    keys = [bytes(key) for (key,) in await store.rows("SELECT session_key FROM moor_run", {}) if isinstance(key, bytes)]
    await store.close()
    assert [key for key in keys if key[-40:] not in whole(path)] == []
    store = await on_file(path, clock)
    for run_id in runs:
        assert await store.forget(run_id)
    await store.close()
    assert [key for key in keys if key[-40:] in whole(path)] == []


def whole(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob("moorings.db*")) if file.is_file())


async def test_vacuum_beside_an_open_store_loses_nothing(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    store = await on_file(path, clock)
    run_id = await ended(store, "a", keep_ms=None)
    await asyncio.to_thread(vacuum, str(path))
    assert len(await store.steps(run_id)) == 1
    await ended(store, "b", keep_ms=None)
    await store.close()
