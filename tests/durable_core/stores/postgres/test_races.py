"""Races of many connections on one database: what breaks a store that reads before it locks.

Each of these was seen to lose or double something in statements that look right; here they are played against the store. The
sizes are small; `MOORINGS_TEST_FULL=1` plays them as often as they were found with.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import replace

import asyncpg
import pytest

from durable_core.errors import LeaseLost
from durable_core.model import (
    Admission,
    Claim,
    ClaimRequest,
    EventDraft,
    Outcome,
    Phase,
    RecordKind,
    StepCommit,
    StepDraft,
    SubmissionOutcome,
    ToNew,
)
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.store import PostgresStore
from durable_core.testing.builders import body, message, new_run, to_address
from durable_core.testing.keyclaims import about
from tests.durable_core.stores.postgres.conftest import Open

FULL = os.environ.get("MOORINGS_TEST_FULL") == "1"
RACERS = 20
ROUNDS = 60 if FULL else 8
STRESS_MESSAGES = 2_000 if FULL else 200
LEASE = 60_000
WRITTEN = ("moor_step", "moor_record", "moor_event", "moor_claim")


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("MOORINGS_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"MOORINGS_TEST_SEED={seed}")
    return seed


@pytest.fixture
async def stores(open_one: Open) -> list[PostgresStore]:
    """Twenty connections in four processes."""
    return [await open_one(pool=RACERS // 4) for _ in range(4)]


async def claimed(store: PostgresStore, run_id: str) -> Claim:
    while True:
        for claim in await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=LEASE, limit=1)):
            assert claim.run_id == run_id
            return claim


def finished(claim: Claim, *, n: int | None = None, release: bool = True, text: str = "done") -> StepCommit:
    """Return a commit that consumes all that the claim knows."""
    return StepCommit(
        run_id=claim.run_id,
        epoch=claim.epoch,
        step_n=claim.step_no if n is None else n,
        step=StepDraft(kind="turn", name="x", input=body("in"), output=body(text)),
        seen=claim.signals.inbox_seq,
        consumed=tuple(command.seq for command in claim.commands),
        outcomes=tuple(
            SubmissionOutcome(submission_id=command.submission_id, outcome=Outcome.COMPLETED) for command in claim.commands
        ),
        events=(EventDraft(type="a", body=body("1")), EventDraft(type="b", body=body("2"), visible=False)),
        phase=Phase.IDLE,
        release=release,
    )


async def blocked_on(connection: asyncpg.Connection, run_id: str, task: asyncio.Task) -> None:
    """Wait until a task's statement waits for a lock that this connection holds."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while not await connection.fetchval(waiting):
        assert not task.done(), "it didn't wait for the row"
        await asyncio.sleep(0)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_message_that_a_commit_waited_for_wakes_the_run(open_one: Open, migrated_url: str, plain: bool) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    claim = await claimed(store, receipt.run_id)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    # an admission holds the row; the commit begins, and so sees what was there before
    put = "UPDATE moor_run SET inbox_seq = inbox_seq + 1, wake_at = coalesce(wake_at, 1) WHERE run_id = $1"
    await other.execute(put, receipt.run_id)
    if not plain:
        store._holding.let_go(receipt.run_id)
    committing = asyncio.create_task(store.commit(finished(claim)))
    await blocked_on(other, receipt.run_id, committing)
    await transaction.commit()
    await committing
    row = await other.fetchrow("SELECT wake_at, inbox_seq, owner FROM moor_run WHERE run_id = $1", receipt.run_id)
    await other.close()
    assert row is not None
    assert row["inbox_seq"] == 2
    assert row["owner"] is None
    assert row["wake_at"] is not None, "it would sleep with a message in its inbox"


