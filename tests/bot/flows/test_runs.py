"""Runs that work for calls: side by side, nested, stopped, failing, too late; their turn always goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.approvals import Approval
from bot.flows import conversation, workflow_tool
from bot.forget import forget_session
from bot.tools import OUTPUT_LIMIT
from bot.turn.children import STOPPED
from bot.turn.state import Limits
from durable_core.context import WorkflowContext, step_context
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.bot.flows.threads import (
    ENDED,
    FLOWS,
    PARKED,
    Obeying,
    all_settled,
    check_balance,
    events,
    posted,
    session_of,
    thread,
    until,
)

YES = [Option("go", "Yes"), Option("stop", "No")]


@dataclass
class Gate:
    """Where a step waits, in the middle of its work, until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def deps(self) -> AsyncIterator[Gate]:
        yield self


@workflow
async def asks(ctx: WorkflowContext, service: str) -> str:
    """Ask."""
    answer = await ctx.ask(f"Really {service}?", YES, expires=timedelta(days=3))
    return "expired" if answer.expired else f"{service} {answer.option_id} by {answer.name}"


@workflow
async def works(ctx: WorkflowContext, service: str) -> str:
    """Work."""
    try:
        return await ctx.step(at_the_gate, service)
    finally:
        await ctx.step(tidy)


async def at_the_gate(service: str) -> str:
    gate = step_context().deps
    gate.reached.set()
    await gate.opened.wait()
    return f"{service} is done"


def tidy() -> str:
    home = conversation()
    assert home is not None
    return f"tidied for {home.requester.name}"


@workflow
async def sleeps(ctx: WorkflowContext, service: str) -> str:
    """Sleep for two hours."""
    await ctx.sleep(timedelta(hours=2))
    return f"{service} slept"


@workflow
async def delegates(ctx: WorkflowContext, service: str) -> str:
    """Let another workflow ask."""
    return await ctx.child(asks, service)


@workflow
async def gives_up(ctx: WorkflowContext, service: str) -> str:
    """Let another workflow ask, for an hour."""
    try:
        async with asyncio.timeout(3600):
            return await ctx.child(asks, service)
    except TimeoutError:
        await ctx.sleep(timedelta(hours=1))
        return "gave up"


@workflow
async def fails(ctx: WorkflowContext, service: str) -> str:
    """Fail."""
    raise ValueError(f"no {service} here")


@workflow
async def returns(ctx: WorkflowContext, service: str) -> Any:
    """Return something."""
    values = {"rich": {"price": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC)}, "huge": "x" * (OUTPUT_LIMIT + 10)}
    return object() if service == "odd" else values[service]


gated = workflow_tool(workflow(name="gated")(asks.fn), approval=Approval(ask="Start {service}?"))


async def test_two_runs_and_a_gated_call_of_one_step_end_in_any_order() -> None:
    async with thread(asks, works, gated, model=Obeying(), deps=(gate := Gate()).deps) as (slack, app):
        asked = await slack.mention("alice", "general", "asks api + works web + gated db")
        card = await posted(slack, asked, "Really api?")
        approval = await posted(slack, asked, "Start db?")
        await gate.reached.wait()
        assert len(await app.runtime.store.rows(FLOWS, {})) == 2
        await slack.click(approval, "Approve", "alice")
        third = await posted(slack, asked, "Really db?")
        gate.opened.set()
        await slack.click(card, "Yes", "alice")
        await slack.click(third, "No", "alice")
        reply = await posted(slack, asked, "works: completed")
        for words in ("asks: completed: api go by Alice", "works: completed: web is done", "gated: completed: db stop by Alice"):
            assert words in reply.words
        seen = await events(app)
        check_balance(seen)
        types = [event.type for event in seen]
        assert (types.count("task.started"), types.count("action.result"), types.count("turn.completed")) == (3, 3, 1)
        await all_settled(app)


