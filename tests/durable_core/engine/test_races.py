"""Everything at once: workers that die between any two calls, while people answer, signal and cancel; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
import os
from datetime import timedelta
from typing import Any

import pytest

from durable_core.context import WorkflowContext, step_context
from durable_core.engine.engine import Engine
from durable_core.errors import CommitUnknown, DurableError, RunCancelled, RunFailed
from durable_core.failures import ChildFailed, HookTaken, StepFailed
from durable_core.operations import Option
from durable_core.registry import step, workflow
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from tests.durable_core.engine.breaking import Breaking, Failing
from tests.durable_core.engine.worlds import FAST, PATIENCE, World

MINE: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("mine", default=None)
SEEDS = range(int(os.environ.get("FROM", "0")), int(os.environ.get("TO", "3")))
AT_ONCE = RetryPolicy(first=timedelta(0), cap=timedelta(0))


@step(backoff=AT_ONCE, attempts=9)
async def shaky(items: list[int]) -> int:
    items.append(1)
    if step_context().attempt % 2:
        raise ConnectionError
    return len(items)


@workflow
async def leaf(ctx: WorkflowContext, number: int) -> list[int]:
    if number % 3 == 0:
        await ctx.sleep(5)
    if number % 5 == 4:
        raise ValueError(number)
    return [await ctx.step(shaky, [number])]


@workflow
async def detached(ctx: WorkflowContext, number: int) -> int:
    return number


async def child(ctx: WorkflowContext, number: int, key: str | None) -> Any:
    try:
        got = await ctx.child(leaf, number, key=key)
        got.append(number)
    except ChildFailed as failed:
        return failed.type_name
    return got


async def hooked(ctx: WorkflowContext) -> Any:
    while True:
        try:
            return await ctx.wait_for("shared")
        except HookTaken:
            await ctx.sleep(3)


async def raced(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(4):
            await ctx.ask("Quick?", [Option("go", "Go")])
    except TimeoutError:
        return "late"
    return "quick"


@workflow
async def storm(ctx: WorkflowContext, seed: int) -> Any:
    works = [
        *(child(ctx, number, None) for number in range(3)),
        *(child(ctx, 4, "same") for _ in range(2)),
        *(child(ctx, 7, "good") for _ in range(2)),
        hooked(ctx),
        raced(ctx),
        *(ctx.step(shaky, [seed]) for _ in range(3)),
        ctx.sleep(7),
    ]
    random.Random(seed).shuffle(works)  # noqa: S311 - an order that a seed names
    try:
        got = await asyncio.gather(*works)
        answer = await ctx.ask("Done?", [Option("go", "Go")], expires=timedelta(seconds=50))
        return [len(got), answer.option_id or "expired"]
    finally:
        ctx.start(detached, seed, key="last")


async def outside(world: World, engine: Engine, runs: list[str], rng: random.Random, cancelled: str) -> None:
    """Do what the world does, in any order and more than once, until all runs have ended."""
    while True:
        open_ = [one for one in await engine.runs(limit=1000) if one.ended_at is None]
        if not open_:
            return
        with suppress(DurableError):
            match rng.randrange(5):
                case 0:
                    world.advance(seconds=rng.random() * 4)
                case 1:
                    for prompt in await engine.prompts(rng.choice(runs)):
                        await engine.answer(prompt.prompt_id, option_id="go", by="alice", key=rng.choice(["a", None]))
                case 2:
                    await engine.signal("shared", rng.random())
                case 3:
                    await engine.signal(run_id=rng.choice(runs), name="shared", value=rng.random(), key="once")
                case 4 if rng.random() < 0.05:
                    await engine.cancel(cancelled)
        await asyncio.sleep(0.002)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """A database that outlives who works on it."""
    return str(request.getfixturevalue("migrated_url")) if request.param == "postgres" else request.param


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_storm_passes(world: World, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a seed that the test's name shows
    asyncio.get_running_loop().set_task_factory(_owned)
    store = await world.open_store()
    async with Engine(store, workflows=[storm, leaf, detached], clock=world.clock, work=False) as front:
        runs = [(await front.start(storm, seed * 10 + number)).run_id for number in range(3)]
        happening = asyncio.create_task(outside(world, front, runs, rng, runs[0]))
        while not happening.done():
            await _life(world, rng, happening)
        await happening
        for run_id in runs:
            try:
                assert (await front.run(run_id).result(1))[0] == 13
            except RunCancelled:
                assert run_id == runs[0]
            except RunFailed as failed:  # a step that no worker survived
                assert failed.code == "interrupted"
        await _in_order(front, store, runs)


async def _life(world: World, rng: random.Random, happening: asyncio.Task[None]) -> None:
    """Work until the store breaks, sometimes as two at once, or fails without saying whether it did."""
    stores: list[tuple[Store, Breaking]] = []
    for _ in range(rng.choice([1, 2])):
        real = await world.open_store()
        unsure = Failing(real, "commit", CommitUnknown("who knows"), at=rng.randint(1, 9), after=rng.random() < 0.5)
        stores.append((real, Breaking(unsure.as_store, at=rng.randint(5, 200), after=rng.random() < 0.5)))
    mine: set[asyncio.Task[Any]] = set()
    MINE.set(mine)
    for _, one in stores:
        engine = Engine(one.as_store, workflows=[storm, leaf, detached], clock=world.clock, options=FAST)
        mine.add(asyncio.create_task(engine.__aenter__()))
    mine.update(dead := [asyncio.create_task(one.dead.wait()) for _, one in stores])
    MINE.set(None)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({happening, *dead}, return_when=asyncio.FIRST_COMPLETED)
    for _, one in stores:
        one.dead.set()
    for task in list(mine):
        task.cancel()
    await asyncio.sleep(0)
    for real, _ in stores:
        await world.close_store(real)


def _owned(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task that is known to be of the worker that is to die."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    if (mine := MINE.get()) is not None and ".stores." not in coro.cr_code.co_filename.replace("/", "."):
        mine.add(task)
    return task


async def _in_order(front: Engine, store: Any, runs: list[str]) -> None:
    """Nothing is open, unanswered, owed or doubled."""
    assert await store.rows("SELECT kind, run_id FROM moor_admission WHERE outcome IS NULL", {}) == []
    assert await store.rows("SELECT run_id, stranded FROM moor_run WHERE status = 'open' OR stranded IS NOT NULL", {}) == []
    last = await front.runs(workflow="detached")
    assert len(last) == len(runs)
    for one in await front.runs(limit=1000):
        steps = await store.steps(one.run_id)
        assert [entry.n for entry in steps] == list(range(len(steps)))
        done = Counter(entry.name for entry in steps if entry.kind in {"step", "timer", "answer", "child"})
        assert set(done.values()) <= {1}, done
        assert [entry.kind for entry in steps].count("end") == 1
        with suppress(RunFailed, RunCancelled, StepFailed):
            await front.run(one.run_id).result(1)