@pytest.mark.parametrize("plain", [True, False])
async def test_a_zombie_that_waited_for_the_row_writes_nothing(open_one: Open, migrated_url: str, plain: bool) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    claim = await claimed(store, receipt.run_id)
    other = await asyncpg.connect(dsn(migrated_url))
    record = {"step_n": 0, "key": "k", "kind": RecordKind.REPLY, "input_hash": "", "body": body("zombie")}
    calls = (
        lambda: store.commit(finished(claim, text="zombie")),
        lambda: store.record(claim.run_id, claim.epoch, **record),  # type: ignore[arg-type]
        lambda: store.append(claim.run_id, claim.epoch, (EventDraft(type="z", body=body("z")),)),
        lambda: store.claim_key(about(claim)),
        lambda: store.finish_key(about(claim), body("zombie")),
    )
    for call in calls:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE moor_run SET epoch = epoch + 1 WHERE run_id = $1", receipt.run_id)
        if not plain:
            store._holding.let_go(receipt.run_id)
        late = asyncio.create_task(call())
        await blocked_on(other, receipt.run_id, late)
        await transaction.commit()
        with pytest.raises(LeaseLost):
            await late
        await other.execute("UPDATE moor_run SET epoch = $2 WHERE run_id = $1", receipt.run_id, claim.epoch)
    written = [await other.fetchval(f"SELECT count(*) FROM {table}") for table in WRITTEN]
    await other.close()
    assert written == [0] * len(WRITTEN)


async def test_racing_first_messages_make_one_run_and_lose_nothing(stores: list[PostgresStore]) -> None:
    for number in range(ROUNDS):
        address = f"console:v1:cold-{number}"
        sent = [
            stores[racer % len(stores)].admit(message(to_address(address, new=new_run()), text=str(racer)))
            for racer in range(RACERS)
        ]
        receipts = await asyncio.gather(*sent)
        assert len({receipt.run_id for receipt in receipts}) == 1
        assert sum(receipt.created for receipt in receipts) == 1
        assert sorted(receipt.seq for receipt in receipts) == list(range(1, RACERS + 1))
        claim = await claimed(stores[0], receipts[0].run_id)
        assert sorted(command.submission_id for command in claim.commands) == sorted(
            receipt.submission_id for receipt in receipts
        )
        assert await stores[0].end(claim.run_id, reason="done", events=())


@pytest.mark.parametrize("where", ["new", "address", "run"])
async def test_racing_repeats_of_one_key_get_the_first_receipt(stores: list[PostgresStore], where: str) -> None:
    home = await stores[0].admit(message(to_address("console:v1:home", new=new_run())))
    for number in range(ROUNDS):
        one = message(ToNew(new=new_run()), key=f"key-{number}")

        def target(one: Admission = one, number: int = number) -> Admission:
            if where == "new":
                return replace(one, target=ToNew(new=new_run()))
            if where == "address":
                return replace(one, target=to_address(f"console:v1:{number}", new=new_run()))
            return replace(message(home.run_id, key=f"key-{number}"), digest=one.digest)

        receipts = await asyncio.gather(*(stores[racer % len(stores)].admit(target()) for racer in range(RACERS)))
        assert len({(receipt.submission_id, receipt.run_id, receipt.seq) for receipt in receipts}) == 1
        assert sum(not receipt.deduplicated for receipt in receipts) == 1


async def test_an_address_whose_run_ends_meanwhile_gets_a_new_run(stores: list[PostgresStore]) -> None:
    for number in range(ROUNDS):
        address = f"console:v1:ends-{number}"
        first = await stores[0].admit(message(to_address(address, new=new_run())))
        ending = stores[1].end(first.run_id, reason="over", events=())
        sent = asyncio.gather(*(stores[racer % 4].admit(message(to_address(address, new=new_run()))) for racer in range(8)))
        _, receipts = await asyncio.gather(ending, sent)
        runs = Counter(receipt.run_id for receipt in receipts)
        assert len(set(runs) - {first.run_id}) <= 1, runs
        aborted = [await stores[0].submission(receipt.submission_id) for receipt in receipts if receipt.run_id == first.run_id]
        assert all(submission.outcome is Outcome.ABORTED for submission in aborted)


