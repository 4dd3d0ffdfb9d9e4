"""Very many runs that sleep: they cost nothing at start-up, and those that are due go on in order, never early."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from durable_core.model import RunStatus
from tests.durable_core.soak import app
from tests.durable_core.soak.scale import chance, scaled

PENDING = scaled(100_000, 2_000)
SLEEPERS = scaled(10_000, 200)
"""How many of these have a body that sleeps; the others have a delayed start."""
DUE = 60
TOGETHER = 200
FAR = timedelta(days=30)


async def put_off(database: str, count: int, sleepers: int) -> None:
    """Leave runs that are not due for long: some asleep in their body, the others not begun."""
    async with app.engine_on(database, work=True, concurrency=TOGETHER) as engine:
        random = chance("many timers")
        for first in range(0, count, TOGETHER):
            many = range(first, min(first + TOGETHER, count))
            seconds = [FAR.total_seconds() + random.uniform(0, 1_000) for _ in many]
            await asyncio.gather(
                *(
                    engine.start(app.timed, s) if n < sleepers else engine.start(app.timed, 0.0, delay=timedelta(seconds=s))
                    for n, s in zip(many, seconds, strict=True)
                )
            )
        asleep = "SELECT count(*) FROM moor_run WHERE status = 'open' AND step_no > 0 AND owner IS NULL"
        while (await engine.store.rows(asleep, {})) != [(sleepers,)]:
            await asyncio.sleep(0.05)


async def costs(database: str) -> tuple[float, float]:
    """Return the seconds until an engine runs, and those of a run from its start to its result; the least of five."""
    starts, runs = [], []
    for _ in range(5):
        began = time.monotonic()
        async with app.engine_on(database, work=True) as engine:
            starts.append(time.monotonic() - began)
            began = time.monotonic()
            handle = await engine.start(app.timed, 0.0)
            await handle.result(60)
            runs.append(time.monotonic() - began)
    return min(starts), min(runs)


async def test_many_timers_cost_nothing_and_fire_in_order_and_never_early(database: str) -> None:
    before = await costs(database)
    began = time.monotonic()
    await put_off(database, PENDING, SLEEPERS)
    made = time.monotonic() - began
    after = await costs(database)
    figures = " / ".join(f"{old * 1000:.0f} → {new * 1000:.0f} ms" for old, new in zip(before, after, strict=True))
    print(f"{PENDING} put off in {made:.1f} s; start-up / a run: {figures}")

    async with app.engine_on(database, work=True) as engine:
        random = chance("due timers")
        seconds = sorted(random.uniform(1.0, 2.5) for _ in range(DUE))
        handles = {s: await engine.start(app.timed, s) for s in random.sample(seconds, DUE)}
        while await engine.store.rows(app.UNSLEPT, {}):
            await asyncio.sleep(0.02)
    # one at a time from here on, so that the order in which they are taken is the order in which they go on
    async with app.engine_on(database, work=True, concurrency=1) as engine:
        results = [await engine.run(handle.run_id).result(60) for handle in handles.values()]
        for due, went_on, clock in results:
            assert clock >= due, "it fired early"
            assert went_on >= due
        assert [clock for _, _, clock in sorted(results)] == sorted(clock for _, _, clock in results)
        rest = await engine.store.rows("SELECT count(*) FROM moor_run WHERE status = :open", {"open": RunStatus.OPEN.value})
        assert rest == [(PENDING,)]
