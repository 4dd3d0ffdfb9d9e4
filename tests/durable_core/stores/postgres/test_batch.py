"""Commits of many runs in one statement: each is whole or not there, and none pays for what is wrong with another.

What lives here: batches, gathered on purpose, and what makes members fall out of them. What does not: the promises of a commit
(the kit), which hold however it is written.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from durable_core import failpoints
from durable_core.errors import Broken, CommitUnknown, LeaseLost, Redacted
from durable_core.model import Claim, ClaimRequest, CommandKind, Committed, EventDraft, Phase, StepCommit, ToNew
from durable_core.stores.postgres import batch
from durable_core.stores.postgres.batch import AT_ONCE, LARGE, MOST
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.store import PostgresStore
from durable_core.testing.builders import body, message, new_run, step_commit
from durable_core.testing.histories import check_run
from tests.durable_core.stores.postgres.conftest import Open
from tests.durable_core.stores.postgres.test_races import STEAL, blocked_on, seed

__all__ = ["seed"]

LEASE = 60_000
STEPS = 6
MESSAGES = 60
PATIENCE_SECONDS = 30


class Sizes(list[list[str]]):
    """The runs of each batch of a store, and an error that the next one meets."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__()
        self.error: Exception | None = None
        statement = store._database.statement

        async def watched(sql: str, *args: Any, label: str | None = None) -> list[Any]:
            if "WITH ORDINALITY" in sql and "moor_step" in sql:
                self.append(list(args[2]))
                if self.error is not None:
                    raise self.error
            return await statement(sql, *args, label=label)

        store._database.statement = watched  # type: ignore[method-assign]


async def held(store: PostgresStore, count: int) -> list[Claim]:
    """Claim so many new runs, whose first messages stay where they are."""
    for _ in range(count):
        await store.admit(message(ToNew(new=new_run())))
    claims: list[Claim] = []
    while len(claims) < count:
        claims += await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=LEASE, limit=count - len(claims)))
    return claims


def step(claim: Claim, *, events: int = 0, n: int | None = None, redactions: int | None = None) -> StepCommit:
    """Return a commit that does no more than most do."""
    drafts = tuple(EventDraft(type=f"t{k}", body=body(f"{claim.run_id}.{k}"), visible=bool(k % 2)) for k in range(events))
    made = step_commit(claim, consume=False, output=f"out of {claim.run_id}", events=drafts, step_n=n)
    return replace(made, redactions=redactions)


async def gathered(store: PostgresStore, commits: Sequence[StepCommit]) -> list[asyncio.Task[Committed]]:
    """Begin commits as if others were under way, then let them go together."""
    batches = store._holding._batches
    batches._under_way += AT_ONCE
    batches._overdue = asyncio.get_running_loop().call_later(LEASE, lambda: None)  # however long that takes
    tasks = [asyncio.create_task(store.commit(commit)) for commit in commits]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(batches._waiting) < len(commits):
            await asyncio.sleep(0)
    batches._under_way -= AT_ONCE
    batches._go()
    return tasks


async def together(store: PostgresStore, commits: Sequence[StepCommit]) -> list[Committed | BaseException]:
    return await asyncio.gather(*await gathered(store, commits), return_exceptions=True)