async def test_what_one_claim_writes_at_once_is_numbered_without_gaps(open_one: Open) -> None:
    store = await open_one()
    receipt = await store.admit(message(ToNew(new=new_run())))
    claim = await claimed(store, receipt.run_id)
    for number in range(ROUNDS):
        drafts = (EventDraft(type="a", body=body(str(number))), EventDraft(type="b", body=body("hidden"), visible=False))
        appended = (store.append(claim.run_id, claim.epoch, drafts) for _ in range(4))
        recorded = (
            store.record(
                claim.run_id,
                claim.epoch,
                step_n=0,
                key=f"{number}.{key}",
                kind=RecordKind.REPLY,
                input_hash="",
                body=body("r"),
                events=drafts,
            )
            for key in (0, 1, 1)
        )
        await asyncio.gather(*appended, *recorded)
    await store.commit(finished(claim))
    found = await store.events(claim.run_id, start=0, limit=10_000, hidden=True)
    assert [event.seq for event in found] == list(range(ROUNDS * 2 * 6 + 3)), "the last one is the store's own"
    assert [event.index for event in found if event.index is not None] == list(range(ROUNDS * 6 + 1))
    assert len(await store.records(claim.run_id, 0)) == ROUNDS * 2


async def test_under_stress_nothing_sticks_and_nothing_is_written_twice(
    stores: list[PostgresStore], migrated_url: str, seed: int
) -> None:
    chance = random.Random(seed)
    runs = [(await stores[0].admit(message(ToNew(new=new_run())))).run_id for _ in range(4)]
    sending = True
    tally: Counter[str] = Counter()

    async def send(store: PostgresStore) -> None:
        for _ in range(STRESS_MESSAGES // 4):
            await store.admit(message(chance.choice(runs)))
            if chance.random() < 0.2:
                await asyncio.sleep(0)

    async def work(store: PostgresStore) -> None:
        while True:
            claims = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=LEASE, limit=2))
            if not claims and not sending:
                return
            for claim in claims:
                await advance(store, claim)

    async def advance(store: PostgresStore, claim: Claim) -> None:
        thief = chance.choice(stores)
        stolen = chance.random() < 0.1
        if chance.random() < 0.5:
            await store.append(claim.run_id, claim.epoch, (EventDraft(type="c", body=body("c")),))
        if stolen:  # taken away and given to all, as when its lease is over
            await thief._database.write(lambda tx: tx.run(STEAL, claim.run_id))
        try:
            await store.commit(finished(claim, release=chance.random() < 0.7))
            tally["committed"] += 1
        except LeaseLost:
            tally["lost"] += 1
            assert stolen
            return
        assert not stolen
        held = await store._database.read(lambda tx: tx.one(HELD, claim.run_id, claim.epoch))
        if held is not None:
            await advance(store, await store.refresh(claim.run_id, claim.epoch))

    workers = [asyncio.create_task(work(store)) for store in stores]
    await asyncio.gather(*(send(store) for store in stores))
    sending = False
    async with asyncio.timeout(120):
        await asyncio.gather(*workers)
    assert tally["lost"] > 0
    connection = await asyncpg.connect(dsn(migrated_url))
    stuck = await connection.fetchval("SELECT count(*) FROM moor_command WHERE taken_step IS NULL")
    unsettled = await connection.fetchval("SELECT count(*) FROM moor_admission WHERE outcome IS DISTINCT FROM 'completed'")
    steps = await connection.fetchval("SELECT count(*) FROM moor_step")
    await connection.close()
    assert (stuck, unsettled, steps) == (0, 0, tally["committed"])
    for run_id in runs:
        found = await stores[0].events(run_id, start=0, limit=100_000, hidden=True)
        assert [event.seq for event in found] == list(range(len(found)))
        visible = [event.index for event in found if event.index is not None]
        assert visible == list(range(len(visible)))
        times = [event.at for event in found]
        assert times == sorted(times)
        commands = await stores[0].rows(SEQS, {"run_id": run_id})
        assert [seq for (seq,) in commands] == list(range(1, len(commands) + 1))


STEAL = """
    UPDATE moor_run SET epoch = epoch + 1, owner = NULL, lease_until = NULL, wake_at = 1 WHERE run_id = $1 AND status = 'open'
"""
HELD = "SELECT 1 FROM moor_run WHERE run_id = $1 AND epoch = $2 AND owner IS NOT NULL"
SEQS = "SELECT seq FROM moor_command WHERE run_id = :run_id ORDER BY seq"
