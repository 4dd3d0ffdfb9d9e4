"""A worker that is frozen for longer than its lease: another one takes its runs over once, and it learns that it lost them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.durable_core.soak import app
from tests.durable_core.soak.fleet import fleet
from tests.durable_core.soak.scale import FULL

RUNS = 8 if FULL else 2


async def test_what_a_frozen_worker_held_is_taken_over_once(database: str, tmp_path: Path) -> None:
    effects, gate = str(tmp_path / "effects.db"), tmp_path / "gate"
    async with app.engine_on(database) as engine, fleet(database, effects, 1) as crew:
        (frozen,) = crew.workers
        ids = {(await engine.start(app.long, str(gate))).run_id for _ in range(RUNS)}
        assert {await frozen.heard_of("began") for _ in ids} == ids
        frozen.send(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, frozen.process.pid, os.WSTOPPED | os.WNOWAIT)
        gate.touch()  # only now: it must not get to the end before it is frozen
        other = await crew.start()
        results = await asyncio.gather(*(engine.run(run_id).result(60) for run_id in ids))
        assert set(results) == {other.owner}
        assert {await other.heard_of("began") for _ in ids} == ids

        frozen.send(signal.SIGCONT)
        lost: set[str] = set()
        while lost != ids:  # a refused commit and a renewal may both tell of one
            lost.add(await frozen.heard_of("lost"))
        for run_id in ids:
            assert await app.recorded(engine, run_id) == [other.owner]
