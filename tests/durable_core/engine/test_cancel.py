"""Cancelling: the body is told, steps get their grace, the run ends cancelled whatever the body does, children too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.errors import NotFound, RunCancelled
from durable_core.operations import Option
from durable_core.registry import step, workflow
from tests.durable_core.engine.worlds import World, events_of, parked, result, until


def told(what: str) -> str:
    return what


async def cancelled(handle: Any) -> None:
    with pytest.raises(RunCancelled):
        await result(handle)


@workflow
async def sleeps(ctx: WorkflowContext) -> str:
    await ctx.sleep(3600)
    return "rested"


async def test_a_parked_run_is_cancelled_at_once(world: World) -> None:
    async with world.engine(sleeps) as engine:
        run = await engine.start(sleeps)
        await parked(run)
        assert await run.cancel("not needed", by="alice")
        await cancelled(run)
        assert (await run.status()).status == "cancelled"
        (event,) = await events_of(run, "run.cancelling")
        assert (event.data["reason"], event.data["by"]) == ("not needed", "alice")
        assert not await run.cancel()
        outcomes = await engine.store.rows("SELECT kind, outcome FROM moor_admission ORDER BY seq", {})
        assert outcomes[:2] == [("message", "aborted"), ("cancel", "completed")]
        with pytest.raises(NotFound):
            await engine.cancel("run_none")


async def test_a_run_is_cancelled_before_its_first_step(world: World) -> None:
    ran: list[int] = []

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        await ctx.step(step(lambda: ran.append(1), name="mark"))

    async with world.engine(one, work=False) as engine:
        run = await engine.start(one)
        await run.cancel()
        await engine.run_due()
        await cancelled(run)
        assert not ran


async def test_the_body_cleans_up_by_steps(world: World) -> None:
    done: list[str] = []

    @workflow
    async def careful(ctx: WorkflowContext) -> str:
        try:
            await ctx.sleep(3600)
        except asyncio.CancelledError:
            await ctx.step(step(lambda: done.append("undone"), name="undo"))
            raise
        return "never"

    @workflow
    async def stubborn(ctx: WorkflowContext) -> str:
        try:
            await ctx.sleep(3600)
        except asyncio.CancelledError:
            return await ctx.step(step(lambda: "kept on", name="keep"))
        return "never"

    async with world.engine(careful, stubborn) as engine:
        for each in (careful, stubborn):
            run = await engine.start(each)
            await parked(run)
            await run.cancel()
            await cancelled(run)
    assert done == ["undone"]


async def test_a_body_that_goes_on_is_ended_after_its_grace(world: World) -> None:
    @workflow
    async def deaf(ctx: WorkflowContext) -> None:
        while True:
            try:
                await ctx.sleep(3600)
            except asyncio.CancelledError:
                continue

    async with world.engine(deaf) as engine:
        run = await engine.start(deaf)
        await parked(run)
        await run.cancel()
        await until(lambda: told_of_cancel(run))
        await parked(run)
        world.advance(seconds=29)
        await asyncio.sleep(0.05)
        assert (await run.status()).status == "waiting"
    async with world.engine(deaf) as engine:
        world.advance(seconds=1)
        await cancelled(engine.run(run.run_id))


async def told_of_cancel(run: Any) -> bool:
    return bool(await events_of(run, "run.cancelling"))


async def test_a_running_step_gets_its_grace(world: World) -> None:
    began, let_go = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await let_go.wait()
            ended.append("cleaned")
            raise

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        await ctx.step(step(slow, name="slow"))

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await began.wait()
        await run.cancel()
        await until(lambda: told_of_cancel(run))
        await asyncio.sleep(0.05)
        assert (await run.status()).status == "running"
        let_go.set()
        await cancelled(run)
        assert ended == ["cleaned"]


async def test_a_step_that_does_not_stop_holds_its_run_for_the_grace_only(world: World) -> None:
    began, let_go = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        began.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        await ctx.step(step(deaf, name="deaf"))

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await began.wait()
        await run.cancel()
        await until(lambda: told_of_cancel(run))
        world.advance(seconds=30)
        await cancelled(run)
        let_go.set()


async def test_a_cancel_takes_its_children_along_and_leaves_the_detached(world: World) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        ctx.start(sleeps)
        await asyncio.gather(ctx.child(sleeps), ctx.child(sleeps, key="k"))

    async with world.engine(parent, sleeps) as engine:
        run = await engine.start(parent)
        await parked(run)
        started = [event.data["run_id"] for event in await events_of(run, "child.started")]
        for child in started:
            await parked(engine.run(child))
        await run.cancel()
        await cancelled(run)
        for child in started[1:]:
            await cancelled(engine.run(child))
        assert (await engine.run(started[0]).status()).status == "waiting"


async def test_of_a_cancel_and_an_answer_the_first_counts(world: World) -> None:
    @workflow
    async def asks(ctx: WorkflowContext) -> str | None:
        return (await ctx.ask("Go?", [Option("go", "Go")])).option_id

    async with world.engine(asks, work=False) as engine:
        first, second = [await engine.start(asks) for _ in range(2)]
        await engine.run_due()
        (one,), (two,) = [await run.prompts() for run in (first, second)]
        await engine.answer(one.prompt_id, option_id="go", by="alice")
        await first.cancel()
        await second.cancel()
        late = await engine.answer(two.prompt_id, option_id="go", by="alice")
        assert late.reason == "cancelled"
        await engine.run_due()
        for run in (first, second):
            await cancelled(run)


async def test_cancelling_twice_is_cancelling_once(world: World) -> None:
    seen: list[int] = []

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(60)
        except asyncio.CancelledError:
            seen.append(1)
            await ctx.sleep(10)
            raise

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await parked(run)
        await run.cancel()
        await until(lambda: seen)
        await run.cancel()
        await asyncio.sleep(0.03)
        world.advance(seconds=10)
        await cancelled(run)
        assert seen == [1]
        waiting = await engine.store.rows("SELECT count(*) FROM moor_admission WHERE outcome IS NULL", {})
        assert waiting == [(0,)]
