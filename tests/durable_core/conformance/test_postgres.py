"""The PostgreSQL store keeps every promise, and keeps it between two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_core.store import Store
from durable_core.testing import StoreContract
from durable_core.testing.bench import WindableClock
from tests.durable_core.conformance.postgres import postgres_store


class TestPostgres(StoreContract):
    shared = True
    url: str

    @pytest.fixture(autouse=True)
    def database(self, migrated_url: str) -> None:
        self.url = migrated_url

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return postgres_store(self.url, clock)
