"""A worker that is frozen for longer than its lease: another one takes its runs over once, and it learns that it lost them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.durable_core.soak import app
from tests.durable_core.soak.fleet import fleet
from tests.durable_core.soak.scale import FULL

RUNS = 8 if FULL else 2


async def test_what_a_frozen_worker_held_is_taken_over_once(database: str, tmp_path: Path) -> None:
    effects = str(tmp_path / "effects.db")
    async with app.engine_on(database) as engine, fleet(database, effects, 1) as crew:
        (frozen,) = crew.workers
        ids = {(await engine.start(app.long, 3.0)).run_id for _ in range(RUNS)}
        assert {await frozen.heard_of("began") for _ in ids} == ids
        frozen.send(signal.SIGSTOP)
        other = await crew.start()
        results = await asyncio.gather(*(engine.run(run_id).result(60) for run_id in ids))
        assert set(results) == {other.owner}
        assert {await other.heard_of("began") for _ in ids} == ids

        frozen.send(signal.SIGCONT)
        left = set(ids)
        while left:  # some are told of twice: by a renewal, and by a commit that was on its way
            left.discard(await frozen.heard_of("lost"))
        for run_id in ids:
            assert await app.recorded(engine, run_id) == [other.owner]
