"""A process on a SQLite file, killed at random moments: the file stays whole, nothing is lost, each step is recorded once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from durable_core.testing.histories import check_store
from tests.durable_core.soak import app
from tests.durable_core.soak.effects import repeated
from tests.durable_core.soak.fleet import PATIENCE, Fleet, fleet
from tests.durable_core.soak.scale import FULL, chance

ROUNDS = 20 if FULL else 4


def check_file(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def killed(crew: Fleet, after: float) -> list[str]:
    """Let one start runs and advance them for a while, kill it, and return which runs it said were started."""
    worker = await crew.start()
    crew.killed.add(worker.owner)
    await asyncio.sleep(after)
    worker.process.kill()
    async with asyncio.timeout(PATIENCE):
        said, _ = await worker.process.communicate()
    lines = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
    return [line["started"] for line in lines if "started" in line]


async def test_a_file_outlives_kills_at_random_moments(sqlite_url: str, tmp_path: Path) -> None:
    random, place = chance("killed sqlite"), str(tmp_path / "effects.db")
    accepted: list[str] = []
    async with fleet(sqlite_url, place, 0, "starter") as crew:
        for _ in range(ROUNDS):
            accepted += await killed(crew, random.uniform(0, 0.6))
            check_file(sqlite_url)
    async with app.engine_on(sqlite_url) as engine, fleet(sqlite_url, place, 1):
        ids = [str(row[0]) for row in await engine.store.rows("SELECT run_id FROM moor_run", {})]
        assert set(accepted) <= set(ids)
        results = await asyncio.gather(*(engine.run(run_id).result(60) for run_id in ids))
        recorded = {run_id: await app.recorded(engine, run_id) for run_id in ids}
        await check_store(engine.store)
    assert list(recorded.values()) == results
    assert {len(nonces) for nonces in results} == {app.STEPS}
    effects = app.effects_at(place)
    again = repeated(recorded, await effects.all())
    await effects.close()
    assert {effect.owner for effect in again} <= crew.killed
    check_file(sqlite_url)
    print(f"{ROUNDS} kills, {len(ids)} runs, {len(again)} effects repeated")