async def test_what_a_nested_run_asks_is_asked_in_the_conversation() -> None:
    async with thread(delegates, model=Obeying(), workflows=[asks]) as (slack, app):
        asked = await slack.mention("alice", "general", "delegates api")
        card = await posted(slack, asked, "Really api?")
        assert "It goes on as Alice" in card.words
        session, _ = await session_of(app)
        await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'waiting'")
        [requested] = [event for event in await events(app) if event.type == "input.requested"]
        [begun] = [event for event in await events(app) if event.type == "task.started"]
        assert requested.data["call_id"] == begun.data["call_id"]
        assert requested.data["requests"][0]["session_id"] == session
        await slack.click(card, "Yes", "alice")
        await posted(slack, asked, "delegates: completed: api go by Alice")
        check_balance(await events(app))
        await all_settled(app)


async def test_a_question_that_a_nested_run_takes_back_is_told_to_be_over() -> None:
    async with thread(gives_up, model=Obeying(), workflows=[asks]) as (slack, app):
        asked = await slack.mention("alice", "general", "gives_up api")
        await posted(slack, asked, "Really api?")
        await until(app, PARKED)
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'input.requested' AND run_id LIKE 'ses_%'")
        await slack.advance(timedelta(hours=1, seconds=1))
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'input.resolved' AND run_id LIKE 'ses_%'")
        await slack.until(lambda: slack.replies(asked)[0].buttons == ())
        await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'running' AND owner IS NULL")
        await slack.advance(timedelta(hours=1, seconds=1))
        await posted(slack, asked, "gives_up: completed: gave up")
        check_balance(await events(app))


@pytest.mark.parametrize("said", ["asks api", "works api"])
async def test_a_new_message_stops_a_run_and_is_taken_in_once_it_has_ended(said: str) -> None:
    async with thread(asks, works, model=Obeying(), deps=(gate := Gate()).deps) as (slack, app):
        asked = await slack.mention("alice", "general", said)
        if said == "works api":
            await gate.reached.wait()
        else:
            await posted(slack, asked, "Really api?")
        await slack.message("alice", "general", "never mind", asked)
        reply = await posted(slack, asked, "You said: never mind")
        assert f"(before: cancelled: {STOPPED})" in reply.words
        seen = await events(app)
        check_balance(seen)
        assert [event.type for event in seen].count("turn.started") == 1
        [settled] = [event for event in seen if event.type == "task.settled"]
        assert settled.data["status"] == "cancelled"
        ended = await app.runtime.store.rows("SELECT end_reason FROM moor_run WHERE kind = 'workflow'", {})
        assert ended == [("cancelled",)]
        if said == "works api":
            [[run_id]] = await app.runtime.store.rows(FLOWS, {})
            steps = await app.runtime.store.steps(str(run_id))
            assert [step.name for step in steps if step.kind == "step"] == ["step:tidy#0"]
        await all_settled(app)


async def test_a_turn_that_is_stopped_stops_its_run_and_does_not_hear_its_end() -> None:
    async with thread(works, model=Obeying(), deps=(gate := Gate()).deps) as (slack, app):
        asked = await slack.mention("alice", "general", "works api")
        await gate.reached.wait()
        session, alice = await session_of(app)
        await app.runtime.sessions.cancel(alice, session, turn_id=None, key=None)
        await until(app, ENDED)
        await slack.message("alice", "general", "hello", asked)
        await posted(slack, asked, "You said: hello")
        await all_settled(app)
        seen = await events(app)
        check_balance(seen)
        types = [event.type for event in seen]
        assert (types.count("task.settled"), types.count("action.result")) == (1, 1)


@pytest.mark.parametrize("said", ["asks api", "works api", "delegates api"])
async def test_a_session_that_is_ended_stops_its_runs_and_tells_so(said: str) -> None:
    async with thread(asks, works, delegates, model=Obeying(), deps=(gate := Gate()).deps) as (slack, app):
        asked = await slack.mention("alice", "general", said)
        if said == "works api":
            await gate.reached.wait()
        else:
            await posted(slack, asked, "Really api?")
            await until(app, "SELECT 1 FROM moor_event WHERE type = 'input.requested' AND run_id LIKE 'ses_%'")
        session, alice = await session_of(app)
        await app.runtime.sessions.reset(alice, session, reason=None, key=None)
        await until(app, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM moor_run WHERE kind = 'workflow' AND status = 'open')")
        check_balance(await events(app))
        if said != "works api":
            await slack.until(lambda: slack.replies(asked)[0].buttons == ())


