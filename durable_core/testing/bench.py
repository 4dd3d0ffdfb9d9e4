"""Bench: the fixtures that every group of promises works with, and what a store's author fills in.

What lives here: making and opening the store under test, its clock, its second connection. What does not: promises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from durable_core.clock import ManualClock, milliseconds
from durable_core.model import Extra
from durable_core.store import Store
from durable_core.testing.acts import WORKERS, enrol
from durable_core.testing.builders import START_MS, message, to_address

RACERS = 20
"""How many connections race for one thing."""


class WindableClock(ManualClock):
    """A manual clock that can also be wrong: set back, as clocks of machines are."""

    __slots__ = ()

    def wind_back(self, by: timedelta) -> int:
        """Set the clock back and return the new time."""
        self._now_ms -= milliseconds(by)
        return self._now_ms


class StoreBench:
    """Make a store for each test. A subclass says how, and what the store can't do."""

    shared: ClassVar[bool] = False
    """Whether two stores that were made on one place see the same data, as two processes do."""
    tampering: ClassVar[bool] = True
    """Whether `tamper` can change stored rows; False skips what needs it."""

    async def make(self, clock: WindableClock, place: Path) -> Store:
        """Return a store that goes by `clock`, keeps its data in the folder `place` and isn't opened yet; the schema is there."""
        raise NotImplementedError

    async def tamper(self, store: Store, sql: str, parameters: dict[str, str | int | bytes | None]) -> None:
        """Change stored rows behind the store's back; by default through an admission's `extra`."""
        forged = Extra(sql=sql, parameters=parameters)
        await store.admit(message(to_address("console:v1:tamper"), extra=(forged,)))

    async def forge(self, store: Store, sql: str, **parameters: str | int | bytes | None) -> None:
        """Change stored rows; skips where that can't be done."""
        if not self.tampering:
            pytest.skip("stored rows can't be changed here")
        await self.tamper(store, sql, parameters)

    @asynccontextmanager
    async def racers(self, store: Store, clock: WindableClock, place: Path) -> AsyncIterator[list[Store]]:
        """Open as many stores on the same data as race; the one there is where data isn't shared."""
        others = [await self.make(clock, place) for _ in range(RACERS - 1)] if self.shared else []
        try:
            for other in others:
                await other.open()
            yield [store, *others] if others else [store] * RACERS
        finally:
            for other in others:
                await other.close()

    @pytest.fixture
    def clock(self) -> WindableClock:
        """Stand still at `START_MS`."""
        return WindableClock(START_MS)

    @pytest_asyncio.fixture
    async def store(self, clock: WindableClock, tmp_path: Path) -> AsyncIterator[Store]:
        """Open the store under test, with three workers enrolled."""
        made = await self.make(clock, tmp_path)
        await made.open()
        await enrol(made, WORKERS)
        yield made
        await made.close()

    @pytest_asyncio.fixture
    async def peer(self, store: Store, clock: WindableClock, tmp_path: Path) -> AsyncIterator[Store]:
        """Open a second store on the same data; skips where data isn't shared."""
        if not self.shared:
            pytest.skip("this store's data can't be opened twice")
        made = await self.make(clock, tmp_path)
        await made.open()
        yield made
        await made.close()
