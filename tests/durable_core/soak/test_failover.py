"""A PostgreSQL server is lost and its standby promoted: what was acknowledged is there, each step is recorded once.

What lives here: losing it by kill -9, by silence, by being made read only; an old primary that comes back. What does not: lost
connections and restarts of one server (tests/durable_core/stores/postgres/test_faults.py, test_restarted_server.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import pytest

from durable_core import schema
from durable_core.clock import DatabaseClock
from durable_core.errors import Broken, CommitUnknown, NotFound, Unavailable
from durable_core.model import Claim, ClaimRequest, StepCommit, StepDraft, ToNew
from durable_core.stores.postgres.connect import connect
from durable_core.stores.postgres.servers import Seen
from durable_core.stores.postgres.store import PostgresStore
from durable_core.testing.builders import body, message, new_run
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.soak import app
from tests.durable_core.soak.effects import PostgresEffects, repeated
from tests.durable_core.soak.fleet import fleet
from tests.durable_core.soak.scale import FULL
from tests.durable_core.stores.postgres.relay import Relay
from tests.postgres import PrivatePostgres
from tests.standby import Pair, pair

WORKERS = 4 if FULL else 2
RUNS = 500 if FULL else 12
"""Started before each switch, and as many after it."""
SWITCHES = 4 if FULL else 1
REFUSED = 100 if FULL else 6
"""Connections that land on the standby before it is promoted."""
BOUND = 600
PATIENCE_SECONDS = 30
HERE = "SELECT current_setting('data_directory')"


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair(durable=FULL) as made:
        yield made


@pytest.fixture
def following(servers: Pair) -> Pair:
    """Give the pair as it was made: one leads, the other follows."""
    if servers.promoted:
        servers.mend()
    return servers


@pytest.fixture
def promoted(servers: Pair) -> Pair:
    """Give the pair with both taking writes: the old primary wasn't told that the other one was promoted."""
    if not servers.promoted:
        servers.promote()
    return servers


@pytest.fixture
async def store_on() -> AsyncIterator[Callable[[str], PostgresStore]]:
    """Make stores on URLs; those that were opened are closed at the end."""
    made: list[PostgresStore] = []

    def store_on(url: str) -> PostgresStore:
        made.append(postgres_store(url, DatabaseClock(), pool=3))
        return made[-1]

    yield store_on
    for store in made:
        await store.close()


async def held(store: PostgresStore) -> StepCommit:
    """Take a run, and return the commit of its first step."""
    await store.admit(message(ToNew(new=new_run())))
    (claim,) = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1))
    return first_step(claim)


def first_step(claim: Claim) -> StepCommit:
    draft = StepDraft(kind="turn", name="x", input=body("in"), output=body("out"))
    return StepCommit(run_id=claim.run_id, epoch=claim.epoch, step_n=0, step=draft, seen=1)


async def finished(store: PostgresStore, commit: StepCommit) -> list[Unavailable]:
    """Commit as soon as the database is there; return what it said before."""
    errors: list[Unavailable] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                assert (await store.commit(commit)).step_no == 1
            except Unavailable as error:
                errors.append(error)
                await asyncio.sleep(0.01)
            else:
                return errors


async def is_on(store: PostgresStore, server: PrivatePostgres) -> bool:
    return await store.rows(HERE, {}) == [(str(server.folder / "data"),)]


async def test_a_standby_is_no_server_to_work_on(following: Pair, store_on: Callable[[str], PostgresStore]) -> None:
    url = following.url(following.follows)
    with pytest.raises(Unavailable, match="standby"):
        await store_on(url).open()
    with pytest.raises(Unavailable, match="read-only"):
        await asyncio.to_thread(schema.upgrade, url)