async def test_of_twenty_those_that_something_is_wrong_with_fall_out_and_the_others_are_whole(
    open_one: Open, migrated_url: str
) -> None:
    store, other = await open_one(), await open_one()
    sizes = Sizes(store)
    claims = await held(store, 20)
    lost, moved, redacted, unread = claims[3], claims[7], claims[11], claims[15]
    await other._database.write(lambda tx: tx.run("UPDATE moor_run SET epoch = epoch + 1 WHERE run_id = $1", lost.run_id))
    await other.append(moved.run_id, moved.epoch, [EventDraft(type="other", body=body("other"))] * 2)
    await other._database.write(lambda tx: tx.run("UPDATE moor_run SET redactions = 1 WHERE run_id = $1", redacted.run_id))
    commits = [
        step(claim, events=number % 5 or (claim is moved), redactions=0 if claim in {redacted, unread} else None)
        for number, claim in enumerate(claims)
    ]
    done = await together(store, commits)
    assert sizes == [[claim.run_id for claim in claims]]
    for claim, commit, found in zip(claims, commits, done, strict=True):
        if claim is lost:
            assert isinstance(found, LeaseLost)
        elif claim is redacted:
            assert isinstance(found, Redacted)
        else:
            assert isinstance(found, Committed), found
            assert (found.step_no, found.signals.inbox_seq, found.commands) == (1, 1, ())
            (kept,) = await store.steps(claim.run_id)
            assert (kept.n, kept.output, kept.input) == (0, commit.step.output, commit.step.input)
            events = await store.events(claim.run_id, hidden=True)
            told = [event.type for event in events if not event.type.startswith("run.")]
            assert told == ["other"] * (2 * (claim is moved)) + [draft.type for draft in commit.events]
            content = await store.events(claim.run_id)
            assert [e.body for e in content][2 * (claim is moved) :] == [d.body for d in commit.events if d.visible]
        if claim in {lost, redacted}:
            assert not await store.steps(claim.run_id)
            assert not await store.events(claim.run_id, hidden=True)
        await check_run(store, claim.run_id)
    going_on = [claim for claim in claims if claim not in {lost, redacted}]
    again = await together(store, [step(claim, n=1, events=1) for claim in going_on])
    assert [found.step_no for found in again if isinstance(found, Committed)] == [2] * 18, "where they stand is known"
    assert len(sizes) == 2


async def test_first_steps_consume_their_starts_in_one_batch(open_one: Open, migrated_url: str) -> None:
    store, other = await open_one(), await open_one()
    sizes = Sizes(store)
    claims = await held(store, 9)
    plain, cancelled = claims[1], claims[4]
    await other.admit(replace(message(cancelled.run_id), kind=CommandKind.CANCEL))
    commits = [replace(step(claim, events=n % 4), consumed=() if claim is plain else (1,)) for n, claim in enumerate(claims)]
    done = await together(store, commits)
    assert sizes == [[claim.run_id for claim in claims]]
    for claim, found in zip(claims, done, strict=True):
        assert isinstance(found, Committed), found
        assert found.signals.cancel_pending is (claim is cancelled), "a cancel that nobody has consumed stays"
        assert [command.seq for command in found.commands] == ([2] if claim is cancelled else [])
        assert [c.seq for c in (await store.refresh(claim.run_id, claim.epoch)).commands] == (
            [1] if claim is plain else found.signals.cancel_pending * [2]
        )
        await check_run(store, claim.run_id)
    await other._database.write(lambda tx: tx.run("UPDATE moor_command SET taken_step = 0 WHERE run_id = $1", plain.run_id))
    again = [step(claim, n=1) for claim in claims]
    again[1], again[4] = replace(again[1], consumed=(1,)), replace(again[4], consumed=(2,))
    later = await together(store, again)
    assert isinstance(later[1], Broken), "what is not there to be consumed is this member's trouble alone"
    assert [one.step_no for one in later if isinstance(one, Committed)] == [2] * 8
    assert not (await store.refresh(cancelled.run_id, cancelled.epoch)).signals.cancel_pending
    await check_run(store, cancelled.run_id)
    await check_run(store, claims[7].run_id)


