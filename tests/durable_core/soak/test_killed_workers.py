"""Four workers on PostgreSQL, one of them killed every second, the server itself restarted: each step is recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from durable_core.engine import Engine
from tests.durable_core.soak import app
from tests.durable_core.soak.effects import PostgresEffects, repeated
from tests.durable_core.soak.fleet import Fleet, fleet
from tests.durable_core.soak.scale import chance, scaled
from tests.postgres import PrivatePostgres

WORKERS = 4
RUNS = scaled(2_000)
BOUND = 600
"""Seconds until a run that has not finished is taken for lost."""


async def started(engine: Engine, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        handles = await asyncio.gather(*(engine.start(app.five) for _ in range(min(50, count - len(ids)))))
        ids += [handle.run_id for handle in handles]
    return ids


@asynccontextmanager
async def trouble(crew: Fleet, more: Callable[[int], object]) -> AsyncIterator[None]:
    """Kill a worker a second, and do something else besides, until the block ends."""
    random = chance("killed workers")

    async def go() -> None:
        for second in range(BOUND):
            await asyncio.sleep(1)
            await crew.replace(random.randrange(WORKERS))
            await asyncio.to_thread(more, second)

    task = asyncio.create_task(go())
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def story(url: str, restart: Callable[[int], object]) -> tuple[list[str], int]:
    """Run all; return the owners of effects that nobody recorded, of workers that were not killed, and how many were repeated."""
    effects = PostgresEffects(url)
    async with app.engine_on(url) as engine, fleet(url, url, WORKERS) as crew:
        async with trouble(crew, restart):
            ids = await started(engine, RUNS)
            results = await asyncio.gather(*(engine.handle(run_id).result(BOUND) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        assert list(recorded.values()) == results
        assert {len(nonces) for nonces in results} == {app.STEPS}
        again = repeated(recorded, await effects.all())
        print(f"{RUNS} runs, {len(crew.killed)} workers killed, {len(again)} effects repeated")
        alive = [effect.owner for effect in again if effect.owner not in crew.killed]
    await effects.close()
    return alive, len(again)
