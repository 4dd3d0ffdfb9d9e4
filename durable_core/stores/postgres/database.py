"""The database: each operation in a transaction of its own, run again where another one was in its way.

What lives here: beginning, committing, retrying, shielding, what a lost commit means. What does not: what is written (one file
an aggregate), and the pool (`connect.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

import asyncpg

from durable_core import failpoints
from durable_core.clock import Clock
from durable_core.errors import CommitUnknown, DurableError, Unavailable
from durable_core.stores.postgres import audit
from durable_core.stores.postgres.connect import FAULTS, Pool, Settings, collides, is_lost, refuses_writes, sorted_error
from durable_core.stores.postgres.sql import literal, qualified
from durable_core.stores.postgres.tx import Again, Row, Tx
from durable_core.stores.sealing import Sealing

T = TypeVar("T")
OnCommit = Callable[[frozenset[str]], None]

log = logging.getLogger("moorings.store")

ADMIT: Final = "admit"
COMMIT: Final = "commit"
RECORD: Final = "record"
SETTLE: Final = "settle"

_BEFORE: Final = MappingProxyType({ADMIT: "admit.before_commit", COMMIT: "commit.before", SETTLE: "prompt.before_settle"})
_AFTER: Final = MappingProxyType(
    {ADMIT: "admit.after_commit", COMMIT: "commit.after", RECORD: "record.after_commit", SETTLE: "prompt.after_settle"}
)

TRIES: Final = 12
"""How often a transaction is run that others are in the way of."""
_PAUSE: Final = 0.002

_BEGIN: Final = "BEGIN"
# What a crash of the server may undo needn't wait for the disk: prolonging, giving back. Taking does wait: its owner outlives
# the server, and a claim that is undone would be given to another under the same epoch.
_BEGIN_SOFT: Final = "BEGIN; SET LOCAL synchronous_commit = off"
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Database:
    """Runs operations; once one is begun it goes on to its end, even if nobody waits for it any more (CORE 5)."""

    def __init__(self, settings: Settings, *, clock: Clock, sealing: Sealing, on_commit: OnCommit | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._sealing = sealing
        self._on_commit = on_commit
        self._pool = Pool(settings)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # ── operations ──

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, label: str | None = None, soft: bool = False) -> T:
        """Do something in a transaction; `soft` where a crash of the server may undo it."""
        return await self.shield(self.transaction(work, label=label, soft=soft))

    async def read(self, work: Callable[[Tx], Awaitable[T]], *, whole: bool = False) -> T:
        """Read committed rows; `whole` where several statements have to see the same moment."""
        return await self.shield(self.lookup(work, whole=whole))

    async def shield(self, operation: Coroutine[Any, Any, T]) -> T:
        """Wait for an operation that goes on without its caller."""
        if self._closed:
            operation.close()
            raise Unavailable("the store is closed")
        loop = asyncio.get_running_loop()
        task = loop.create_task(operation)
        self._tasks.add(task)
        # what asyncio.shield does with two futures and three callbacks more
        answer: asyncio.Future[T] = loop.create_future()
        task.add_done_callback(partial(self._done, answer))
        return await answer

    async def statement(self, sql: str, *args: Any, label: str | None = None) -> list[Row]:
        """Execute one statement that commits by itself; call it within `shield`.

        Raises:
            CommitUnknown: the connection was lost on the way.
            asyncpg.PostgresError: what the database says of the statement; nothing is written.
        """
        sql = sql if self.settings.namespace is None else qualified(sql, self.settings.namespace)
        pooler = self.settings.pooler
        connection = await self._pool.acquire()
        try:
            if pooler:
                await connection.execute(_BEGIN)
            _pass(_BEFORE, label)
            rows: list[Row] = await connection.fetch(sql, *args)
            if pooler:
                await connection.execute("COMMIT")
        except BaseException as error:
            await self._drop_out(connection, error)
            if isinstance(error, FAULTS) and is_lost(error):
                raise CommitUnknown(str(error)) from error
            raise
        self._pool.give_back(connection)
        _pass(_AFTER, label)
        return rows

    async def attempt(self, sql: str, *args: Any, label: str | None = None) -> Row | None:
        """Return the row of a statement that did all; None when a transaction has to find out what is in its way.

        Raises:
            Unavailable, Broken: for the database's own faults.
        """
        rows = await self.rows_of(sql, *args, label=label)
        return rows[0] if rows else None

    async def rows_of(self, sql: str, *args: Any, label: str | None = None) -> list[Row] | None:
        """Return the rows of a statement that did all; None as `attempt` does.

        Raises:
            Unavailable, Broken: for the database's own faults.
        """
        try:
            return await self.statement(sql, *args, label=label)
        except (asyncpg.DivisionByZeroError, asyncpg.UniqueViolationError):
            return None
        except FAULTS as error:
            if collides(error):
                return None
            raise sorted_error(error) from error

    def tell(self, changed: frozenset[str]) -> None:
        """Tell of runs that a committed transaction changed."""
        if changed and self._on_commit is not None:
            self._on_commit(changed)

    async def notify(self, channel: str, text: str) -> None:
        """Tell other sessions, in one transaction of its own that waits for no disk; goes on while the store is closing.

        Raises:
            Unavailable, Broken: it can't be told.
        """
        connection = await self._pool.acquire()
        try:
            await connection.execute(f"{_BEGIN_SOFT}; SELECT pg_notify({literal(channel)}, {literal(text)}); COMMIT")
        except BaseException as error:
            await self._drop_out(connection, error)
            if isinstance(error, FAULTS):
                raise sorted_error(error) from error
            raise
        self._pool.give_back(connection)

    def doubt(self, *, cut: bool = False) -> None:
        """Begin nothing more on connections that there are: the server may be another one; `cut`: it is, so end what is begun."""
        self._pool.doubt()
        if cut:
            self._pool.cut()

    async def finish(self) -> None:
        """Take nothing more, and wait for what was begun."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Finish what was begun, then disconnect."""
        await self.finish()
        await self._pool.close()

    # ── transactions ──

    async def transaction(self, work: Callable[[Tx], Awaitable[T]], *, label: str | None = None, soft: bool = False) -> T:
        """Do something in a transaction, again as long as another one is in its way; call it within `shield`.

        Raises:
            CommitUnknown: the connection was lost while it was being committed.
            Unavailable, Broken: nothing is written.
        """
        begin = _BEGIN_SOFT if soft else _BEGIN
        tries = 0
        while True:
            connection = await self._pool.acquire()
            tx = Tx(connection, clock=self._clock, sealing=self._sealing, namespace=self.settings.namespace)
            try:
                await connection.execute(begin)
                result = await work(tx)
                closing = audit.closing(tx.entries, self.settings.namespace)
                _pass(_BEFORE, label)
            except (Again, *FAULTS) as error:
                await self._drop_out(connection, error)
                tries += 1
                if not isinstance(error, Again) and not collides(error):
                    raise sorted_error(error) from error
                if tries >= TRIES:
                    raise Unavailable(f"other transactions were in the way {tries} times") from error
                await asyncio.sleep(_PAUSE * random.random() * 2 ** min(tries, 6))  # noqa: S311 - a pause, not a secret
                continue
            except BaseException as error:
                await self._drop_out(connection, error)
                raise
            await self._commit(connection, closing)
            self._sealing.keep({run_id: key for run_id, key in tx.fresh.items() if run_id not in tx.forgotten})
            self._sealing.drop(tx.forgotten)
            self.tell(frozenset(tx.changed))
            _pass(_AFTER, label)
            return result

    async def _commit(self, connection: asyncpg.Connection, closing: str) -> None:
        try:
            tag = await connection.execute(f"{closing}COMMIT")
        except BaseException as error:
            await self._drop_out(connection, error)
            if isinstance(error, FAULTS):
                raise (CommitUnknown(str(error)) if is_lost(error) else sorted_error(error)) from error
            raise
        self._pool.give_back(connection)
        if tag != "COMMIT":
            raise Unavailable(f"the transaction ended by {tag}")

    async def lookup(self, work: Callable[[Tx], Awaitable[T]], *, whole: bool = False) -> T:
        """Read committed rows; call it within `shield`.

        Raises:
            Unavailable, Broken: it can't be read.
        """
        whole = whole or self.settings.pooler
        connection = await self._pool.acquire()
        tx = Tx(connection, clock=self._clock, sealing=self._sealing, namespace=self.settings.namespace)
        try:
            if whole:
                await connection.execute(_BEGIN_READ)
            result = await work(tx)
            if whole:
                await connection.execute("COMMIT")
        except BaseException as error:
            await self._drop_out(connection, error)
            self._sealing.drop(tx.forgotten)
            if isinstance(error, FAULTS):
                raise sorted_error(error) from error
            raise
        self._pool.give_back(connection)
        return result

    async def _drop_out(self, connection: asyncpg.Connection, error: BaseException) -> None:
        """Undo what a connection was doing and give it back; one that failed itself is dropped, closed already or not."""
        usable = not connection.is_closed() and not is_lost(error) and not refuses_writes(error)
        if usable and connection.is_in_transaction():
            usable = False
            with suppress(*FAULTS):
                await connection.execute("ROLLBACK")
                usable = True
        self._pool.give_back(connection, error=error, usable=usable)

    def _done(self, answer: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            answer.cancel()
            return
        error = task.exception()
        if error is not None and not isinstance(error, DurableError):
            log.debug("an operation failed", exc_info=error)
        if answer.done():
            return
        if error is None:
            answer.set_result(task.result())
        else:
            answer.set_exception(error)


def _pass(points: MappingProxyType[str, str], label: str | None) -> None:
    if label is not None and (name := points.get(label)):
        failpoints.hit(name)
