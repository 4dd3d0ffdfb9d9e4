"""Forgetting a workflow run: it is cancelled, whoever waits for it hears of it, and what it started goes too."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.forget import forget_session
from durable_core.context import WorkflowContext
from durable_core.errors import ContentGone
from durable_core.failures import ChildFailed
from durable_core.model import RunStatus
from durable_core.operations import child_run_id
from durable_core.registry import workflow
from tests.durable_core.engine.worlds import World, parked, result


@workflow
async def sleeper(ctx: WorkflowContext, name: str) -> str:
    await ctx.sleep(3_600)
    return name


@workflow
async def parent(ctx: WorkflowContext, name: str) -> str:
    try:
        return await ctx.child(sleeper, name)
    except ChildFailed as failed:
        return f"without: {failed.type_name}"


async def test_a_run_goes_with_all_that_it_started(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    async with world.engine(parent, sleeper) as engine:
        run = await engine.start(parent, "secret")
        await parked(run)
        store, child = await world.open_store(), child_run_id(run.run_id, "child:sleeper#0")
        assert await forget_session(store, run.run_id, by="operator", seconds=10)
        assert not await forget_session(store, run.run_id, by="operator", seconds=0)
        for run_id in (run.run_id, child):
            found = await store.run(run_id)
            assert (found.status, found.purged_at is not None) == (RunStatus.ENDED, True)
        with pytest.raises(ContentGone):
            await run.result()
    await world.close()


async def test_who_waits_for_it_hears_of_it(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    async with world.engine(parent, sleeper) as engine:
        run = await engine.start(parent, "secret")
        await parked(run)
        store, child = await world.open_store(), child_run_id(run.run_id, "child:sleeper#0")
        assert await forget_session(store, child, by="operator", seconds=10)
        assert (await result(run)).startswith("without: ")
    await world.close()


async def test_without_a_worker_it_ends_all_the_same(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    store = await world.open_store()
    async with world.engine(sleeper, store=store, work=False) as engine:
        run = await engine.start(sleeper, "secret")
        assert await forget_session(store, run.run_id, by="operator", seconds=0)
        assert (await store.run(run.run_id)).end_reason == "forgotten"
    await world.close()