async def test_a_batch_leaves_the_same_rows_as_so_many_statements(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    sizes = Sizes(store)
    claims = await held(store, 10)
    alone, batched = claims[:5], claims[5:]
    shapes = [{"events": n % 4, "redactions": 0 if n % 2 else None} for n in range(5)]
    for n in range(2):
        for claim, shape in zip(alone, shapes, strict=True):
            await store.commit(replace(step(claim, n=n, **shape), turn_id=f"turn{n}" if n else None))  # type: ignore[arg-type]
        made = [step(claim, n=n, **shape) for claim, shape in zip(batched, shapes, strict=True)]  # type: ignore[arg-type]
        done = await together(store, [replace(commit, turn_id=f"turn{n}" if n else None) for commit in made])
        assert all(isinstance(found, Committed) for found in done), done
    assert [len(size) for size in sizes] == [5, 5]
    differ = {"run_id", "session_key", "header", "body", "input", "output", "created_at", "wake_at", "lease_until"}
    connection = await asyncpg.connect(dsn(migrated_url))
    for one, other in zip(alone, batched, strict=True):
        for table in (
            "moor_run WHERE run_id = $1",
            "moor_step WHERE run_id = $1 ORDER BY n",
            "moor_event WHERE run_id = $1 ORDER BY seq",
        ):
            left, right = [
                [
                    {
                        name: value
                        for name, value in row.items()
                        if name not in differ and not name.endswith("_at") and name != "at"
                    }
                    for row in await connection.fetch(f"SELECT * FROM {table}", claim.run_id)
                ]
                for claim in (one, other)
            ]
            assert left == right
        times = "SELECT r.last_at, r.step_started_at, max(s.completed_at) AS c FROM moor_run r JOIN moor_step s USING (run_id)"
        for claim in (one, other):
            row = await connection.fetchrow(f"{times} WHERE run_id = $1 GROUP BY r.run_id", claim.run_id)
            assert row["last_at"] == row["step_started_at"] == row["c"]
    await connection.close()


async def test_no_run_is_twice_in_a_batch_and_none_is_too_big(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PATIENCE_SECONDS", LEASE)
    store = await open_one()
    sizes = Sizes(store)
    claims = await held(store, MOST + 6)
    done = await together(store, [step(claim) for claim in (*claims, *claims[:3])])
    assert [isinstance(found, Committed) for found in done] == [True] * len(claims) + [False] * 3
    assert all(isinstance(found, LeaseLost) for found in done[len(claims) :])
    assert [len(size) for size in sizes] == [MOST, 9]
    assert all(len(set(size)) == len(size) for size in sizes)
    for claim in claims:
        assert len(await store.steps(claim.run_id)) == 1


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError("x"), asyncpg.DataError("x"), asyncpg.QueryCanceledError("x")])
async def test_the_members_of_a_batch_that_fails_are_done_alone(open_one: Open, error: Exception) -> None:
    store = await open_one()
    sizes = Sizes(store)
    claims = await held(store, 6)
    sizes.error = error
    done = await together(store, [step(claim, events=2) for claim in claims])
    assert all(isinstance(found, Committed) for found in done), done
    assert [len(size) for size in sizes] == [6]
    for claim in claims:
        await check_run(store, claim.run_id)


