"""SQLite under pressure: a lock that another process holds, a full disk, a kill at any point."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from bot import Agent, Bot
from bot.testing import running
from durable_core.clock import DatabaseClock
from durable_core.errors import Unavailable
from durable_core.model import Interaction, Lane, Outcome, Phase, SubmissionOutcome
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.acts import WORKERS, claims, enrol, park
from durable_core.testing.builders import message, step_commit, to_address
from durable_core.testing.histories import check_store
from durable_core.worker import Held, Worker, WorkerOptions
from tests.durable_core.conformance.sqlite import file_store
from tests.durable_core.test_processes import ROOT, heard

LOCKED_SECONDS = 4.0
"""Well below what the store waits for a lock."""
ROUNDS = 20 if os.environ.get("MOORINGS_TEST_FULL") == "1" else 8
AT_ONCE = 4


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await file_store(DatabaseClock(), tmp_path)
    await made.open()
    await enrol(made)
    yield made
    await made.close()


async def limit(store: Store, more: int | None) -> None:
    """Leave room for so many pages more; None for as many as there may ever be."""
    assert isinstance(store, SqliteStore)
    pages = (await store.rows("PRAGMA page_count", {}))[0][0]
    assert isinstance(pages, int)
    most = 1_000_000 if more is None else pages + more
    await store._writer.run(lambda tx: tx.run(f"PRAGMA max_page_count = {most}"), plain=True)


def noise(seed: int) -> str:
    """Words that don't shrink when they are compressed."""
    return random.Random(seed).randbytes(4_000).hex()


def is_whole(folder: Path) -> bool:
    """Whether SQLite finds nothing wrong with its file."""
    with closing(sqlite3.connect(folder / "moorings.db")) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# ── a lock ──


class Stepper:
    """Finish a step of each run that comes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.done: asyncio.Queue[str] = asyncio.Queue()
        self.charged = 0

    async def advance(self, held: Held) -> None:
        claim = held.claim
        self.charged = max(self.charged, claim.charged, claim.crashes)
        outcomes = tuple(SubmissionOutcome(submission_id=c.submission_id, outcome=Outcome.COMPLETED) for c in claim.commands)
        await self._store.commit(step_commit(claim, outcomes=outcomes, phase=Phase.IDLE, release=True))
        for done in outcomes:
            self.done.put_nowait(done.submission_id)

    async def send(self, lane: Lane) -> None:
        raise AssertionError(lane)

    async def evaluate(self, interaction: Interaction) -> None:
        raise AssertionError(interaction)


async def test_a_lock_of_another_process_costs_time_and_no_run(store: Store, tmp_path: Path) -> None:
    stepper = Stepper(store)
    options = WorkerOptions(poll=0.05, lease=2.0)  # renewed twice a second: renewals wait for the lock too
    worker = Worker(store, stepper, owner="w1", deployment="d1", options=options)
    await worker.start()
    with closing(sqlite3.connect(tmp_path / "moorings.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(LOCKED_SECONDS, other.execute, "COMMIT")
        receipts = await asyncio.gather(*(store.admit(message(to_address(f"a{n % 5}"))) for n in range(50)))
        assert not other.in_transaction
    async with asyncio.timeout(30):
        done = {await stepper.done.get() for _ in receipts}
    assert done == {receipt.submission_id for receipt in receipts}
    assert stepper.charged == 0
    await worker.drain(0)
    await check_store(store)


# ── a full disk ──


async def test_a_full_disk_refuses_what_is_new_and_tears_nothing(store: Store, tmp_path: Path) -> None:
    await limit(store, 60)
    sent = [message(to_address(f"a{n % 3}"), text=noise(n)) for n in range(100)]
    refused, errors = [], []
    for place in range(0, len(sent), 5):
        group = sent[place : place + 5]
        results = await asyncio.gather(*(store.admit(one) for one in group), return_exceptions=True)
        refused += [one for one, result in zip(group, results, strict=True) if isinstance(result, BaseException)]
        errors += [result for result in results if isinstance(result, BaseException)]
    assert 0 < len(refused) < len(sent)
    assert all(isinstance(error, Unavailable) for error in errors)
    assert any("full" in str(error) for error in errors)
    await check_store(store)
    await limit(store, None)
    again = [await store.admit(one) for one in refused]
    assert not any(receipt.deduplicated for receipt in again), "what was refused had left its key"
    taken = {command.submission_id for claim in await claims(store) for command in claim.commands}
    assert taken == {one.submission_id for one in sent}
    await check_store(store)
    assert is_whole(tmp_path)


async def test_over_http_a_full_disk_is_503_until_there_is_room() -> None:
    async with running(Bot(agents=[Agent("echo", "scripted", instructions="")])) as app:
        await limit(app.runtime.store, 80)
        accepted: list[str] = []
        for n in range(200):
            headers = {"Idempotency-Key": f"k{n}"}
            asked = {"message": noise(n)}
            async with app.http.post(f"{app.url}/v1/sessions", json=asked, headers=headers) as answer:
                told = await answer.json()
                if answer.status == 503:
                    assert (told["error"]["code"], told["error"]["retryable"]) == ("unavailable", True)
                    assert "Retry-After" in answer.headers
                    break
                accepted.append(told["submission_id"])
        else:
            pytest.fail("the disk was never full")
        assert await app.api("GET", "/healthz")
        await limit(app.runtime.store, None)
        async with app.http.post(f"{app.url}/v1/sessions", json=asked, headers=headers) as answer:
            assert answer.status < 300
            accepted.append((await answer.json())["submission_id"])
        for submission_id in accepted:
            found = await app.api("GET", f"/v1/submissions/{submission_id}?wait=30")
            assert found["status"] == "completed"
        await check_store(app.runtime.store)


# ── kills ──


async def kill_somewhere(folder: Path, seed: int) -> None:
    """Start a process that does all it can to a store, kill it, and look at what is left."""
    chance = random.Random(seed)
    first = await file_store(DatabaseClock(), folder)
    await first.open()
    await first.close()
    command = (sys.executable, "-m", "tests.durable_core.processes", "churner", str(folder), str(seed))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
    accepted = [(await heard(process))["submission_id"] for _ in range(chance.randrange(1, 60))]
    for _ in range(chance.randrange(50)):
        await asyncio.sleep(0)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert is_whole(folder)
    store = await file_store(DatabaseClock(), folder)
    await store.open()
    try:
        await check_store(store)
        for submission_id in accepted:
            await store.submission(submission_id)
        for owner in WORKERS:
            await store.reap(owner)
        for claim in await claims(store, "w1", limit=100):
            await park(store, claim)
        await check_store(store)
    finally:
        await store.close()


async def test_a_kill_at_any_point_leaves_a_whole_file_and_a_true_history(tmp_path: Path) -> None:
    begun = int(os.environ.get("MOORINGS_TEST_SEED", "0"))
    print(f"seeds {begun} to {begun + ROUNDS - 1}")
    for start in range(begun, begun + ROUNDS, AT_ONCE):
        seeds = range(start, start + AT_ONCE)
        for seed in seeds:
            (tmp_path / str(seed)).mkdir()
        await asyncio.gather(*(kill_somewhere(tmp_path / str(seed), seed) for seed in seeds))
