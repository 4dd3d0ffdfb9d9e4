"""The worlds that tests of the engine run in.

What lives here: which databases. What does not: the worlds themselves (worlds.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.durable_core.engine.worlds import World


@pytest_asyncio.fixture(params=["memory", "file"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = World(request.param, tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def disk(tmp_path: Path) -> AsyncIterator[World]:
    made = World("file", tmp_path)
    yield made
    await made.close()