async def test_a_member_that_can_never_be_written_fails_alone(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    claims = await held(store, 6)
    connection = await asyncpg.connect(dsn(migrated_url))
    await connection.execute(
        "INSERT INTO moor_step"
        " (run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at)"
        " VALUES ($1, 0, 'x', 'x', 1, 1, 'x', '', '', 0, 0)",
        claims[2].run_id,
    )
    await connection.close()
    done = await together(store, [step(claim) for claim in claims])
    assert isinstance(done[2], Broken)
    assert sum(isinstance(found, Committed) for found in done) == 5


async def test_a_row_that_another_transaction_holds_keeps_nobody_else_waiting(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    claims = await held(store, 5)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE moor_run SET inbox_seq = 2, wake_at = 1 WHERE run_id = $1", claims[0].run_id)
    waiting, *others = await gathered(store, [step(claim, events=1) for claim in claims])
    await asyncio.gather(*others)
    await blocked_on(other, claims[0].run_id, waiting)
    await transaction.commit()
    await other.close()
    assert (await waiting).signals.inbox_seq == 2


async def test_a_commit_that_waits_for_its_row_keeps_nobody_else_waiting(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    claims = await held(store, 5)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE moor_run SET inbox_seq = 2, wake_at = 1 WHERE run_id = $1", claims[0].run_id)
    waiting = asyncio.create_task(store.commit(step(claims[0])))
    await blocked_on(other, claims[0].run_id, waiting)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(store.commit(step(claim)) for claim in claims[1:]))
        await store.commit(step(claims[1], n=1))
    assert not waiting.done()
    await transaction.commit()
    await other.close()
    assert (await waiting).signals.inbox_seq == 2
    assert store._holding._batches._under_way == 0


async def test_a_connection_that_is_lost_leaves_the_fate_of_each_unknown(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    claims = await held(store, 4)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("LOCK TABLE moor_step IN SHARE MODE")
    tasks = await gathered(store, [step(claim) for claim in claims])
    await blocked_on(other, claims[0].run_id, tasks[0])
    blocked = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    assert len(await other.fetch(blocked)) == 1
    done = await asyncio.gather(*tasks, return_exceptions=True)
    await transaction.commit()
    await other.close()
    assert all(isinstance(found, CommitUnknown) for found in done), done
    assert [(await store.refresh(claim.run_id, claim.epoch)).step_no for claim in claims] == [0] * len(claims)
    assert all(isinstance(found, Committed) for found in await together(store, [step(claim) for claim in claims]))


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
async def test_each_member_passes_the_failpoints_for_itself(open_one: Open, point: str) -> None:
    store = await open_one()
    claims = await held(store, 4)
    hits = 0

    def third() -> None:
        nonlocal hits
        hits += 1
        if hits == 3:
            raise CommitUnknown("the answer is lost")

    with failpoints.arm(point, third):
        done = await together(store, [step(claim) for claim in claims])
    assert [isinstance(found, CommitUnknown) for found in done] == [False, False, True, False]
    assert hits == 4
    written = [len(await store.steps(claim.run_id)) for claim in claims]
    assert written == [1, 1, int(point == "commit.after"), 1]


async def test_a_batch_goes_on_when_a_caller_is_cancelled(open_one: Open) -> None:
    store = await open_one()
    claims = await held(store, 3)
    tasks = await gathered(store, [step(claim) for claim in claims])
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    await store._database.finish()
    store._database._closed = False
    assert [len(await store.steps(claim.run_id)) for claim in claims] == [1, 1, 1]


async def test_what_differs_or_is_large_goes_alone(open_one: Open) -> None:
    store = await open_one()
    sizes = Sizes(store)
    claims = await held(store, 6)
    batches = store._holding._batches
    batches._under_way += AT_ONCE  # for those that wait, for ever
    noise = random.Random(1).randbytes(2 * LARGE).hex()
    await store.commit(step(claims[0], events=5))
    await store.commit(step_commit(claims[1]))
    await store.commit(replace(step(claims[2]), release=True))
    await store.commit(replace(step(claims[3]), end="completed", phase=Phase.IDLE))
    large = replace(step(claims[4]).step, output=body(noise))
    await store.commit(replace(step(claims[4]), step=large))
    batches._under_way -= AT_ONCE
    await store.commit(step(claims[5]))
    assert sizes == []


async def test_batches_race_with_zombies_and_admissions_and_lose_nothing(open_one: Open, seed: int) -> None:
    chance = random.Random(seed)
    stores = [await open_one(pool=5) for _ in range(3)]
    sizes = [Sizes(store) for store in stores]
    runs = [(await stores[0].admit(message(ToNew(new=new_run())))).run_id for _ in range(12)]
    tally: Counter[str] = Counter()
    sending = True

    async def send(store: PostgresStore) -> None:
        for _ in range(MESSAGES // 3):
            await store.admit(message(chance.choice(runs)))

    async def work(store: PostgresStore) -> None:
        while True:
            claims = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=LEASE, limit=6))
            if not claims and not sending:
                return
            await asyncio.gather(*(advance(store, claim) for claim in claims))

    async def advance(store: PostgresStore, claim: Claim) -> None:
        stolen = False
        try:
            for n in range(claim.step_no, claim.step_no + STEPS):
                if chance.random() < 0.03:
                    stolen = True
                    await chance.choice(stores)._database.write(lambda tx: tx.run(STEAL, claim.run_id))
                await store.commit(step(claim, n=n, events=chance.randrange(5)))
                tally["committed"] += 1
                assert not stolen
            await store.commit(step_commit(claim, step_n=claim.step_no + STEPS, release=True, phase=Phase.IDLE))
            tally["committed"] += 1
        except LeaseLost:
            assert stolen
            tally["lost"] += 1

    workers = [asyncio.create_task(work(store)) for store in stores]
    await asyncio.gather(*(send(store) for store in stores))
    sending = False
    async with asyncio.timeout(120):
        await asyncio.gather(*workers)
    assert max(len(size) for one in sizes for size in one) > 1
    steps = 0
    for run_id in runs:
        await check_run(stores[0], run_id)
        steps += len(await stores[0].steps(run_id))
    assert steps == tally["committed"]
    left = await stores[0].rows("SELECT count(*) FROM moor_command WHERE taken_step IS NULL", {})
    assert left == [(0,)]
