"""Another process holds SQLite's write lock for seconds: that costs time, and nothing else."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.durable_core.soak import app
from tests.durable_core.soak.fleet import fleet
from tests.durable_core.soak.scale import FULL

HOLD_SECONDS = 4
TIMES = 5 if FULL else 1
HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE moor_run SET name = name")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("COMMIT")
"""


async def held(path: str) -> None:
    """Hold the lock, from its first moment to its last."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, path, str(HOLD_SECONDS), stdout=PIPE)
    out, _ = await process.communicate()
    assert (process.returncode, out.strip()) == (0, b"held")


async def test_a_held_write_lock_fails_no_run_and_no_start(sqlite_url: str, tmp_path: Path) -> None:
    async with app.engine_on(sqlite_url) as engine, fleet(sqlite_url, str(tmp_path / "effects.db"), 1) as crew:
        ids: list[str] = []
        for _ in range(TIMES):
            holding = asyncio.create_task(held(sqlite_url.removeprefix("sqlite:///")))
            while not holding.done():
                ids += await app.started(engine, 5)
            await holding
        results = await asyncio.gather(*(engine.run(run_id).result(60) for run_id in ids))
        recorded = [await app.recorded(engine, run_id) for run_id in ids]
        assert recorded == results
        assert {len(nonces) for nonces in results} == {app.STEPS}
        attempts = await engine.store.rows("SELECT count(*) FROM moor_step WHERE kind = 'failed'", {})
        assert attempts == [(0,)]
        assert crew.workers[0].process.returncode is None
        print(f"{len(ids)} runs went on while the lock was held {TIMES} times for {HOLD_SECONDS} s")
