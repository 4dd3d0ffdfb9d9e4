"""The life of a SQLite store: opening and closing it, telling of changes, and where reads are done.

What lives here: connections, threads, the lifeline. What does not: the contract's calls about runs (`store.py`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from durable_core import schema
from durable_core.clock import Clock
from durable_core.errors import Broken, Unavailable
from durable_core.keys import Keys
from durable_core.lifeline import Lifeline
from durable_core.store import Listener, Store
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite import retention, runs
from durable_core.stores.sqlite.connect import MEMORY, OpenedFile, connect
from durable_core.stores.sqlite.glance import Glance
from durable_core.stores.sqlite.reader import Reader
from durable_core.stores.sqlite.tx import Tx
from durable_core.stores.sqlite.writer import Writer
from durable_core.stores.watch import Watch

T = TypeVar("T")

_PORTIONS: Final = 16
"""How much of the file is given back after one purge: 16 MB, if so much is free."""


class Living(Store):
    """A SQLite file, or a database in memory, that is open or not; `SqliteStore` adds the calls."""

    def __init__(self, path: str, *, keys: Keys, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._sealing = Sealing(keys)
        self._lifeline: Lifeline | None = None
        self._file: OpenedFile | None = None
        self._writer = Writer(
            self._connect_writer, clock=clock, sealing=self._sealing, on_commit=self._committed, check=self._check_file
        )
        self._reader = None if path == MEMORY else Reader(self._connect_reader, clock=clock, sealing=self._sealing)
        self._glance: Glance | None = None
        self._watch = Watch(None if path == MEMORY else self._writer.data_version)

    @property
    def incarnation(self) -> str:
        """The owner's name a worker of this process takes: what `is_alive` knows it by."""
        if self._lifeline is None:
            raise Unavailable("the store is not open")
        return self._lifeline.incarnation

    # ── life ──

    async def open(self) -> None:
        await self._sealing.load()
        if self._path != MEMORY:
            if not Path(self._path).parent.is_dir():
                raise Broken(f"the folder of {self._path} does not exist")
            schema.check(self._path)
        try:
            await self._writer.open()
            if self._reader is not None:
                await self._reader.open()
                self._glance = Glance(self._path, clock=self._clock, sealing=self._sealing)
            await self._read(runs.check_keys)
            self._lifeline = Lifeline.open(self._path)
        except BaseException:
            await self.close()
            raise
        self._lifeline.sweep()  # what the killed left: each commit would ring at their doors
        self._lifeline.on_ring(self._watch.rung)

    async def close(self) -> None:
        await self._watch.close()
        glance, self._glance = self._glance, None
        if glance is not None:
            glance.close()
        await self._writer.close()
        if self._reader is not None:
            await self._reader.close()
        if self._lifeline is not None:
            self._lifeline.close()

    def watch(self, listener: Listener) -> Callable[[], None]:
        return self._watch.add(listener)

    async def now(self) -> int:
        override = self._clock.override()
        return override if override is not None else await self._glimpse(lambda tx: tx.now)

    async def probe(self) -> None:
        await self._writer.probe()

    def is_alive(self, owner: str) -> bool:
        """Whether an incarnation lives, by what dies with it."""
        return self._lifeline is not None and self._lifeline.is_alive(owner)

    # ── inside ──

    async def _give_back(self) -> None:
        """Let the file shrink, a portion at a time: what others wait for comes between. What fails is done next time."""
        with suppress(Unavailable):
            for _ in range(_PORTIONS):
                if not await self._writer.run(retention.give_back, plain=True):
                    return

    async def _read(self, work: Callable[[Tx], T]) -> T:
        """Read committed rows; in memory there is but one connection."""
        return await (self._reader or self._writer).run(work)

    async def _glimpse(self, work: Callable[[Tx], T], *, whole: bool = False) -> T:
        """Read a row or a few, at once."""
        if self._glance is None:
            return await self._read(work)
        await asyncio.sleep(0)  # who reads in a loop lets others run
        if (glance := self._glance) is not None:
            with suppress(Unavailable):
                return glance.read(work, whole=whole)
        return await self._read(work)

    def _committed(self, run_ids: frozenset[str]) -> None:
        changed = tuple(run_ids)
        self._watch.tell(changed)
        if self._lifeline is not None:
            self._lifeline.ring(changed)

    def _connect_writer(self) -> sqlite3.Connection:
        connection = connect(self._path)
        if self._path == MEMORY:
            connection.executescript(schema.memory_script())
        else:
            self._file = OpenedFile(self._path)
        return connection

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    def _connect_reader(self) -> sqlite3.Connection:
        return connect(self._path, read_only=True)
