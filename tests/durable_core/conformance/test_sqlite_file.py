"""The SQLite store on a file keeps every promise, and keeps it between two connections."""

from __future__ import annotations

from pathlib import Path

from durable_core.store import Store
from durable_core.testing import StoreContract
from durable_core.testing.bench import WindableClock
from tests.durable_core.conformance.sqlite import file_store


class TestSqliteOnDisk(StoreContract):
    shared = True

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return await file_store(clock, place)
