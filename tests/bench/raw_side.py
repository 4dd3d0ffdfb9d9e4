"""The floor: the least that a durable step can be, in bare SQL: insert a row of 2 kB, update the run's row, commit.

What lives here: callers of one writer thread (SQLite) or of connections of their own (PostgreSQL), and the same rows in whole
groups without any caller. What does not: engines; nothing is compressed, encrypted, fenced or retried here.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import sqlite3
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import asyncpg
import orjson

from tests.bench.lines import answer, load
from tests.bench.payloads import payloads

BODIES = [orjson.dumps(one) for one in payloads()]
TABLES = (
    "CREATE TABLE IF NOT EXISTS step (run bigint, n bigint, body {blob}, PRIMARY KEY (run, n))",
    "CREATE TABLE IF NOT EXISTS run (id bigint PRIMARY KEY, n bigint)",
)
RUNS = 128

Answer = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]", int, int]


class Sqlite:
    """One thread that writes; whatever has come in meanwhile is one commit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self._queue: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with closing(self._connect()) as connection:
            for table in TABLES:
                connection.execute(table.format(blob="blob"))
            connection.executemany("INSERT OR IGNORE INTO run VALUES (?, 0)", [(n,) for n in range(RUNS)])
            connection.commit()
        threading.Thread(target=self._write, daemon=True).start()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _write(self) -> None:
        connection = self._connect()
        while True:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            for _, _, run, n in batch:
                connection.execute("INSERT INTO step VALUES (?, ?, ?)", (run, n, BODIES[n % len(BODIES)]))
                connection.execute("UPDATE run SET n = ? WHERE id = ?", (n, run))
            connection.commit()
            batch[0][0].call_soon_threadsafe(_tell, [future for _, future, _, _ in batch])

    async def callers(self, at_once: int, seconds: float) -> Mapping[str, Any]:
        """So many callers, each with one row on its way."""
        loop, runs = asyncio.get_running_loop(), itertools.count()

        async def one() -> int:
            future: asyncio.Future[None] = loop.create_future()
            self._queue.put((loop, future, next(runs) % at_once, next(self._numbers)))
            await future
            return 1

        return await load(at_once, seconds, one)

    async def groups(self, at_once: int, seconds: float) -> Mapping[str, Any]:
        """Commits of so many rows, one after the other, in this thread."""
        with closing(self._connect()) as connection:

            async def one() -> int:
                rows = [(0, n, BODIES[n % len(BODIES)]) for n in itertools.islice(self._numbers, at_once)]
                connection.executemany("INSERT INTO step VALUES (?, ?, ?)", rows)
                connection.commit()
                return at_once

            return await load(1, seconds, one)


def _tell(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class Postgres:
    """As many connections as callers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)
        self._connections: list[asyncpg.Connection] = []

    async def _ready(self, count: int) -> list[asyncpg.Connection]:
        while len(self._connections) < count:
            connection = await asyncpg.connect(self._url)
            if not self._connections:
                for table in TABLES:
                    await connection.execute(table.format(blob="bytea"))
                await connection.executemany("INSERT INTO run VALUES ($1, 0) ON CONFLICT DO NOTHING", [(n,) for n in range(RUNS)])
            self._connections.append(connection)
        return self._connections[:count]

    async def callers(self, at_once: int, seconds: float) -> Mapping[str, Any]:
        """So many connections, each in a transaction of two statements."""
        free = list(enumerate(await self._ready(at_once)))

        async def one() -> int:
            run, connection = free.pop()
            n = next(self._numbers)
            async with connection.transaction():
                await connection.execute("INSERT INTO step VALUES ($1, $2, $3)", run, n, BODIES[n % len(BODIES)])
                await connection.execute("UPDATE run SET n = $2 WHERE id = $1", run, n)
            free.append((run, connection))
            return 1

        return await load(at_once, seconds, one)

    async def groups(self, at_once: int, seconds: float) -> Mapping[str, Any]:
        """One connection, so many rows a statement."""
        (connection,) = await self._ready(1)

        async def one() -> int:
            numbers = list(itertools.islice(self._numbers, at_once))
            bodies = [BODIES[n % len(BODIES)] for n in numbers]
            await connection.execute("INSERT INTO step SELECT 0, * FROM unnest($1::bigint[], $2::bytea[])", numbers, bodies)
            return at_once

        return await load(1, seconds, one)


async def main(url: str) -> None:
    """Serve both kinds for the database of a URL."""
    raw = Sqlite(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else Postgres(url)

    async def versions() -> Mapping[str, Any]:
        return {"asyncpg": asyncpg.__version__, "SQLite": sqlite3.sqlite_version}

    await raw.callers(1, 0.01)
    await answer({"versions": versions, "callers": raw.callers, "groups": raw.groups})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
