"""Killed at any call to the store, before or after it took effect: nothing is lost, no recorded step runs again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from durable_core.context import WorkflowContext, step_context
from durable_core.engine.engine import Engine
from durable_core.errors import CommitUnknown, DurableError, LeaseLost, RunFailed, Unavailable
from durable_core.failures import StepFailed
from durable_core.model import MAX_CHARGED, Abilities, ClaimRequest
from durable_core.operations import Option
from durable_core.registry import step, workflow
from durable_core.retry import RetryPolicy
from tests.durable_core.engine.breaking import Breaking, Failing
from tests.durable_core.engine.worlds import FAST, PATIENCE, World, events_of, result, until

effects: Counter[str] = Counter()
"""How often each step took effect, by its key."""


async def effect(name: str) -> str:
    effects[step_context().idempotency_key] += 1
    return name


@step(backoff=RetryPolicy(first=timedelta(0), cap=timedelta(0)))
async def flaky() -> int:
    effects[step_context().idempotency_key] += 1
    if step_context().attempt == 1:
        raise ConnectionError
    return 1


@workflow
async def part(ctx: WorkflowContext, number: int) -> int:
    await ctx.step(effect, f"part {number}")
    return number


@workflow
async def whole(ctx: WorkflowContext) -> list[Any]:
    both = await asyncio.gather(ctx.step(effect, "a"), ctx.step(effect, "b"))
    again = await ctx.step(flaky)
    parts = await asyncio.gather(ctx.child(part, 1), ctx.child(part, 2))
    await ctx.sleep(60)
    answer = await ctx.ask("Go on?", [Option("go", "Go")], expires=timedelta(days=1))
    hook = await ctx.webhook()
    effects[f"token {ctx.run_id}"] += 0
    told = await ctx.wait_for("told")
    return [both, again, parts, answer.option_id, bool(hook.token), told, await ctx.step(effect, "end")]


EXPECTED = [["a", "b"], 1, [1, 2], "go", True, {"n": 1}, "end"]


async def drive(world: World, run_id: str, store: Any) -> None:
    """Do what the world outside does: let time pass, answer, tell; each of it as often as it likes."""
    outside = Engine(store, workflows=[whole, part], clock=world.clock, work=False)
    async with outside:
        while not (await outside.run(run_id).status()).ended_at:
            for prompt in await outside.prompts(run_id):
                await outside.answer(prompt.prompt_id, option_id="go", by="alice", key="once")
            with suppress(DurableError):
                await outside.signal("told", {"n": 1}, key=run_id)
            # a worker that is slow must not lose its lease to the clock: it would be another death than the one that is meant
            held = await store.rows("SELECT 1 FROM moor_run WHERE owner IS NOT NULL LIMIT 1", {})
            if not held and await events_of(outside.run(run_id), "child.completed"):
                world.advance(seconds=61)
            await asyncio.sleep(0.01)


async def recorded(store: Any, run_id: str) -> set[str]:
    """Which steps have a result in the log."""
    return {f"{run_id}:{one.name}" for one in await store.steps(run_id) if one.kind == "step"}


async def started(world: World) -> str:
    store = await world.open_store()
    async with world.engine(whole, part, store=store, work=False) as engine:
        run = await engine.start(whole)
    await world.close_store(store)
    return run.run_id


async def lives_until(world: World, at: int | None, *, after: bool, run_id: str) -> tuple[list[str], set[str]]:
    """Work on the run until the store breaks (or to its end), then be gone; what was called, what was recorded."""
    real = await world.open_store()
    breaking = Breaking(real, at=at, after=after)
    outside = await world.open_store()
    engine = Engine(breaking.as_store, workflows=[whole, part], clock=world.clock, options=FAST)
    driving = asyncio.create_task(drive(world, run_id, outside))
    dead = asyncio.create_task(breaking.dead.wait())
    before = asyncio.all_tasks()
    entering: asyncio.Task[Any] = asyncio.create_task(engine.__aenter__())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({driving, dead}, return_when=asyncio.FIRST_COMPLETED)
    for task in (dead, driving):
        task.cancel()
    breaking.dead.set()
    gone: set[asyncio.Task[Any]] = {*(asyncio.all_tasks() - before), entering}
    for task in gone:
        task.cancel()
    await asyncio.wait({driving})
    await world.close_store(outside)
    had = {one for child in await children(real, run_id) for one in await recorded(real, child)}
    await world.close_store(real)
    return breaking.calls, had


async def children(store: Any, run_id: str) -> list[str]:
    rows = await store.rows("SELECT run_id FROM moor_run", {})
    return [row[0] for row in rows]


async def test_killed_at_each_call_of_the_store(disk: World) -> None:
    calls, _ = await lives_until(disk, None, after=False, run_id=await started(disk))
    assert calls.count("commit") >= 12
    for at in range(1, len(calls) + 1):
        for after in (False, True):
            effects.clear()
            run_id = await started(disk)
            _, had = await lives_until(disk, at, after=after, run_id=run_id)
            before = Counter(effects)
            store = await disk.open_store()
            async with disk.engine(whole, part, store=store) as engine:
                driving = asyncio.create_task(drive(disk, run_id, store))
                assert await result(engine.run(run_id)) == EXPECTED, (at, after, calls[at - 1])
                await driving
                for key in had:
                    assert effects[key] == before[key], (at, after, key)
                assert all(count <= (3 if "flaky" in key else 2) for key, count in effects.items()), effects
                assert len([1 for event in await events_of(engine.run(run_id), "child.started")]) == 2
                open_ = await store.rows("SELECT count(*) FROM moor_run WHERE status = 'open'", {})
                assert open_ == [(0,)], (at, after)
                undone = await store.rows("SELECT count(*) FROM moor_admission WHERE outcome IS NULL", {})
                assert undone == [(0,)], (at, after)
            await disk.close_store(store)


AWAY, UNKNOWN = Unavailable("away"), CommitUnknown("who knows")


@pytest.mark.parametrize(
    ("call", "at", "error", "after"),
    [
        ("commit", 1, AWAY, False),
        ("commit", 1, UNKNOWN, False),
        ("commit", 1, UNKNOWN, True),
        ("commit", 2, UNKNOWN, True),
        ("commit", 4, UNKNOWN, True),
        ("commit", 4, AWAY, False),
        ("steps", 1, AWAY, False),
        ("claim", 1, AWAY, False),
    ],
)
async def test_a_database_that_fails_once_delays_and_loses_nothing(
    world: World, call: str, at: int, error: Exception, after: bool
) -> None:
    effects.clear()

    @workflow
    async def short(ctx: WorkflowContext) -> list[str]:
        first = [await ctx.step(effect, name) for name in "ab"]
        await ctx.sleep(1)
        return [*first, await ctx.step(effect, "c")]

    store = await world.open_store()
    failing = Failing(store, call, error, at=at, after=after)
    async with world.engine(short, store=failing.as_store) as engine:
        run = await engine.start(short)
        while not (await run.status()).ended_at:
            world.advance(milliseconds=500)
            await asyncio.sleep(0.01)
        assert await result(run) == ["a", "b", "c"]
        assert max(effects.values()) <= 2


async def test_a_lease_that_is_over_is_taken_from_a_worker_that_is_frozen(world: World) -> None:
    @workflow
    async def short(ctx: WorkflowContext) -> str:
        return await ctx.step(effect, "a")

    store = await world.open_store()
    async with world.engine(short, store=store, work=False) as outside:
        run = await outside.start(short)
        abilities = Abilities(sessions=False, workflows=("short",))
        (stale,) = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1, abilities=abilities))
        async with world.engine(short, options=replace(FAST, lease=0.1)):
            await asyncio.sleep(0.1)
            assert (await outside.run(run.run_id).status()).status == "running"
            world.advance(seconds=61)
            assert await result(run) == "a"
        with pytest.raises(LeaseLost):
            await store.release(stale.run_id, stale.epoch, timer_at=None, seen=0, unused=False)


async def test_four_crashes_of_one_attempt_end_the_run(disk: World) -> None:
    @workflow
    async def deadly(ctx: WorkflowContext) -> int:
        return await ctx.step(step(kills, name="kills"))

    began: list[int] = []

    async def kills() -> int:
        began.append(step_context().attempt)
        await asyncio.Event().wait()
        return 1

    store = await disk.open_store()
    async with disk.engine(deadly, store=store, work=False) as engine:
        run = await engine.start(deadly)
    for crash in range(MAX_CHARGED):
        dying = await disk.open_store()
        breaking = Breaking(dying, at=None)
        before = asyncio.all_tasks()
        async with asyncio.timeout(PATIENCE):
            entered = await Engine(breaking.as_store, workflows=[deadly], clock=disk.clock, options=FAST).__aenter__()
            await until(more_than(began, crash))
        breaking.dead.set()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await disk.close_store(dying)
        assert entered is not None
    assert began == [1, 2, 3, 4]
    async with disk.engine(deadly) as engine:
        with pytest.raises(RunFailed) as failed:
            await result(engine.run(run.run_id))
        assert failed.value.code == "interrupted"
    assert began == [1, 2, 3, 4]


async def test_a_step_that_outlives_no_worker_fails_while_others_go_on(disk: World) -> None:
    """Each crash is followed by a recorded step, so the run is never charged four times; the step is counted by itself."""
    began: list[int] = []

    @step
    async def kills() -> int:
        began.append(step_context().attempt)
        await asyncio.Event().wait()
        return 1

    @workflow
    async def mixed(ctx: WorkflowContext) -> list[Any]:
        async def count() -> int:
            for _ in range(10):
                await ctx.wait_for(f"tick {ctx.run_id}")
            return 10

        counting = asyncio.ensure_future(count())
        try:
            await ctx.step(kills)
        except StepFailed as failed:
            counting.cancel()
            return [failed.code, failed.attempts]
        return []

    store = await disk.open_store()
    async with disk.engine(mixed, store=store, work=False) as outside:
        run = await outside.start(mixed)
        for crash in range(4):
            dying = await disk.open_store()
            breaking = Breaking(dying, at=None)
            before = asyncio.all_tasks()
            await Engine(breaking.as_store, workflows=[mixed], clock=disk.clock, options=FAST).__aenter__()
            await until(more_than(began, crash))
            steps = len(await store.steps(run.run_id))
            await outside.signal(run_id=run.run_id, name=f"tick {run.run_id}", value=crash)
            await until(partial(grown, store, run.run_id, steps))
            breaking.dead.set()
            for task in asyncio.all_tasks() - before:
                task.cancel()
            await disk.close_store(dying)
        async with disk.engine(mixed) as engine:
            assert await result(engine.run(run.run_id)) == ["interrupted", 4]
    assert began == [1, 2, 3, 4]


def more_than(began: list[int], count: int) -> Callable[[], bool]:
    return lambda: len(began) > count


async def grown(store: Any, run_id: str, steps: int) -> bool:
    return len(await store.steps(run_id)) > steps
