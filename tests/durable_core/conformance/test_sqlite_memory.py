"""The SQLite store in memory keeps every promise."""

from __future__ import annotations

from pathlib import Path

from durable_core.store import Store
from durable_core.testing import StoreContract
from durable_core.testing.bench import WindableClock
from tests.durable_core.conformance.sqlite import memory_store


class TestSqliteInMemory(StoreContract):
    async def make(self, clock: WindableClock, place: Path) -> Store:
        return await memory_store(clock)
