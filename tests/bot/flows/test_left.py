"""Runs that nobody can go on with: code that changed, workers without the workflow. The conversation is never held for ever."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.context import ToolContext
from bot.operate import actions
from bot.testing import FakeSlack
from bot.tools import Tool, tool
from bot.turn.children import UNHEARD
from durable_core.context import WorkflowContext
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.bot.flows.threads import Obeying, all_settled, check_balance, events, posted, thread, until

YES = [Option("go", "Yes")]
STRANDED = "SELECT run_id FROM moor_run WHERE kind = 'workflow' AND stranded IS NOT NULL"
CANCELLED = "SELECT 1 FROM moor_run WHERE kind = 'workflow' AND end_reason = 'cancelled'"


@workflow(name="ship")
async def ship(ctx: WorkflowContext, service: str) -> str:
    """Ship, as the code once did it."""
    await ctx.step(pack, service)
    answer = await ctx.ask("Ship it?", YES)
    return f"shipped: {answer.option_id}"


@workflow(name="ship")
async def ship_otherwise(ctx: WorkflowContext, service: str) -> str:
    """Ship, in another way."""
    await ctx.step(unpack, service)
    return "shipped otherwise"


def pack(service: str) -> str:
    return service


def unpack(service: str) -> str:
    return service


@workflow(name="asks")
async def asks(ctx: WorkflowContext, service: str) -> str:
    """Ask."""
    answer = await ctx.ask(f"Really {service}?", YES)
    return str(answer.option_id)


@workflow(name="ship")
async def ship_by_others(ctx: WorkflowContext, service: str) -> str:
    """Let others do it, one of them by itself."""
    await ctx.step(pack, service)
    ctx.start(asks, "alone")
    return await ctx.child(asks, service)


async def test_what_a_run_started_goes_with_it_though_its_code_is_gone(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        async with thread(ship_by_others, model=Obeying(), slack=slack, data=tmp_path, workflows=[asks]) as (_, app):
            said = await slack.mention("alice", "general", "ship api")
            nested, alone = await posted(slack, said, "Really api?"), await posted(slack, said, "Really alone?")
            await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'waiting' AND owner IS NULL")
        async with thread(ship_otherwise, model=Obeying(), slack=slack, data=tmp_path, workflows=[asks]) as (_, app):
            await slack.message("alice", "general", "never mind", said)
            await posted(slack, said, "You said: never mind")
            await slack.until(lambda: not any(one.buttons for one in slack.replies(said) if one.ts == nested.ts))
            check_balance(await events(app))
            ended = "SELECT name FROM moor_run WHERE kind = 'workflow' AND end_reason = 'cancelled' ORDER BY name"
            await until(app, f"{ended} LIMIT 1 OFFSET 1")
            assert await app.runtime.store.rows(ended, {}) == [("asks",), ("ship",)]
            assert any(one.buttons for one in slack.replies(said) if one.ts == alone.ts)


@tool(effect="read")
def other(ctx: ToolContext[None], service: str) -> str:
    """Do something else."""
    return service


async def _shipping(slack: FakeSlack, data: Path) -> Any:
    """Begin with the code of the day; return what was said, once it is asked."""
    async with thread(ship, model=Obeying(), slack=slack, data=data) as (_, app):
        said = await slack.mention("alice", "general", "ship api")
        await posted(slack, said, "Ship it?")
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'input.requested' AND run_id LIKE 'ses_%'")
        await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'waiting' AND owner IS NULL")
        await slack.settled()
    return said


@pytest.mark.parametrize("how", ["operator", "words", "repair"])
async def test_a_run_that_the_new_code_can_not_go_on_with_is_listed_and_can_be_stopped(tmp_path: Path, how: str) -> None:
    async with FakeSlack() as slack:
        said = await _shipping(slack, tmp_path)
        async with thread(ship_otherwise, model=Obeying(), slack=slack, data=tmp_path) as (_, app):
            await slack.click(slack.replies(said)[0], "Yes", "alice")
            [run_id] = await until(app, STRANDED)
            assert (await app.runtime.store.rows("SELECT phase FROM moor_run WHERE kind = 'session'", {})) != [("idle",)]
            if how == "operator":
                assert "told to stop" in await actions.cancel(app.runtime.store, run_id)
                await posted(slack, said, "ship: cancelled: ")
            elif how == "words":
                await slack.message("alice", "general", "never mind", said)
                await posted(slack, said, "You said: never mind")
            if how != "repair":
                await until(app, CANCELLED)
                check_balance(await events(app))
                await all_settled(app)
        if how == "repair":
            async with thread(ship, model=Obeying(), slack=slack, data=tmp_path) as (_, app):
                await actions.resume(app.runtime.store, run_id)
                await posted(slack, said, "ship: completed: shipped: go")
                check_balance(await events(app))


@tool(name="ship", effect="read")
def plain_ship(ctx: ToolContext[None], service: str) -> str:
    """Ship, as a plain tool."""
    return service


@pytest.mark.parametrize("tools", [(other,), (other, plain_ship)], ids=["gone", "tool"])
async def test_a_run_whose_workflow_is_gone_is_left_alone_and_words_go_on_without_it(
    tmp_path: Path, tools: tuple[Tool, ...]
) -> None:
    async with FakeSlack() as slack:
        said = await _shipping(slack, tmp_path)
        async with thread(*tools, model=Obeying(), slack=slack, data=tmp_path) as (_, app):
            await slack.message("alice", "general", "never mind", said)
            await until(app, "SELECT 1 FROM moor_step WHERE kind = 'interrupt'")
            await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND owner IS NULL AND wake_at IS NOT NULL")
            await slack.advance(timedelta(seconds=61))
            reply = await posted(slack, said, "You said: never mind")
            assert f"(before: unknown: {UNHEARD})" in reply.words
            seen = await events(app)
            check_balance(seen)
            [run] = await app.runtime.store.rows("SELECT status, owner, attempt FROM moor_run WHERE kind = 'workflow'", {})
            assert run[:2] == ("open", None)
        async with thread(ship, model=Obeying(), slack=slack, data=tmp_path) as (_, app):  # its late end changes nothing
            await until(app, CANCELLED)
            await all_settled(app)
            assert [event.type for event in (await events(app))[len(seen) :]] == []
