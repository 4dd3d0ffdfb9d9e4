"""What an author does that can't be right: durable calls from a step, names that no database keeps, errors that can't be told."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.errors import RunFailed, Unstorable
from durable_core.failures import Fatal, StepFailed
from durable_core.operations import Hook, Option
from durable_core.registry import step, workflow
from tests.durable_core.engine.worlds import World, events_of, parked, result

LONG = "".join(Random(7).choices(string.ascii_letters, k=5_000))


async def late() -> int:
    return 1


@workflow
async def alone(ctx: WorkflowContext) -> int:
    return 1


CALLS: dict[str, Callable[[WorkflowContext], Any]] = {
    "step": lambda ctx: ctx.step(late),
    "sleep": lambda ctx: ctx.sleep(1),
    "ask": lambda ctx: ctx.ask("Well?", allow_freeform=True),
    "wait_for": lambda ctx: ctx.wait_for("there"),
    "webhook": lambda ctx: ctx.webhook(),
    "start": lambda ctx: ctx.start(alone),
    "authorize": lambda ctx: ctx.authorize(object()),
    "uuid": lambda ctx: ctx.uuid(),
    "random": lambda ctx: ctx.random.random(),
    "patched": lambda ctx: ctx.patched("new"),
}


@pytest.mark.parametrize("on_loop", [True, False])
async def test_a_durable_call_from_a_step_is_refused_and_is_no_part_of_the_run(world: World, *, on_loop: bool) -> None:
    @workflow
    async def misled(ctx: WorkflowContext) -> list[str]:
        said: dict[str, str] = {}

        def call_all() -> None:
            for name, call in CALLS.items():
                try:
                    call(ctx)
                except RuntimeError as error:
                    said[name] = str(error)

        async def on_the_loop() -> None:
            call_all()

        await ctx.step(step(on_the_loop if on_loop else call_all, name="call_all"))
        await ctx.step(late)
        return [name for name, words in said.items() if "call ctx in the body" in words]

    async with world.engine(misled, alone) as engine:
        run = await engine.start(misled)
        assert await result(run) == list(CALLS)
        assert [event.data["op"] for event in await events_of(run, "step.completed")] == ["step:call_all#0", "step:late#0"]


async def test_a_key_or_hook_that_no_index_holds_is_refused_at_once_on_every_database(world: World) -> None:
    @workflow
    async def waits(ctx: WorkflowContext, long: str) -> Any:
        return await ctx.wait_for(Hook(long))

    async with world.engine(waits) as engine:
        for refused in (
            lambda: engine.start(waits, "x", key=LONG),
            lambda: engine.signal(LONG),
            lambda: engine.signal("x", key=LONG),
            lambda: engine.answer(LONG, text="yes"),
        ):
            with pytest.raises(Unstorable, match="5000 bytes"):
                await refused()
        with pytest.raises(RunFailed, match="the name of a hook") as failed:
            await result(await engine.start(waits, LONG))
        assert failed.value.code == "error"
        ready = await engine.start(waits, LONG[:1_000], key=LONG[:1_000])
        await parked(ready)
        await engine.signal(LONG[:1_000], "came", key=LONG[:1_000])
        assert await result(ready) == "came"


async def test_ids_that_no_database_keeps_and_places_past_all_events(world: World) -> None:
    async with world.engine(alone) as engine:
        for unknown in ("run\0x", "run\ud800x"):
            with pytest.raises(Unstorable):
                engine.run(unknown)
            with pytest.raises(Unstorable):
                [event async for event in engine.events(unknown)]
        run = await engine.start(alone)
        await result(run)
        assert [event async for event in engine.events(run.run_id, start=2**70)] == []
        assert len([event async for event in engine.events(run.run_id, start=-(2**70))]) == 2


async def test_children_by_key_are_two_where_a_workflow_has_a_colon_in_its_name(world: World) -> None:
    @workflow(name="tax")
    async def tax(ctx: WorkflowContext) -> str:
        return "tax"

    @workflow(name="tax:eu")
    async def tax_eu(ctx: WorkflowContext) -> str:
        return "tax:eu"

    @workflow
    async def parent(ctx: WorkflowContext) -> list[str]:
        return [await ctx.child(tax, key="eu:7"), await ctx.child(tax_eu, key="7")]

    async with world.engine(parent, tax, tax_eu) as engine:
        assert await result(await engine.start(parent)) == ["tax", "tax:eu"]


class Unsayable(Exception):
    """An error whose text does what no text should."""

    def __str__(self) -> str:
        raise SystemExit(3)


async def test_errors_that_can_not_be_told_end_their_run_at_once_and_nothing_else(world: World) -> None:
    @workflow
    async def says(ctx: WorkflowContext, where: str) -> None:
        if where == "code":
            raise StepFailed(step="x", type_name="X", message="m", code="\ud800")
        if where == "body":
            raise Unsayable

        def broken() -> None:
            raise Fatal("no", code="\ud800") if where == "fatal" else Unsayable

        await ctx.step(step(broken, name="broken", attempts=1))

    async with world.engine(says) as engine:
        for where in ("code", "body", "fatal", "step"):
            with pytest.raises(RunFailed) as failed:
                await result(await engine.start(says, where))
            assert failed.value.code in {"?", "error"}, where


async def test_a_fatal_error_in_a_task_group_is_final_as_well(world: World) -> None:
    tried: list[int] = []

    @step
    async def grouped() -> None:
        tried.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(refuses())

    async def refuses() -> None:
        raise Fatal("no such card", code="bad_card")

    @workflow
    async def pays(ctx: WorkflowContext) -> list[Any]:
        try:
            await ctx.step(grouped)
        except StepFailed as failed:
            return [failed.code, failed.message, failed.attempts]
        return []

    async with world.engine(pays) as engine:
        assert await result(await engine.start(pays)) == ["bad_card", "no such card", 1]
    assert tried == [1]


@pytest.mark.parametrize("name", ["nul\0", "lone\ud800"])
def test_names_that_no_database_keeps_are_refused_where_they_are_given(name: str) -> None:
    async def body(ctx: WorkflowContext) -> None: ...

    with pytest.raises(Unstorable, match="the name of a workflow"):
        workflow(name=name)(body)
    with pytest.raises(Unstorable, match="the name of a step"):
        step(late, name=name)
    with pytest.raises(Unstorable, match="the id of an option"):
        Option(name, "Yes")
    with pytest.raises(Unstorable, match="5000 bytes"):
        workflow(name=LONG)(body)
