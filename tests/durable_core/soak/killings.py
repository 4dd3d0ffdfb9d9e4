"""Four workers on PostgreSQL, one of them killed every second, until all runs are finished.

What lives here: that story, and what its records must say. What does not: what else happens meanwhile (the tests).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.durable_core.soak import app
from tests.durable_core.soak.effects import Effect, PostgresEffects, repeated
from tests.durable_core.soak.fleet import Fleet, fleet
from tests.durable_core.soak.scale import chance, scaled

WORKERS = 4
RUNS = scaled(2_000, 120)
BOUND = 600
"""Seconds until a run that has not finished is taken for lost."""


@asynccontextmanager
async def _trouble(crew: Fleet, besides: Callable[[int], object]) -> AsyncIterator[None]:
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
        async with _trouble(crew, besides):
            ids = await app.started(engine, RUNS)
            results = await asyncio.gather(*(engine.run(run_id).result(BOUND) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        assert list(recorded.values()) == results
        assert {len(nonces) for nonces in results} == {app.STEPS}
        again = repeated(recorded, await effects.all())
        print(f"{RUNS} runs, {len(crew.killed)} workers killed, {len(again)} effects repeated")
    await effects.close()
    return again, crew.killed
