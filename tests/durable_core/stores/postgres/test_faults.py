"""Lost connections, a restarted server, callers that give up: nothing is lost, and no fate is guessed."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from durable_core import failpoints
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.errors import Broken, CommitUnknown, KeyMissing, KeyWrong, SchemaOutdated, Unavailable
from durable_core.model import Claim, ClaimRequest, Extra, StepCommit, StepDraft, ToNew
from durable_core.stores.open import StoreOptions, open_store
from durable_core.stores.postgres import connect
from durable_core.stores.postgres.connect import Pool, Settings, is_lost, sorted_error
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.listen import Ear
from durable_core.stores.postgres.servers import Seen
from durable_core.stores.postgres.store import PostgresStore
from durable_core.testing.builders import body, message, new_run, to_address
from tests.durable_core.conformance.postgres import KEYS, postgres_store
from tests.durable_core.stores.postgres.conftest import Open
from tests.durable_core.stores.postgres.relay import Relay
from tests.postgres import PrivatePostgres, find_binaries

PATIENCE_SECONDS = 60


async def cut(url: str) -> None:
    """Cut all other connections to a database, and wait until they are."""
    connection = await asyncpg.connect(dsn(url))
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def held(store: PostgresStore) -> Claim:
    await store.admit(message(ToNew(new=new_run())))
    (claim,) = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1))
    return claim


def step(claim: Claim, n: int = 0) -> StepCommit:
    draft = StepDraft(kind="turn", name="x", input=body("in"), output=body("out"))
    return StepCommit(run_id=claim.run_id, epoch=claim.epoch, step_n=n, step=draft, seen=1)


async def test_a_pool_whose_connections_were_cut_recovers_by_itself(open_one: Open, migrated_url: str) -> None:
    store = await open_one(pool=3)
    claim = await held(store)
    await cut(migrated_url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await store.run(claim.run_id)
                break
            except Unavailable:
                await asyncio.sleep(0)
    assert (await store.commit(step(claim))).step_no == 1


async def test_a_connection_in_doubt_is_lent_to_nobody_who_had_waited_for_it(migrated_url: str) -> None:
    pool = Pool(Settings(url=migrated_url, pool=1))
    old = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    pool.give_back(old)
    pool.doubt()  # before whoever waited goes on
    new = await waiting
    assert new is not old
    assert old.is_closed()
    second = asyncio.create_task(pool.acquire())
    third = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    pool.give_back(new)
    second.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await third is new
    pool.give_back(new)
    await pool.close()


@pytest.mark.parametrize("plain", [True, False])
async def test_a_connection_that_is_lost_while_a_commit_waits_leaves_its_fate_unknown_and_nothing_written(
    open_one: Open, migrated_url: str, plain: bool
) -> None:
    store = await open_one()
    claim = await held(store)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE moor_run SET last_at = last_at WHERE run_id = $1", claim.run_id)
    if not plain:
        store._holding.let_go(claim.run_id)
    committing = asyncio.create_task(store.commit(step(claim)))
    waiting = "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while (pid := await other.fetchval(waiting)) is None:
        await asyncio.sleep(0)
    await other.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises(Unavailable) as raised:
        await committing
    assert isinstance(raised.value, CommitUnknown) is plain, "before its COMMIT a transaction's fate is known"
    await transaction.commit()
    await other.close()
    assert (await store.refresh(claim.run_id, claim.epoch)).step_no == 0
    assert (await store.commit(step(claim))).step_no == 1


async def test_an_answer_lost_after_the_commit_is_found_by_reading(open_one: Open) -> None:
    store = await open_one()
    claim = await held(store)

    def lose() -> None:
        raise CommitUnknown("the answer is lost")

    with failpoints.arm("commit.after", lose), pytest.raises(CommitUnknown):
        await store.commit(step(claim))
    again = await store.refresh(claim.run_id, claim.epoch)
    assert again.step_no == 1
    assert (await store.commit(step(claim, 1))).step_no == 2


async def test_a_commit_goes_on_when_its_caller_is_cancelled(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    claim = await held(store)
    other = await asyncpg.connect(dsn(migrated_url))
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE moor_run SET last_at = last_at WHERE run_id = $1", claim.run_id)
    committing = asyncio.create_task(store.commit(step(claim)))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while not await other.fetchval(waiting):
        await asyncio.sleep(0)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    await transaction.commit()
    await other.close()
    await store._database.finish()
    store._database._closed = False
    assert [done.n for done in await store.steps(claim.run_id)] == [0]


async def test_closing_finishes_what_was_begun(open_one: Open) -> None:
    store, reader = await open_one(), await open_one()
    sent = [asyncio.create_task(store.admit(message(ToNew(new=new_run())))) for _ in range(30)]
    await asyncio.sleep(0)
    await store.close()
    receipts = await asyncio.gather(*sent)
    for receipt in receipts:
        assert (await reader.run(receipt.run_id)).run_id == receipt.run_id
    with pytest.raises(Unavailable):
        await store.admit(message(ToNew(new=new_run())))


async def test_a_deadlock_is_run_again(open_one: Open) -> None:
    """Two admissions whose extra statements lock each other's rows: the layers above can't know of lock orders."""
    one, other = await open_one(), await open_one()
    runs = [(await one.admit(message(to_address(f"console:v1:{name}", new=new_run())))).run_id for name in "ab"]
    touch = "UPDATE moor_run SET last_at = last_at WHERE run_id = :run_id"

    async def cross(store: PostgresStore, here: str, there: str) -> None:
        for _ in range(10):
            await store.admit(message(here, extra=(Extra(sql=touch, parameters={"run_id": there}),)))

    async with asyncio.timeout(PATIENCE_SECONDS * 2):
        await asyncio.gather(cross(one, *runs), cross(other, *reversed(runs)))
    for run_id in runs:
        assert len(await one.rows("SELECT seq FROM moor_command WHERE run_id = :run_id", {"run_id": run_id})) == 11


async def test_a_reading_statement_cannot_write(open_one: Open) -> None:
    store = await open_one()
    with pytest.raises(Broken):
        await store.rows("DELETE FROM moor_run", {})


async def test_other_keys_are_refused_at_start(open_one: Open, migrated_url: str) -> None:
    await held(await open_one())
    for keys, error in ((KEYS.replace("A" * 43, "B" + "A" * 42), KeyWrong), (new_key_entry(), KeyMissing)):
        store = open_store(migrated_url, keys=KeyRing.parse(keys), clock=DatabaseClock())
        with pytest.raises(error):
            await store.open()


async def test_a_database_without_the_schema_is_refused(postgres_url: str) -> None:
    with pytest.raises(SchemaOutdated):
        await postgres_store(postgres_url, DatabaseClock()).open()


async def test_an_address_without_a_server_is_unavailable_and_one_without_the_database_is_broken(postgres_url: str) -> None:
    for url, error in (
        (postgres_url.replace("host=", "host=/nowhere-"), Unavailable),
        (postgres_url.replace("/moor_", "/none_"), Broken),
    ):
        store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock(), options=StoreOptions(pool=1))
        with pytest.raises(error):
            await store.open()


async def test_a_server_that_says_it_stops_and_is_not_gone_yet_is_unavailable_and_no_connection_is_kept(
    migrated_url: str,
) -> None:
    async with Relay.before(migrated_url) as (relay, url):
        store = postgres_store(url, DatabaseClock(), pool=2)
        await store.open()
        claim = await held(store)
        relay.stop()
        await asyncio.sleep(0)
        errors = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    done = await store.commit(step(claim))
                except Unavailable as error:
                    errors.append(error)
                    await asyncio.sleep(0)
                else:
                    assert done.step_no == 1
                    break
        assert len(errors) <= 2, "a connection that failed was lent again"
        admitted = await asyncio.gather(*(store.admit(message(ToNew(new=new_run()))) for _ in range(8)))
        assert len({receipt.run_id for receipt in admitted}) == 8
        await store.close()


async def test_where_the_server_has_no_connection_left_those_that_there_are_serve_all(
    open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_one()
    assert len(store._database._pool._idle) == 1
    tried = asyncio.Event()

    async def refused(_url: str, *, pooler: bool, seen: Seen) -> asyncpg.Connection:
        tried.set()
        await asyncio.sleep(0)
        assert not pooler
        raise sorted_error(error) from error

    error = asyncpg.TooManyConnectionsError("sorry, too many clients already")
    monkeypatch.setattr("durable_core.stores.postgres.connect.connect", refused)
    receipts = await asyncio.gather(*(store.admit(message(ToNew(new=new_run()))) for _ in range(20)))
    assert len({receipt.run_id for receipt in receipts}) == 20
    assert tried.is_set()


async def test_where_there_is_no_connection_at_all_nobody_waits_for_one(
    open_one: Open, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_one()

    async def refused(_url: str, *, pooler: bool, seen: Seen) -> asyncpg.Connection:
        await asyncio.sleep(0)
        assert not pooler
        raise sorted_error(error) from error

    error = asyncpg.TooManyConnectionsError("sorry, too many clients already")
    monkeypatch.setattr("durable_core.stores.postgres.connect.connect", refused)
    await cut(migrated_url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        tries = (store.admit(message(ToNew(new=new_run()))) for _ in range(20))
        errors = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(error) for error in errors} <= {Unavailable, CommitUnknown}


async def test_a_listener_that_the_database_cuts_short_says_so_in_a_sentence(postgres_url: str) -> None:
    class Impatient:
        def terminate(self) -> None: ...
        def remove_termination_listener(self, _listener: object) -> None: ...
        async def add_listener(self, *_: object) -> None:
            raise asyncpg.QueryCanceledError("canceling statement due to statement timeout")

    async def connect(_url: str, *, seen: Seen) -> Impatient:
        return Impatient()

    ear = Ear(Settings(url=postgres_url), "inc_1", lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable_core.stores.postgres.listen.connect", connect)
        with pytest.raises(Unavailable):
            await ear.open()


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (asyncpg.IdleInTransactionSessionTimeoutError("it took too long"), True),
        (asyncpg.QueryCanceledError("statement timeout"), False),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), False),
        (asyncpg.DiskFullError("no space left on device"), False),
        (asyncpg.AdminShutdownError("terminating connection"), True),
        (asyncpg.InternalClientError("another operation is in progress"), True),
        (TimeoutError(), True),
    ],
)
def test_what_passes_may_be_tried_again(error: Exception, *, lost: bool) -> None:
    assert isinstance(sorted_error(error), Unavailable)
    assert is_lost(error) is lost


def test_a_url_that_says_nonsense_is_not_tried_again() -> None:
    assert isinstance(sorted_error(asyncpg.ClientConfigurationError("`sslmode` must be one of")), Broken)


class TestRestart:
    @pytest.fixture
    async def server(self, postgres: PrivatePostgres) -> AsyncIterator[PrivatePostgres]:
        """Give a server of its own, that may be stopped."""
        binaries = find_binaries()
        assert binaries is not None
        server = await asyncio.to_thread(PrivatePostgres, binaries)
        yield server
        await asyncio.to_thread(server.stop)

    async def test_a_restarted_server_is_found_again_with_everything_in_it(self, server: PrivatePostgres) -> None:
        from durable_core import schema

        url = server.url(await asyncio.to_thread(server.create))
        await asyncio.to_thread(schema.upgrade, url)
        store = postgres_store(url, DatabaseClock())
        await store.open()
        claim = await held(store)
        await asyncio.to_thread(server.restart)
        done = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while done is None:
                try:
                    done = await store.commit(step(claim))
                except CommitUnknown:  # an idle connection that the server has closed: it was never sent
                    continue
                except Unavailable:
                    await asyncio.sleep(0.05)
        assert done.step_no == 1
        await store.close()


@contextmanager
def forked() -> Iterator[None]:
    """A child of this process, as `multiprocessing` makes them, that does nothing and outlives what happens here."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: there are threads, and the child uses none of them
        child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)


async def test_a_forked_child_does_not_keep_its_dead_parent_connected(open_one: Open, migrated_url: str) -> None:
    store = await open_one()
    assert await store.rows("SELECT 1", {}) == [(1,)]
    own = [one for one in connect._OPEN if not one.is_closed()]
    pids = [one.get_server_pid() for one in own]
    assert len(pids) >= 2, "the one that listens and one of the pool"
    with forked():
        assert await store.rows("SELECT 1", {}) == [(1,)]  # the parent's are as they were
        for connection in own:
            sink = os.open(os.devnull, os.O_RDWR)
            os.dup2(sink, connection._transport.get_extra_info("socket").fileno())  # as the end of a process does: without a word
            os.close(sink)
            connection.terminate()
        other = await asyncpg.connect(dsn(migrated_url))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await other.fetch("SELECT FROM pg_stat_activity WHERE pid = ANY($1::int[])", pids):
                await asyncio.sleep(0.01)
        await other.close()