async def test_of_several_hosts_the_one_that_takes_writes_is_found(
    following: Pair, store_on: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.servers.OTHERS_SECONDS", 0.1)
    url = following.url(following.follows, following.leads)
    assert not (await asyncio.to_thread(schema.upgrade, url)).changed
    async with Relay.before(following.url(following.leads)) as (relay, silent):
        relay.fall_silent()
        store = store_on(f"{url},{silent.partition('host=')[2]}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.open()
        assert await is_on(store, following.leads)
        await store.close()
    connection = await connect(url, pooler=True)  # which tells of no server what it is
    assert await connection.fetchval(HERE) == str(following.leads.folder / "data")
    await connection.close()
    with pytest.raises(Unavailable, match="standby"):
        await connect(f"{following.url(following.follows)},/nowhere", pooler=True)


async def test_what_no_standby_has_is_not_seen_though_whoever_sent_it_gave_up(
    following: Pair, store_on: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To cancel a commit that waits for the standby makes it count."""
    monkeypatch.setattr("durable_core.stores.postgres.connect.STATEMENT_SECONDS", 0.3)
    store = store_on(following.url(following.leads))
    await store.open()
    first = message(ToNew(new=new_run()), key="k")
    await asyncio.to_thread(following.follows.kill)
    with pytest.raises(CommitUnknown):
        await store.admit(first)
    with pytest.raises(NotFound):
        await store.submission(first.submission_id)
    with pytest.raises(Unavailable):
        await store.admit(message(ToNew(new=new_run()), key="k"))
    await asyncio.to_thread(following.follows.start)
    receipt = None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while receipt is None:
            with suppress(Unavailable):
                receipt = await store.admit(message(ToNew(new=new_run()), key="k"))
    assert (receipt.submission_id, receipt.deduplicated) == (first.submission_id, True)


async def test_a_server_that_falls_silent_or_takes_no_writes_any_more_is_left_for_the_promoted_one(
    following: Pair, store_on: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.listen._LOOK_SECONDS", 0.2)
    monkeypatch.setattr("durable_core.stores.postgres.servers.OTHERS_SECONDS", 0.1)
    monkeypatch.setattr("durable_core.stores.postgres.servers.AGAIN_SECONDS", 0.1)
    old, new = following.leads, following.follows
    async with Relay.before(following.url(old)) as (relay, url):
        silenced, demoted = store_on(f"{url},{new.folder}"), store_on(following.url(old, new))
        commits = []
        for store in (silenced, demoted):
            await store.open()
            commits.append(await held(store))
        relay.fall_silent()
        under_way = asyncio.create_task(silenced.commit(commits[0]))
        await asyncio.to_thread(old.set, "default_transaction_read_only", "on")
        await asyncio.to_thread(following.promote)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(CommitUnknown):
                await under_way
        for store, commit in zip((silenced, demoted), commits, strict=True):
            errors = await finished(store, commit)
            assert not any(isinstance(error, Broken) for error in errors)
            assert sum("read-only transaction" in error.reason for error in errors) <= 1, "such a connection is lent once"
            assert await is_on(store, new)
        await silenced.close()
    await asyncio.to_thread(old.set, "default_transaction_read_only", "off")


async def test_an_old_primary_that_takes_writes_again_is_not_gone_back_to(
    promoted: Pair, store_on: Callable[[str], PostgresStore]
) -> None:
    old, new = promoted.follows, promoted.leads
    both = promoted.url(old, new)
    store = store_on(both)
    await store.open()
    assert await is_on(store, new), "the newer one of two"
    seen = Seen()
    for url in (both, promoted.url(new, old)):
        connection = await connect(url, seen=seen)
        assert await connection.fetchval(HERE) == str(new.folder / "data")
        await connection.close()
    with pytest.raises(Unavailable, match="old primary"):
        await connect(f"{promoted.url(old)},/nowhere", seen=seen)


async def test_on_a_promoted_server_a_new_process_calls_nobody_dead_at_once(
    promoted: Pair, store_on: Callable[[str], PostgresStore]
) -> None:
    """It was started long before, and the locks of all who lived on the other one are free."""
    store = store_on(promoted.url(promoted.leads))
    await store.open()
    assert store._ear is not None
    assert store._ear.reconnected_at is not None


async def test_nothing_acknowledged_is_lost_when_the_server_dies_and_its_standby_is_promoted(following: Pair) -> None:
    url = following.url(following.leads, following.follows)
    effects = PostgresEffects(f"{url}&target_session_attrs=read-write")
    async with app.engine_on(url) as engine, fleet(url, url, WORKERS):
        before = await engine.store.rows("SELECT count(*) FROM moor_run", {})
        ids = await app.started(engine, RUNS)
        for number in range(SWITCHES):
            if number:
                await asyncio.to_thread(following.mend)
            await asyncio.to_thread(following.switch, REFUSED)
            ids += await app.started(engine, RUNS)
        results = await asyncio.gather(*(engine.run(run_id).result(BOUND) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        again = repeated(recorded, await effects.all())
        after = await engine.store.rows("SELECT count(*) FROM moor_run", {})
    await effects.close()
    assert int(after[0][0] or 0) - int(before[0][0] or 0) == len(ids), "no start was made twice"
    assert list(recorded.values()) == results
    assert {len(nonces) for nonces in results} == {app.STEPS}
    print(f"{len(ids)} runs, {len(again)} effects repeated")
