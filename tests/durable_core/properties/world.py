"""Worlds: where the stores live that the state machine works on, one or two on the same data.

What lives here: making, crashing and clearing them. What does not: the rules.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg

from durable_core.crypto import KeyRing
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.acts import enrol
from durable_core.testing.bench import WindableClock
from durable_core.testing.builders import START_MS, ms
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.conformance.sqlite import KEYS, new_file

MakeSqlite = Callable[..., SqliteStore]


class World:
    """Stores on one data set; the first one is this process, others are its neighbours."""

    count = 1

    def __init__(self) -> None:
        self.loop = asyncio.Runner()
        self.clock = WindableClock(START_MS)
        self.stores: list[Store] = []
        self.dropped: list[Store] = []

    def make(self) -> Store:
        """Return a store that isn't opened yet."""
        raise NotImplementedError

    def clear(self) -> None:
        """Have no data, before stores are opened or while they are open."""

    def begin(self) -> None:
        """Start an example: no data, all stores open."""
        self.clock = WindableClock(START_MS)
        self.clear()
        self.stores = [self.loop.run(self._opened()) for _ in range(self.count)]
        self.loop.run(enrol(self.stores[0]))

    def end(self) -> None:
        """End an example."""
        for store in (*self.stores, *self.dropped):
            self.loop.run(store.close())
        self.stores, self.dropped = [], []

    def close(self) -> None:
        """Have no more examples."""
        self.loop.close()

    def crash(self, at: int) -> None:
        """Drop a store where it stands, and open another in its place, as a process does that is started again."""
        if self.count > 1:
            # closed after the example only: a process that is killed doesn't tidy up, but ours must not run out of threads
            self.dropped.append(self.stores[at])
            self.stores[at] = self.loop.run(self._opened())

    async def _opened(self) -> Store:
        store = self.make()
        await store.open()
        return store


class MemoryWorld(World):
    """One SQLite store in memory."""

    def __init__(self, kind: MakeSqlite = SqliteStore) -> None:
        super().__init__()
        self._kind = kind

    def make(self) -> Store:
        return self._kind(":memory:", keys=KeyRing.parse(KEYS), clock=self.clock)


class FileWorld(World):
    """Two SQLite stores on one file, as two processes have it."""

    count = 2

    def __init__(self, folder: Path, kind: MakeSqlite = SqliteStore) -> None:
        super().__init__()
        self._kind = kind
        self._folder = folder
        self._numbers = itertools.count()
        self._place = folder

    def clear(self) -> None:
        self._place = self._folder / str(next(self._numbers))
        self._place.mkdir()
        (self._place / "moorings.db").write_bytes(new_file())

    def end(self) -> None:
        super().end()
        shutil.rmtree(self._place)

    def make(self) -> Store:
        return self._kind(str(self._place / "moorings.db"), keys=KeyRing.parse(KEYS), clock=self.clock)


class PostgresWorld(World):
    """Two PostgreSQL stores on one database, which is emptied for each example."""

    count = 2

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection = psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True)
        named = self._connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'moor\\_%'").fetchall()
        self._tables = sorted(str(name) for (name,) in named if name not in {"moor_alembic", "moor_revision"})
        self._numbers = itertools.count()

    def clear(self) -> None:
        # rows are deleted faster than files of tables are made anew; now and then the space has to come back
        if next(self._numbers) % 50:
            self._connection.execute(";".join(f"DELETE FROM {table}" for table in self._tables).encode())
        else:
            self._connection.execute(f"TRUNCATE {', '.join(self._tables)}".encode())

    def begin(self) -> None:
        if not self.stores:
            super().begin()
            return
        # connecting takes longer than an example: stores stay open, and their clock goes back
        self.clock.wind_back(ms(self.clock.now_ms - START_MS))
        self.clear()
        self.loop.run(enrol(self.stores[0]))

    def end(self) -> None:
        for store in self.dropped:
            self.loop.run(store.close())
        self.dropped = []

    def close(self) -> None:
        super().end()
        self._connection.close()
        super().close()

    def make(self) -> Store:
        return postgres_store(self._url, self.clock, pool=2)
