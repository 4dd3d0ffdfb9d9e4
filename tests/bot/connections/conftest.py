"""Stores for connections: one on a file, and one more on the same database of either kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable_core.clock import ManualClock
from durable_core.store import Store
from tests.bot.connections.keeping import START, StoreOpener, ToldProvider, opener


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def provider() -> ToldProvider:
    return ToldProvider()


@pytest.fixture
async def store(clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with opener("sqlite", clock, tmp_path, request) as one_more:
        yield await one_more()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def one_more(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[StoreOpener]:
    """Open stores on one SQLite file, or on one PostgreSQL database."""
    async with opener(request.param, clock, tmp_path, request) as opens:
        yield opens
