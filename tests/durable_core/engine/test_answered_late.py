"""A question that its body gives up just as somebody answers it: the answer counts where it can, and is told in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.engine.handles import RunHandle
from durable_core.model import StepCommit
from durable_core.operations import Option
from durable_core.registry import step, workflow
from durable_core.store import Store
from tests.durable_core.engine.worlds import World, events_of, parked, result, until

GO = [Option("go", "Go")]


class Interrupted:
    """Lets something happen just before the first commit that would settle a question."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: Callable[[], Awaitable[Any]] | None = None

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        return self._commit if name == "commit" else call

    async def _commit(self, commit: StepCommit) -> Any:
        if commit.settle and self.before is not None:
            before, self.before = self.before, None
            await before()
        return await self._store.commit(commit)


async def resolved(run: RunHandle) -> list[tuple[str, str | None]]:
    return [(event.data["outcome"], event.data.get("by")) for event in await events_of(run, "input.resolved")]


async def answered_by(engine: Engine, prompt_id: str, who: str) -> None:
    receipt = await engine.answer(prompt_id, option_id="go", by=who)
    assert receipt.status == "settled"


async def test_an_answer_beats_the_timeout_that_was_not_written_yet(world: World) -> None:
    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(4):
                return str((await ctx.ask("Quick?", GO)).option_id)
        except TimeoutError:
            await ctx.sleep(1)
            return "late"

    real = await world.open_store()
    store = Interrupted(real)
    async with world.engine(impatient, store=store.as_store) as engine:
        run = await engine.start(impatient)
        await parked(run)
        (prompt,) = await run.prompts()
        store.before = lambda: answered_by(engine, prompt.prompt_id, "ann")
        world.advance(seconds=5)
        assert await result(run) == "go"
        assert await resolved(run) == [("answered", "ann")]
    await world.close_store(real)


async def test_an_answer_that_comes_too_late_for_a_step_is_told_as_what_it_was(world: World) -> None:
    gate = asyncio.Event()

    async def finish() -> str:
        await gate.wait()
        return "done without"

    @workflow
    async def either(ctx: WorkflowContext) -> Any:
        finishing, asked = ctx.step(finish_step), ctx.ask("Enough?", GO)
        both: list[asyncio.Future[Any]] = [finishing, asked]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        await ctx.sleep(1)
        return await finishing

    finish_step = step(finish, name="finish")
    real = await world.open_store()
    store = Interrupted(real)
    async with world.engine(either, store=store.as_store) as engine:
        run = await engine.start(either)
        (prompt,) = await until(run.prompts)
        store.before = lambda: answered_by(engine, prompt.prompt_id, "ann")
        gate.set()
        await parked(run)
        world.advance(seconds=1)
        assert await result(run) == "done without"
        assert await resolved(run) == [("answered", "ann")]
        assert (await real.prompt(prompt.prompt_id)).outcome == "answered"
        assert len(await events_of(run, "step.completed")) == 1
    await world.close_store(real)


async def test_of_two_answers_the_second_is_told_though_the_first_one_made_it_needless(world: World) -> None:
    @workflow
    async def first_of(ctx: WorkflowContext) -> str | None:
        asked = [ctx.ask("One?", GO, name="one"), ctx.ask("Two?", GO, name="two")]
        done, left = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        return (await done.pop()).by

    async with world.engine(first_of, work=False) as engine:
        run = await engine.start(first_of)
        await engine.run_due()
        for who, prompt in zip(("ann", "bob"), await run.prompts(), strict=True):
            await answered_by(engine, prompt.prompt_id, who)
        await engine.run_due()
        assert await result(run) == "ann"
        assert await resolved(run) == [("answered", "ann"), ("answered", "bob")]
