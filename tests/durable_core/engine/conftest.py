"""The worlds that tests of the engine run in.

What lives here: which databases. What does not: the worlds themselves (worlds.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.durable_core.engine.worlds import World


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """Name a database: SQLite by a word, PostgreSQL by its URL."""
    return request.getfixturevalue("migrated_url") if request.param == "postgres" else request.param


@pytest_asyncio.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    made = World(database, tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def disk(tmp_path: Path) -> AsyncIterator[World]:
    made = World("file", tmp_path)
    yield made
    await made.close()
