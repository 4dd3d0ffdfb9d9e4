"""Claims and ends that take one statement: what came in beside them is neither missed nor left without an outcome.

What lives here: the interleavings that a single statement can't see. What does not: the promises themselves (the kit, whose
clock is set by hand, which makes claims look for leases that are over in a transaction of its own).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from durable_core.errors import LeaseLost, SessionEnded
from durable_core.model import Claim, ClaimRequest, Outcome, Phase, RecordKind, RunStatus, SubmissionOutcome, ToNew
from durable_core.stores.postgres.claims import claim as claim_in
from durable_core.stores.postgres.holding import SWEEP_SECONDS
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.store import PostgresStore
from durable_core.stores.postgres.tx import Tx
from durable_core.testing.builders import body, message, new_run, step_commit
from durable_core.testing.histories import check_run
from tests.durable_core.stores.postgres.conftest import Open
from tests.durable_core.stores.postgres.test_races import blocked_on

ROUNDS = 40
LEASE = 60_000
ROOM = ClaimRequest(owner="w1", lease_ms=LEASE, limit=10)


async def taken(store: PostgresStore) -> list[Claim]:
    """Claim by one statement, whatever the sweep has to do."""
    store._holding._swept_at = asyncio.get_running_loop().time() + SWEEP_SECONDS
    return await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=LEASE, limit=10))


async def test_a_claim_brings_what_came_in_and_what_was_recorded(open_one: Open) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    await store.admit(message(receipt.run_id, key="second"))
    (claim,) = await taken(store)
    assert [command.seq for command in claim.commands] == [1, 2]
    assert claim.commands[1].body == message(receipt.run_id).body
    assert (claim.signals.inbox_seq, claim.attempt, claim.owner) == (2, 1, store.incarnation)
    await store.record(
        claim.run_id, claim.epoch, step_n=0, key="k", kind=RecordKind.REPLY, input_hash="", body=body("r"), events=()
    )
    await store.release(claim.run_id, claim.epoch, timer_at=await store.now(), seen=2, unused=False)
    (again,) = await taken(store)
    assert again.epoch == claim.epoch + 1
    assert [record.key for record in again.records] == ["k"]
    assert [command.seq for command in again.commands] == [1, 2]
    assert await taken(store) == []


async def test_a_run_that_cannot_be_opened_is_left_alone(open_one: Open, migrated_url: str) -> None:
    store, other = await open_one(), await open_one()
    bad = await other.admit(message(ToNew(new=new_run())))
    good = await other.admit(message(ToNew(new=new_run())))
    connection = await asyncpg.connect(dsn(migrated_url))
    await connection.execute("UPDATE moor_run SET header = '\\x0102' WHERE run_id = $1", bad.run_id)
    found = await taken(store)
    row = await connection.fetchrow("SELECT owner, attempt, wake_at, last_error FROM moor_run WHERE run_id = $1", bad.run_id)
    await connection.close()
    assert [claim.run_id for claim in found] == [good.run_id]
    assert row is not None
    assert (row["owner"], row["attempt"]) == (None, 0)
    assert row["wake_at"] > await store.now()
    assert row["last_error"]


@pytest.mark.parametrize("recovering", [None, 16])
async def test_a_claim_keeps_no_lost_run_from_others_that_it_has_no_room_for(open_one: Open, recovering: int | None) -> None:
    store, other = await open_one(), await open_one()
    lost = {(await store.admit(message(ToNew(new=new_run())))).run_id for _ in range(3)}
    dead = replace(ROOM, owner="w_dead")
    assert len(await store.claim(dead)) == 3
    await store.reap("w_dead")
    request = replace(ROOM, limit=1, recovering=recovering)
    beside: list[Claim] = []

    async def take(tx: Tx) -> list[str]:
        mine = [claim.run_id for claim, _ in await claim_in(tx, request, sweep=False)]
        beside.extend(await other.claim(replace(request, owner=other.incarnation, limit=2)))
        return mine

    (mine,) = await store._database.write(take)
    assert {claim.run_id for claim in beside} == lost - {mine}


async def test_a_claim_misses_nothing_that_comes_in_beside_it(open_one: Open) -> None:
    store, sender = await open_one(), await open_one()
    run_id = (await store.admit(message(ToNew(new=new_run())))).run_id
    count = 1
    for number in range(ROUNDS):
        sending = [asyncio.create_task(sender.admit(message(run_id, key=f"{number}.{n}"))) for n in range(3)]
        claims: list[Claim] = []
        while not claims:
            claims = await taken(store)
        await asyncio.gather(*sending)
        count += 3
        (claim,) = claims
        seen = claim.signals.inbox_seq
        assert [command.seq for command in claim.commands] == list(range(seen - len(claim.commands) + 1, seen + 1))
        consumed = tuple(command.seq for command in claim.commands)
        outcomes = tuple(
            SubmissionOutcome(submission_id=command.submission_id, outcome=Outcome.COMPLETED) for command in claim.commands
        )
        done = step_commit(claim, consumed=consumed, outcomes=outcomes, phase=Phase.IDLE, release=True)
        await store.commit(replace(done, seen=seen, timer_at=await store.now()))
    while claims := await taken(store):
        (claim,) = claims
        consumed = tuple(command.seq for command in claim.commands)
        await store.commit(step_commit(claim, consumed=consumed, phase=Phase.IDLE, release=True))
        if claim.signals.inbox_seq == count:
            break
    rows = await store.rows("SELECT count(*) FROM moor_command WHERE run_id = :run_id AND taken_step IS NULL", {"run_id": run_id})
    assert rows == [(0,)]
    await check_run(store, run_id)


async def test_an_end_that_waited_for_the_row_ends_what_came_in_meanwhile(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    (claim,) = await taken(store)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE moor_run SET inbox_seq = 2 WHERE run_id = $1", receipt.run_id)
    end = step_commit(claim, phase=Phase.IDLE, end="completed")
    ending = asyncio.create_task(store.commit(replace(end, seen=1)))
    await blocked_on(other, receipt.run_id, ending)
    await other.execute(
        "INSERT INTO moor_command (run_id, seq, kind, body, submission_id, principal, at)"
        " SELECT run_id, 2, kind, body, 'sub_late', principal, at FROM moor_command WHERE run_id = $1",
        receipt.run_id,
    )
    await other.execute(
        "INSERT INTO moor_admission (source, key, submission_id, run_id, seq, kind, digest, at)"
        " SELECT source, 'late', 'sub_late', run_id, 2, kind, digest, at FROM moor_admission WHERE run_id = $1",
        receipt.run_id,
    )
    await transaction.commit()
    await ending
    outcome = await other.fetchval("SELECT outcome FROM moor_admission WHERE submission_id = 'sub_late'")
    await other.close()
    assert outcome == "aborted"
    assert (await store.run(receipt.run_id)).status is RunStatus.ENDED
    await check_run(store, receipt.run_id)


@pytest.mark.parametrize("plain", [True, False])
async def test_an_end_leaves_the_same_rows_in_one_statement_as_in_many(open_one: Open, migrated_url: str, *, plain: bool) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    (claim,) = await taken(store)
    if not plain:
        store._holding.let_go(receipt.run_id)
    outcome = SubmissionOutcome(submission_id=receipt.submission_id, outcome=Outcome.COMPLETED, detail=body("d"), reply_step=0)
    await store.commit(step_commit(claim, outcomes=(outcome,), phase=Phase.IDLE, end="completed"))
    connection = await asyncpg.connect(dsn(migrated_url))
    row = await connection.fetchrow("SELECT * FROM moor_run WHERE run_id = $1", receipt.run_id)
    await connection.close()
    assert row is not None
    kept = {name: row[name] for name in ("status", "phase", "turn_id", "end_reason", "owner", "epoch", "step_no", "attempt")}
    assert kept == {
        "status": "ended",
        "phase": "idle",
        "turn_id": None,
        "end_reason": "completed",
        "owner": None,
        "epoch": claim.epoch + 1,
        "step_no": 1,
        "attempt": 0,
    }
    nothing = ("lease_until", "wake_at", "retry_at", "step_started_at", "stranded", "purge_at")
    assert [row[name] for name in nothing] == [None] * len(nothing)
    assert row["ended_at"] == row["last_at"]
    assert (row["cancel_seq"], row["inbox_seq"]) == (0, 1)
    assert (await store.submission(receipt.submission_id)).outcome is Outcome.COMPLETED
    with pytest.raises(LeaseLost):
        await store.commit(step_commit(claim))
    with pytest.raises(SessionEnded):
        await store.admit(message(receipt.run_id, key="after"))
    await check_run(store, receipt.run_id)