async def test_a_question_of_a_run_expires_and_the_run_goes_on() -> None:
    async with thread(asks, model=Obeying()) as (slack, app):
        asked = await slack.mention("alice", "general", "asks api")
        await posted(slack, asked, "Really api?")
        await until(app, PARKED)
        await slack.advance(timedelta(days=3, seconds=1))
        await posted(slack, asked, "asks: completed: expired")
        check_balance(await events(app))


async def test_a_session_whose_time_is_over_lets_its_run_end_first() -> None:
    async with thread(sleeps, model=Obeying(), lifetime=timedelta(hours=1)) as (slack, app):
        asked = await slack.mention("alice", "general", "sleeps api")
        await until(app, PARKED)
        await slack.advance(timedelta(hours=2, seconds=1))
        await posted(slack, asked, "sleeps: completed: api slept")
        await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND status = 'ended' AND end_reason = 'expired'")
        check_balance(await events(app))


async def test_a_limit_is_asked_about_after_the_run_and_not_during_it() -> None:
    async with thread(asks, model=Obeying(), limits=Limits(model_calls=1)) as (slack, app):
        asked = await slack.mention("alice", "general", "asks api")
        await slack.click(await posted(slack, asked, "Really api?"), "Yes", "alice")
        await slack.click(await posted(slack, asked, "Go on?"), "Continue", "alice")
        await posted(slack, asked, "asks: completed: api go by Alice")
        check_balance(await events(app))


async def test_a_group_may_answer_what_a_run_asks() -> None:
    @workflow
    async def by_group(ctx: WorkflowContext, service: str) -> str:
        """Ask a group."""
        answer = await ctx.ask(f"Really {service}?", YES, by={"group": "release"})
        return f"{answer.option_id} by {answer.name}"

    async with thread(by_group, model=Obeying(), groups={"release": lambda who: who.name == "Bob"}) as (slack, app):
        asked = await slack.mention("alice", "general", "by_group api")
        card = await posted(slack, asked, "Really api?")
        await slack.click(card, "Yes", "alice")
        await slack.until(lambda: slack.whispers("alice"))
        await slack.click(card, "Yes", "bob")
        await posted(slack, asked, "by_group: completed: go by Bob")
        check_balance(await events(app))


async def test_what_a_run_comes_to_is_told_like_the_result_of_any_tool() -> None:
    async with thread(fails, returns, model=Obeying()) as (slack, app):
        asked = await slack.mention("alice", "general", "fails api + returns rich + returns odd")
        reply = await posted(slack, asked, "fails: failed: ValueError: no api here")
        assert "'price': '1.50'" in reply.words
        assert "'at': '2026-01-02T00:00:00Z'" in reply.words
        assert "returns: failed:" in reply.words
        assert "can't store object" in reply.words
        check_balance(await events(app))


async def test_a_huge_result_is_cut_like_that_of_any_tool() -> None:
    async with thread(returns, model=Obeying()) as (slack, app):
        await slack.mention("alice", "general", "returns huge")
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'turn.completed'")
        [result] = [event for event in await events(app) if event.type == "action.result"]
        assert OUTPUT_LIMIT < len(result.data["result"]) < OUTPUT_LIMIT + 200
        assert "[cut: the first" in result.data["result"]


async def test_forgetting_a_session_forgets_its_runs_and_theirs() -> None:
    async with thread(delegates, model=Obeying(), workflows=[asks]) as (slack, app):
        asked = await slack.mention("alice", "general", "delegates api")
        await posted(slack, asked, "Really api?")
        session, _ = await session_of(app)
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'task.started'")
        assert await forget_session(app.runtime.store, session, by="operator")
        left = await app.runtime.store.rows("SELECT run_id FROM moor_run WHERE purged_at IS NULL", {})
        assert left == []
