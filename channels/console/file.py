"""The console's SQLite file: its schema, and the one thread that touches it.

What lives here: opening, transactions, errors of the database. What does not: what a thread or a message is.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from channels.errors import DeliveryFailed

T = TypeVar("T")
Read = Callable[[sqlite3.Connection], T]

MEMORY = ":memory:"
_BUSY_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
-- One counter for all changes: it is what a page polls, and every changed row carries it.
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS thread (
  id TEXT PRIMARY KEY, title TEXT NOT NULL, channel TEXT NOT NULL, shared_outside INTEGER NOT NULL,
  created_at INTEGER NOT NULL, last_seq INTEGER NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message (
  id TEXT PRIMARY KEY, thread_id TEXT NOT NULL REFERENCES thread, seq INTEGER NOT NULL, author TEXT NOT NULL,
  text TEXT NOT NULL, card TEXT, notice INTEGER NOT NULL, at INTEGER NOT NULL, edited_at INTEGER,
  version INTEGER NOT NULL, private_to TEXT, UNIQUE (thread_id, seq)
);
-- Serves `messages(thread_id, since_version)`.
CREATE INDEX IF NOT EXISTS message_changed ON message (thread_id, version);
-- Which message a delivery id became: the platform's idempotency, and what `find` reads.
CREATE TABLE IF NOT EXISTS delivery (id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES message) WITHOUT ROWID;
-- Every value a message ever showed: a click on a stale card is delivered, an invented one is not.
CREATE TABLE IF NOT EXISTS button (
  message_id TEXT NOT NULL REFERENCES message, value TEXT NOT NULL, PRIMARY KEY (message_id, value)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, client_key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL,
  message_id TEXT NOT NULL REFERENCES message, body BLOB NOT NULL, at INTEGER NOT NULL, delivered INTEGER NOT NULL
);
-- Serves `undelivered()`.
CREATE INDEX IF NOT EXISTS event_waiting ON event (number) WHERE delivered = 0;
"""


class ConsoleFile:
    """One connection in one thread of its own; opened at the first call, usable from several processes at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="console")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def read(self, what: Read[T]) -> T:
        """Run a function on one consistent view of the file. Raises: DeliveryFailed("unavailable")."""
        return await self._call(what, begin="BEGIN")

    async def write(self, what: Read[T]) -> T:
        """Run a function in one transaction: all of it or nothing. Raises: DeliveryFailed("unavailable").

        A caller that is cancelled doesn't know whether it was done; every write can be made again.
        """
        return await self._call(what, begin="BEGIN IMMEDIATE")

    async def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        finally:
            self._thread.shutdown(wait=False)

    async def _call(self, what: Read[T], *, begin: str) -> T:
        if self._closed:
            raise DeliveryFailed("closed", permanent=False)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, what, begin)

    def _transaction(self, what: Read[T], begin: str) -> T:
        try:
            if self._connection is None:
                self._connection = _connect(self.path)
            connection = self._connection
            connection.execute(begin)
            try:
                result = what(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._recover()
            raise DeliveryFailed("unavailable", permanent=False) from error
        return result

    def _recover(self) -> None:
        """Leave no transaction open behind a failure: a file in memory is kept, any other is opened anew."""
        connection = self._connection
        if connection is None:
            return
        if self.path == MEMORY:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _connect(path: str) -> sqlite3.Connection:
    if path != MEMORY:
        folder = Path(path).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The secret is in here: made for its owner only, and the WAL's files take the mode of this one.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    _switch_to_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    add = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
    connection.execute(add, ("platform", secrets.token_hex(4)))
    connection.execute(add, ("secret", secrets.token_bytes(32)))
    connection.execute("INSERT INTO counter (one, version) VALUES (1, 0) ON CONFLICT DO NOTHING")
    connection.execute("COMMIT")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; the busy handler isn't asked for this (sqlite.org/wal.html §2), so two first openers would collide."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return
