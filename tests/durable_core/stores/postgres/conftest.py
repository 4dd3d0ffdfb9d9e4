"""Stores on PostgreSQL, with the database's own clock.

What lives here: making and closing them. What does not: what they do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from durable_core.clock import DatabaseClock
from durable_core.stores.postgres.store import PostgresStore
from tests.durable_core.conformance.postgres import postgres_store

Open = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
async def open_one(migrated_url: str) -> AsyncIterator[Open]:
    """Open stores on one database, as so many processes would; they are closed at the end."""
    opened: list[PostgresStore] = []

    async def open_one(url: str = migrated_url, *, pooler: bool = False, pool: int = 10) -> PostgresStore:
        store = postgres_store(url, DatabaseClock(), pooler=pooler, pool=pool)
        await store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()
