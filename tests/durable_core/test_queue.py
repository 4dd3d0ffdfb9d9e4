"""What a queue owes its users besides: one runner a run, waiting that costs nothing, errors that say what to do.

What lives here: duties above one call of a store. What does not: delays, keys and starts from the tail (`S2`, `S22`, `S28`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest

from bot import Agent, Bot
from bot.testing import running
from durable_core.clock import ManualClock
from durable_core.errors import Broken, DurableError, Unavailable
from durable_core.model import Interaction, Lane, Outcome, Phase, Submission, SubmissionOutcome
from durable_core.store import Store
from durable_core.stores.postgres.connect import sorted_error as sorted_postgres_error
from durable_core.stores.sqlite.connect import sorted_error
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.builders import START_MS, message, step_commit, to_address
from durable_core.worker import Held, Worker, WorkerOptions
from tests.durable_core.conformance.sqlite import memory_store

# ── one active runner a run ──


class Runner:
    """Advance runs, noting who is at work on what at the same time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.at_work: Counter[str] = Counter()
        self.most = 0
        self.done = 0
        self.moved = asyncio.Event()

    async def advance(self, held: Held) -> None:
        claim = held.claim
        self.at_work[claim.run_id] += 1
        self.most = max(self.most, *self.at_work.values())
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            outcomes = tuple(SubmissionOutcome(submission_id=c.submission_id, outcome=Outcome.COMPLETED) for c in claim.commands)
            await self._store.commit(step_commit(claim, outcomes=outcomes, phase=Phase.IDLE, release=True))
            self.done += len(outcomes)
        finally:
            self.at_work[claim.run_id] -= 1
            self.moved.set()

    async def send(self, lane: Lane) -> None:
        raise AssertionError(lane)

    async def evaluate(self, interaction: Interaction) -> None:
        raise AssertionError(interaction)


async def test_a_run_has_one_active_runner_however_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await memory_store(ManualClock(START_MS))
    monkeypatch.setattr(SqliteStore, "is_alive", lambda _, owner: owner.startswith("w"))  # in memory only one process is
    await store.open()
    runner = Runner(store)
    workers = [Worker(store, runner, owner=f"w{n}", deployment="d1", options=WorkerOptions(poll=0.01)) for n in range(4)]
    for worker in workers:
        await worker.start()
    for n in range(40):
        await asyncio.gather(*(store.admit(message(to_address(f"a{m}"), text=str(n))) for m in range(3)))
    async with asyncio.timeout(30):
        while runner.done < 120:
            runner.moved.clear()
            await runner.moved.wait()
    await asyncio.gather(*(worker.drain(0) for worker in workers))
    assert runner.most == 1
    await store.close()


# ── waiting for an end ──


async def test_who_waits_for_an_outcome_asks_nothing_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    whole = SqliteStore.submission

    async def counted(self: SqliteStore, submission_id: str) -> Submission:
        asked[submission_id] += 1
        return await whole(self, submission_id)

    async with running(Bot(agents=[Agent("echo", "scripted", instructions="")])) as app:
        assert app.runtime.worker is not None
        await app.runtime.worker.drain(0)
        made = await app.api("POST", "/v1/sessions", {"message": "hello"})
        mine = made["submission_id"]
        monkeypatch.setattr(SqliteStore, "submission", counted)
        waiting = [asyncio.ensure_future(app.api("GET", f"/v1/submissions/{mine}?wait=30")) for _ in range(20)]
        async with asyncio.timeout(30):
            while asked[mine] < 2 * len(waiting):
                await asyncio.sleep(0)
        asked.clear()
        for _ in range(20):
            await app.api("POST", "/v1/sessions", {"message": "somebody else"})
        assert asked[mine] == 0
        await app.runtime.store.end(made["session_id"], reason="over", events=())
        assert {(await one)["status"] for one in waiting} == {"aborted"}


# ── errors ──


def kinds(of: type[DurableError]) -> Iterator[type[DurableError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


@pytest.mark.parametrize("kind", sorted(set(kinds(DurableError)), key=str))
def test_an_error_says_by_its_class_whether_the_same_call_may_be_made_again(kind: type[DurableError]) -> None:
    assert kind.retryable is issubclass(kind, Unavailable)
    assert not (issubclass(kind, Unavailable) and issubclass(kind, Broken))


NAMES = sorted(name for name in dir(sqlite3) if name.startswith("SQLITE_") and isinstance(getattr(sqlite3, name), int))
RETRYABLE = {"BUSY", "LOCKED", "FULL", "IOERR", "NOMEM", "CANTOPEN", "INTERRUPT", "PROTOCOL"}
LASTING = {"CORRUPT", "NOTADB", "CONSTRAINT", "MISMATCH", "READONLY", "SCHEMA", "ERROR", "MISUSE"}


@pytest.mark.parametrize("name", [name for name in NAMES if name.split("_")[1] in RETRYABLE | LASTING])
def test_each_answer_of_sqlite_is_one_or_the_other(name: str) -> None:
    error = sqlite3.OperationalError("it says why")
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    found = sorted_error(error)
    assert type(found) is (Unavailable if name.split("_")[1] in RETRYABLE else Broken)
    assert "it says why" in str(found)


def test_each_answer_of_postgresql_is_one_or_the_other() -> None:
    known = [kind for kind in vars(asyncpg.exceptions).values() if isinstance(kind, type)]
    found = {k: type(sorted_postgres_error(k("it says why"))) for k in known if issubclass(k, asyncpg.PostgresError)}
    assert set(found.values()) == {Unavailable, Broken}
    for passing in (asyncpg.TooManyConnectionsError, asyncpg.AdminShutdownError, asyncpg.DiskFullError):
        assert found[passing] is Unavailable
    for lasting in (asyncpg.UniqueViolationError, asyncpg.UndefinedTableError, asyncpg.DataCorruptedError):
        assert found[lasting] is Broken
