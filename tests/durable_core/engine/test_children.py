"""Children: started once with their parent's commit, their results told once, their ids always the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.errors import RunFailed
from durable_core.failures import ChildFailed
from durable_core.ids import event_id
from durable_core.operations import child_run_id
from durable_core.registry import step, workflow
from tests.durable_core.engine.worlds import World, events_of, parked, result, until


@workflow
async def leaf(ctx: WorkflowContext, number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 10 * number


@workflow
async def tree(ctx: WorkflowContext, width: int, depth: int) -> int:
    if not depth:
        return await ctx.child(leaf, 1)
    return sum(await asyncio.gather(*(ctx.child(tree, width, depth - 1) for _ in range(width))))


async def test_children_have_children(world: World) -> None:
    async with world.engine(tree, leaf) as engine:
        run = await engine.start(tree, 3, 2)
        assert await result(run) == 90
        assert len(await engine.runs()) == 1 + 3 + 9 + 9
        started = [event.data["run_id"] for event in await events_of(run, "child.started")]
        assert started == [child_run_id(run.run_id, f"child:tree#{n}") for n in range(3)]
        assert all(event_id(child, 0) for child in started)


async def test_a_child_that_fails_is_told_to_its_parent(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> list[Any]:
        try:
            await ctx.child(leaf, -1)
        except ChildFailed as failed:
            return [failed.workflow, failed.type_name, failed.message]
        return []

    @workflow
    async def careless(ctx: WorkflowContext) -> None:
        await ctx.child(leaf, -1)

    async with world.engine(parent, careless, leaf) as engine:
        assert await result(await engine.start(parent)) == ["leaf", "ValueError", "-1 is negative"]
        with pytest.raises(RunFailed, match="-1 is negative"):
            await result(await engine.start(careless))


async def test_a_child_that_goes_on_by_itself_begins_with_the_end_of_its_parent(world: World) -> None:
    @workflow
    async def at_once(ctx: WorkflowContext) -> str:
        return ctx.start(leaf, 1).run_id

    @workflow
    async def late(ctx: WorkflowContext) -> None:
        ctx.start(leaf, 2)
        await ctx.sleep(1)
        ctx.start(leaf, 3)
        raise ValueError("this doesn't stop them")

    @workflow
    async def unstorable(ctx: WorkflowContext) -> None:
        ctx.start(leaf, object())

    async with world.engine(at_once, late, unstorable, leaf) as engine:
        child = engine.run(await result(await engine.start(at_once)))
        assert await result(child) == 10
        failing = await engine.start(late)
        await parked(failing)
        world.advance(seconds=1)
        with pytest.raises(RunFailed, match="doesn't stop them"):
            await result(failing)
        started = [event.data["run_id"] for event in await events_of(failing, "child.started")]
        assert [await result(engine.run(run_id)) for run_id in started] == [20, 30]
        with pytest.raises(RunFailed) as failed:
            await result(await engine.start(unstorable))
        assert failed.value.code == "unstorable"


async def test_one_key_is_one_child_however_often_and_whenever_it_is_asked_for(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> list[int]:
        both = await asyncio.gather(ctx.child(leaf, 1, key="a"), ctx.child(leaf, 1, key="a"))
        await ctx.sleep(1)
        return [*both, await ctx.child(leaf, 1, key="a"), await ctx.child(leaf, 2, key="b")]

    async with world.engine(parent, leaf) as engine:
        run = await engine.start(parent)
        await until(lambda: both_came(run))
        await parked(run)
    async with world.engine(parent, leaf) as engine:
        world.advance(seconds=1)
        assert await result(engine.run(run.run_id)) == [10, 10, 10, 20]
        assert len(await engine.runs(workflow="leaf")) == 2


async def started_and_ended(run: Any) -> bool:
    return bool(await events_of(run, "child.completed"))


async def both_came(run: Any) -> bool:
    return len(await events_of(run, "child.completed")) == 2


async def test_a_child_that_nobody_waits_for_is_cancelled_when_its_parent_ends(world: World) -> None:
    @workflow
    async def slow(ctx: WorkflowContext) -> None:
        await ctx.sleep(3600)

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        ctx.start(slow)
        lost = asyncio.ensure_future(ctx.child(slow))
        await ctx.sleep(1)
        return "done" if not lost.done() else "never"

    async with world.engine(parent, slow, work=False) as engine:
        run = await engine.start(parent)
        await engine.run_due()
        world.advance(seconds=1)
        await engine.run_due()
        assert await result(run) == "done"
        stands = sorted(view.status for view in await engine.runs(workflow="slow"))
        assert stands == ["cancelled", "waiting"]


async def test_a_started_child_goes_on_and_its_result_is_there_to_wait_for(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> list[Any]:
        handle = ctx.start(leaf, 4)
        await ctx.sleep(1)
        return [handle.run_id, await handle.result(), await handle.result()]

    async with world.engine(parent, leaf) as engine:
        run = await engine.start(parent)
        await until(lambda: started_and_ended(run))
        world.advance(seconds=1)
        child, *results = await result(run)
        assert results == [40, 40]
        assert await result(engine.run(child)) == 40


async def test_arguments_that_can_not_be_kept_fail_the_parent(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.child(leaf, object())

    async with world.engine(parent, leaf) as engine:
        with pytest.raises(RunFailed) as failed:
            await result(await engine.start(parent))
        assert failed.value.code == "unstorable"
        assert await engine.runs(workflow="leaf") == []


async def test_a_child_of_another_app_waits_for_its_worker(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> int:
        return 1 + await ctx.child(leaf, 1)

    async with world.engine(parent) as here:
        run = await here.start(parent)
        await parked(run)
        async with world.engine(leaf, step_of_its_own) as there:
            assert there.workflows == ("leaf", "step_of_its_own")
            assert await result(run) == 11


@workflow
async def step_of_its_own(ctx: WorkflowContext) -> int:
    return await ctx.step(step(lambda: 1, name="one"))


# ── started as the last thing ──


@pytest.mark.parametrize("how", ["first", "after a step", "then fails", "cancelled"])
async def test_a_child_that_is_started_last_is_started_once(world: World, how: str) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        if how == "cancelled":
            try:
                await ctx.sleep(3600)
            finally:
                ctx.start(leaf, 1, key="last")
        if how != "first":
            await ctx.step(step(lambda: 1, name="one"))
        ctx.start(leaf, 1, key="last")
        ctx.start(leaf, 1, key="last")
        ctx.progress("started")
        if how == "then fails":
            raise ValueError(how)

    async with world.engine(parent, leaf, work=False) as engine:
        run = await engine.start(parent)
        await engine.run_due()
        if how == "cancelled":
            await run.cancel()
            await engine.run_due()
        assert (await run.status()).ended_at
        (child,) = await engine.runs(workflow="leaf")
        assert await result(engine.run(child.run_id)) == 10
        assert {event.data["run_id"] for event in await events_of(run, "child.started")} == {child.run_id}


async def test_arguments_of_a_last_child_that_can_not_be_kept_fail_its_parent(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        ctx.start(leaf, object())

    async with world.engine(parent, leaf) as engine:
        with pytest.raises(RunFailed) as failed:
            await result(await engine.start(parent))
        assert failed.value.code == "unstorable"


async def test_each_who_asks_for_a_child_gets_a_result_of_its_own(world: World) -> None:
    @workflow
    async def makes(ctx: WorkflowContext) -> dict[str, list[int]]:
        return {"n": [1]}

    @workflow
    async def parent(ctx: WorkflowContext) -> list[Any]:
        first = await ctx.child(makes, key="k")
        first["n"].append(2)
        second = await ctx.child(makes, key="k")
        second["n"].append(3)
        await ctx.sleep(1)
        return [first, second, await ctx.child(makes, key="k")]

    expected = [{"n": [1, 2]}, {"n": [1, 3]}, {"n": [1]}]
    async with world.engine(parent, makes) as engine:
        cold = await engine.start(parent)
        await until(lambda: twice_came(cold))
        await parked(cold)
    async with world.engine(parent, makes, work=False) as engine:
        world.advance(seconds=1)
        warm = await engine.start(parent)
        await engine.run_due()
        assert await result(engine.run(cold.run_id)) == expected
        world.advance(seconds=1)
        await engine.run_due()
        assert await result(warm) == expected


async def twice_came(run: Any) -> bool:
    return len(await events_of(run, "child.completed")) == 2
