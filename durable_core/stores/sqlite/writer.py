"""The writer: the only connection that writes, committing what waits as one group (CORE 5).

What lives here: transactions, savepoints, what a failed commit means. What does not: what is written (one file an aggregate).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from durable_core import failpoints
from durable_core.clock import Clock
from durable_core.crypto import SessionKey
from durable_core.errors import CommitUnknown, DurableError, Unavailable
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite import audit
from durable_core.stores.sqlite.connect import sorted_error
from durable_core.stores.sqlite.thread import Op, SqlThread
from durable_core.stores.sqlite.tx import Tx

OnCommit = Callable[[frozenset[str]], None]

ADMIT: Final = "admit"
COMMIT: Final = "commit"
RECORD: Final = "record"
SETTLE: Final = "settle"

_BEFORE: Final = MappingProxyType({ADMIT: "admit.before_commit", COMMIT: "commit.before", SETTLE: "prompt.before_settle"})
_AFTER: Final = MappingProxyType(
    {ADMIT: "admit.after_commit", COMMIT: "commit.after", RECORD: "record.after_commit", SETTLE: "prompt.after_settle"}
)


class Writer(SqlThread):
    """Runs each operation in a savepoint of a shared transaction; answers only after the commit."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        clock: Clock,
        sealing: Sealing,
        on_commit: OnCommit | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("moorings-writer", connect)
        self._clock = clock
        self._sealing = sealing
        self._on_commit = on_commit
        self._check = check
        """Raises what forbids to write at all."""
        self._failed = False
        """Whether the last transaction did, by the database's own fault."""
        self._syncs = True
        """Whether commits wait for the disk; a connection begins so (`connect.py`)."""

    async def data_version(self) -> int:
        """Return a number that changes when another process commits; this writer's own commits don't change it."""
        return await self.run(lambda tx: int(tx.all("PRAGMA data_version")[0][0]), plain=True)

    async def probe(self) -> None:
        """Raise what would keep a transaction from being written now; one is tried only where the last one failed."""
        await self.run(self._probe, plain=True)

    def _answer(self, ops: Sequence[Op[Any]], changed: frozenset[str]) -> None:
        super()._answer(ops, changed)
        if changed and self._on_commit is not None:
            self._on_commit(changed)

    def _run(self, connection: sqlite3.Connection, ops: list[Op[Any]]) -> frozenset[str]:
        fresh: dict[str, SessionKey] = {}
        for op in ops:
            if op.plain:
                self._run_plain(connection, op)
        members = [op for op in ops if not op.plain]
        if not members:
            return frozenset()
        try:
            self._check()
            self._sync(connection, any(not op.soft for op in members))
            connection.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, DurableError) as error:
            self._failed = True
            _fail(members, sorted_error(error) if isinstance(error, sqlite3.Error) else error)
            return frozenset()
        changed: set[str] = set()
        forgotten: set[str] = set()
        done: list[Op[Any]] = []
        for op in members:
            tx = Tx(connection, clock=self._clock, sealing=self._sealing, fresh=fresh)
            if self._run_member(op, tx, alone=len(members) == 1):
                done.append(op)
                changed |= tx.changed
                forgotten |= tx.forgotten
            if not connection.in_transaction:
                # SQLite rolls all back by itself when the disk is full or fails; nothing of this batch is stored.
                self._failed = True
                _fail(members, op.error or Unavailable("the transaction was rolled back"))
                return frozenset()
        if not done:
            _roll_back(connection)
            return frozenset()
        committed = self._commit(connection, done, changed, fresh)
        self._sealing.drop(forgotten)
        return committed

    def _sync(self, connection: sqlite3.Connection, wanted: bool) -> None:  # noqa: FBT001 - the one thing it sets
        """Say whether the next commit waits for the disk. The next one that does takes along what came before it."""
        if wanted is not self._syncs:
            connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._syncs = wanted

    def _probe(self, tx: Tx) -> None:
        self._check()
        connection = tx.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._failed:  # the number that is there, written again: it takes a page
                version = connection.execute("PRAGMA user_version").fetchall()[0][0]
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute("COMMIT")
                self._failed = False
        finally:
            _roll_back(connection)

    def _run_plain(self, connection: sqlite3.Connection, op: Op[Any]) -> None:
        try:
            op.result = op.work(Tx(connection, clock=self._clock, sealing=self._sealing, fresh={}))
        except sqlite3.Error as error:
            op.error = sorted_error(error)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            op.error = error

    def _run_member(self, op: Op[Any], tx: Tx, *, alone: bool) -> bool:
        """Run one operation; a failed one leaves nothing behind. One that is alone needs no savepoint."""
        known = set(tx.fresh)
        connection = tx.connection
        try:
            if not alone:
                connection.execute("SAVEPOINT member")
            op.result = op.work(tx)
            audit.write(tx)
            if not alone:
                connection.execute("RELEASE member")
        except Exception as error:  # noqa: BLE001 - it is the caller's
            op.error = sorted_error(error) if isinstance(error, sqlite3.Error) else error
            for run_id in set(tx.fresh) - known:
                del tx.fresh[run_id]
            if not alone and connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK TO member")
                    connection.execute("RELEASE member")
                    return False
                _roll_back(connection)
            return False
        return True

    def _commit(
        self, connection: sqlite3.Connection, done: list[Op[Any]], changed: set[str], fresh: dict[str, SessionKey]
    ) -> frozenset[str]:
        labels = {op.label for op in done if op.label is not None}
        try:
            _pass(_BEFORE, labels)
        except Exception as error:  # noqa: BLE001 - a test's failpoint
            _roll_back(connection)
            _fail(done, error)
            return frozenset()
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            self._failed = True
            _fail(done, CommitUnknown(str(error)))
            return frozenset()
        self._failed = False
        self._sealing.keep(fresh)
        try:
            _pass(_AFTER, labels)
        except Exception as error:  # noqa: BLE001 - a test's failpoint: committed, the answer lost
            _fail(done, error)
        return frozenset(changed)


def _pass(points: MappingProxyType[str, str], labels: set[str]) -> None:
    for label in labels:
        if name := points.get(label):
            failpoints.hit(name)


def _fail(ops: Sequence[Op[Any]], error: BaseException) -> None:
    for op in ops:
        op.error = op.error or error


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
