"""Reminders of a workflow's questions: once, when they are due, never of what is answered or over, and unseen by the body."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.engine.handles import RunHandle
from durable_core.errors import CommitUnknown
from durable_core.model import StepCommit
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.durable_core.engine.breaking import Breaking, Failing
from tests.durable_core.engine.worlds import FAST, World, events_of, result, until

HOUR = timedelta(hours=1)
GO = [Option("go", "Go")]


@workflow
async def asks(ctx: WorkflowContext, remind: float, expires: float | None) -> Any:
    answer = await ctx.ask(
        "Go?", GO, remind_after=timedelta(hours=remind), expires=None if expires is None else timedelta(hours=expires)
    )
    return [answer.option_id, answer.expired, ctx.now().isoformat()]


async def asking(engine: Engine, *, remind: float = 1, expires: float | None = None) -> RunHandle:
    run = await engine.start(asks, remind, expires)
    await engine.run_due()
    return run


async def reminders(run: RunHandle) -> list[str]:
    return [event.data["request_id"] for event in await events_of(run, "input.reminded")]


async def test_people_are_reminded_once_also_after_a_restart(world: World) -> None:
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine)
        [prompt] = await run.prompts()
        world.advance(minutes=59)
        assert await engine.run_due() == 0
        assert await reminders(run) == []
    async with world.engine(asks, work=False) as engine:  # a cold body each time
        run = engine.run(run.run_id)
        world.advance(minutes=1)
        await engine.run_due()
        assert await reminders(run) == [prompt.prompt_id]
    async with world.engine(asks, work=False) as engine:
        run = engine.run(run.run_id)
        world.advance(hours=5)
        assert await engine.run_due() == 0
        await engine.answer(prompt.prompt_id, option_id="go", by="omar")
        await engine.run_due()
        assert (await result(run))[:2] == ["go", False]
        assert await reminders(run) == [prompt.prompt_id]


async def test_a_warm_body_goes_on_after_a_reminder(world: World) -> None:
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine, expires=2)
        for _ in range(2):
            world.advance(hours=1)
            await engine.run_due()
        assert (await result(run))[:2] == [None, True]
        assert len(await reminders(run)) == 1


@pytest.mark.parametrize(("remind", "expires"), [(2, 2), (3, 2)])
async def test_nobody_is_reminded_of_what_is_over_by_then(world: World, remind: float, expires: float) -> None:
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine, remind=remind, expires=expires)
        world.advance(hours=2)
        await engine.run_due()
        assert (await result(run))[1] is True
        assert await reminders(run) == []


async def test_a_worker_that_was_away_does_not_remind_of_what_is_over(world: World) -> None:
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine, remind=1, expires=2)
        world.advance(hours=3)
        await engine.run_due()
        assert (await result(run))[1] is True
        assert await reminders(run) == []


async def test_an_answer_that_comes_first_wins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers while the reminder is being written."""
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine)
        [prompt] = await run.prompts()
        world.advance(hours=1)
        store, commits = engine.store, []

        async def commit(one: StepCommit) -> Any:
            commits.append(len(one.updates))
            if one.updates:
                await engine.answer(prompt.prompt_id, option_id="go", by="omar")
            return await right(one)

        right = store.commit
        monkeypatch.setattr(store, "commit", commit)
        await engine.run_due()
        assert (await result(run))[:2] == ["go", False]
        assert commits == [1, 0]
        assert await reminders(run) == []


async def test_a_question_that_is_withdrawn_is_not_reminded_of(world: World) -> None:
    @workflow
    async def gives_up(ctx: WorkflowContext) -> str:
        question = ctx.ask("Go?", GO, remind_after=HOUR)
        await ctx.sleep(60)
        question.cancel()
        await ctx.sleep(HOUR * 2)
        return "over"

    async with world.engine(gives_up, work=False) as engine:
        run = await engine.start(gives_up)
        for _ in range(3):
            await engine.run_due()
            world.advance(hours=1.1)
        await engine.run_due()
        assert await result(run) == "over"
        assert await reminders(run) == []


async def test_a_time_that_is_past(world: World) -> None:
    @workflow
    async def wrong(ctx: WorkflowContext) -> str:
        try:
            await ctx.ask("Go?", GO, remind_after=timedelta(0))
        except ValueError as error:
            return str(error)
        return "?"

    async with world.engine(wrong, work=False) as engine:
        run = await engine.start(wrong)
        await engine.run_due()
        assert await result(run) == "remind_after= must be in the future"


async def lives_until(world: World, at: int | None, *, after: bool, run_id: str) -> list[str]:
    """Work until the store breaks, or people are reminded, then be gone; what was called."""
    real, outside = await world.open_store(), await world.open_store()
    breaking = Breaking(real, at=at, after=after)
    engine = Engine(breaking.as_store, workflows=[asks], clock=world.clock, options=FAST)
    before = asyncio.all_tasks()
    entering: asyncio.Task[Any] = asyncio.create_task(engine.__aenter__())
    async with world.engine(asks, store=outside, work=False) as looking:
        run = looking.run(run_id)

        async def over() -> bool:
            return breaking.dead.is_set() or (at is None and bool(await reminders(run)))

        await until(over)
    breaking.dead.set()
    for task in (gone := {*(asyncio.all_tasks() - before), entering}):
        task.cancel()
    await asyncio.wait(gone, timeout=0.01)
    for store in (outside, real):
        await world.close_store(store)
    return breaking.calls


async def asked_an_hour_ago(world: World) -> str:
    async with world.engine(asks, work=False) as engine:
        run = await asking(engine)
    world.advance(hours=1)
    return run.run_id


async def test_a_worker_that_is_killed_at_any_call_reminds_once(disk: World) -> None:
    calls = await lives_until(disk, None, after=False, run_id=await asked_an_hour_ago(disk))
    assert "commit" in calls
    for at in range(1, calls.index("commit") + 2):
        for after in (False, True):
            run_id = await asked_an_hour_ago(disk)
            await lives_until(disk, at, after=after, run_id=run_id)
            async with disk.engine(asks, work=False) as engine:
                await engine.run_due()
                run = engine.run(run_id)
                [prompt] = await run.prompts()
                assert await reminders(run) == [prompt.prompt_id], (at, after, calls[at - 1])
                await engine.answer(prompt.prompt_id, option_id="go", by="omar")
                await engine.run_due()
                assert (await result(run))[:2] == ["go", False]
                assert len(await reminders(run)) == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_commit_of_which_nobody_knows_reminds_once(disk: World, *, after: bool) -> None:
    run_id = await asked_an_hour_ago(disk)
    store = await disk.open_store()
    failing = Failing(store, "commit", CommitUnknown("who knows"), after=after)
    async with Engine(failing.as_store, workflows=[asks], clock=disk.clock, options=FAST) as engine:
        run = engine.run(run_id)
        await until(lambda: failing.raised)
        [prompt] = await run.prompts()

        async def given_back() -> bool:
            return not await store.rows("SELECT 1 FROM moor_run WHERE owner IS NOT NULL", {})

        async def reminded() -> bool:
            return bool(await reminders(run))

        await until(given_back)
        disk.advance(minutes=2)
        await until(reminded)
        await engine.answer(prompt.prompt_id, option_id="go", by="omar")
        assert (await result(run))[:2] == ["go", False]
        assert len(await reminders(run)) == 1
