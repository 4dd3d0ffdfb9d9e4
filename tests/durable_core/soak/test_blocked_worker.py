"""A worker whose event loop is blocked for longer than its lease: nobody begins its work anew, until it has lasted too long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from durable_core.engine.engine import Engine
from durable_core.errors import RunFailed
from tests.durable_core.soak import app
from tests.durable_core.soak.fleet import Worker, fleet

LEASES = "SELECT run_id, lease_until FROM moor_run WHERE owner IS NOT NULL"
PATIENCE = 60


async def said(worker: Worker) -> list[str]:
    """Kill it, and return what it began and nobody has read."""
    worker.process.kill()
    assert worker.process.stdout is not None
    return [line for line in (await worker.process.stdout.read()).decode().splitlines() if "began" in line]


async def leases(engine: Engine) -> dict[str, int]:
    return {str(run_id): int(until or 0) for run_id, until in await engine.store.rows(LEASES, {})}


async def outlived(engine: Engine, first: dict[str, int]) -> None:
    """Wait until all these leases would have been over for a while."""
    async with asyncio.timeout(PATIENCE):
        while await engine.store.now() < max(first.values()) + 1000 * app.LEASE_SECONDS / 2:
            await asyncio.sleep(0.05)


async def test_what_a_blocked_worker_holds_is_not_begun_elsewhere(database: str, tmp_path: Path) -> None:
    effects = str(tmp_path / "effects.db")
    async with app.engine_on(database) as engine, fleet(database, effects, 1) as crew:
        (blocked,) = crew.workers
        neighbour = await engine.start(app.long, str(tmp_path / "never"))
        assert await blocked.heard_of("began") == neighbour.run_id
        run = await engine.start(app.blocks)
        assert await blocked.heard_of("began") == run.run_id
        first = await leases(engine)
        assert set(first) == {run.run_id, neighbour.run_id}
        other = await crew.start()
        await outlived(engine, first)
        kept = await leases(engine)
        assert {run_id for run_id in first if kept[run_id] > first[run_id]} == set(first)
        await blocked.tell("go on")
        assert await run.result(PATIENCE) == "w1"
        assert await said(other) == []


async def test_a_body_that_blocks_fails_by_itself_and_is_not_begun_elsewhere(sqlite_url: str, tmp_path: Path) -> None:
    async with app.engine_on(sqlite_url) as engine, fleet(sqlite_url, str(tmp_path / "effects.db"), 1) as crew:
        (blocked,) = crew.workers
        run = await engine.start(app.stuck)
        assert await blocked.heard_of("began") == run.run_id
        other = await crew.start()
        await outlived(engine, await leases(engine))
        await blocked.tell("go on")
        with pytest.raises(RunFailed, match="body_blocked"):
            await run.result(PATIENCE)
        assert await said(other) == []
        blocked.process.kill()
        await blocked.process.wait()
        blocked.log.seek(0)
        log = blocked.log.read().decode()
        assert "app.py" in log
        assert "(stuck); its leases are kept beside it" in log


async def test_what_blocks_for_too_long_is_left_to_others(database: str, tmp_path: Path) -> None:
    async with app.engine_on(database) as engine, fleet(database, str(tmp_path / "effects.db"), 1, "worker", "0.1") as crew:
        (blocked,) = crew.workers
        run = await engine.start(app.blocks)
        assert await blocked.heard_of("began") == run.run_id
        other = await crew.start()
        assert await other.heard_of("began") == run.run_id
        assert await run.result(PATIENCE) == "w2"
        await blocked.tell("go on")
        assert await blocked.heard_of("lost") == run.run_id
        assert await app.recorded(engine, run.run_id) == ["w2"]
