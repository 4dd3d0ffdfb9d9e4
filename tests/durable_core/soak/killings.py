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
RUNS = scaled(2_000, 60)
BOUND = 600
"""Seconds until a run that has not finished is taken for lost."""


@asynccontextmanager
async def _killing(crew: Fleet) -> AsyncIterator[None]:
    """Kill a worker a second and start another, until the block ends."""
    random = chance("killed workers")

    async def go() -> None:
        while True:
            await asyncio.sleep(1)
            await crew.replace(random.randrange(WORKERS))

    task = asyncio.create_task(go())
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def story(url: str, twice: Callable[[], object] = lambda: None) -> tuple[list[Effect], set[str]]:
    """Run all, and do something `twice` in the middle; check the records.

    Returns the effects that no record holds, and which workers were killed.
    """
    effects = PostgresEffects(url)
    async with app.engine_on(url) as engine, fleet(url, url, WORKERS) as crew:
        async with _killing(crew):
            ids = await app.started(engine, RUNS // 3)
            for _ in range(2):
                await asyncio.to_thread(twice)
                ids += await app.started(engine, RUNS // 3)
            results = await asyncio.gather(*(engine.run(run_id).result(BOUND) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        assert list(recorded.values()) == results
        assert {len(nonces) for nonces in results} == {app.STEPS}
        again = repeated(recorded, await effects.all())
        print(f"{len(ids)} runs, {len(crew.killed)} workers killed, {len(again)} effects repeated")
    await effects.close()
    return again, crew.killed
