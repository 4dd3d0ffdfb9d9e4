"""Workflows as tools, in a Slack thread: asked there, answered there, resumed there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from bot.approvals import Approval
from bot.demo import compute_plan, roll_out
from bot.egress import Egress
from bot.flows import conversation, workflow_tool
from bot.principal import Principal
from channels.errors import DeliveryFailed
from channels.events import Standing
from channels.outbound import Outbound
from durable_core.context import WorkflowContext, step_context
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.bot.flows.threads import ENDED, FLOWS, PARKED, events, thread, until


async def test_a_deployment_asks_in_the_thread_waits_and_answers_there() -> None:
    async with thread() as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        card = await slack.until(lambda: slack.card(asked))
        plan = compute_plan("api")
        assert f"Deploy api {plan['version']}?" in card.words
        assert [button.label for button in card.buttons] == ["Deploy", "Cancel"]
        await slack.click(card, "Deploy", "bob")
        [told] = await slack.until(lambda: slack.whispers("bob"))
        assert "may answer this" in told.words
        await slack.click(card, "Deploy", "alice")
        await slack.until(lambda: "Answered by" in slack.replies(asked)[0].words)
        assert slack.replies(asked)[0].buttons == ()
        await until(app, PARKED)
        await slack.advance(timedelta(seconds=6))
        [reply] = await slack.until(lambda: slack.replies(asked)[1:])
        assert reply.words == roll_out(plan)
        types = [event.type for event in await events(app)]
        assert types.count("input.requested") == types.count("input.resolved") == 1
        assert types.count("action.partial") >= 1
        assert types.count("turn.completed") == 1


async def test_a_typed_word_answers_and_another_stops_the_run() -> None:
    async with thread() as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        await slack.until(lambda: slack.card(asked))
        await slack.message("alice", "general", "Cancel", asked)
        [_, reply] = await slack.until(lambda: found if len(found := slack.replies(asked)) == 2 else None)
        assert reply.words == "api was not deployed: Alice said no."
        await slack.message("alice", "general", "deploy web", asked)
        await slack.until(lambda: [one for one in slack.replies(asked) if "Deploy web" in one.words])
        await slack.message("alice", "general", "hello", asked)
        await slack.until(lambda: [one for one in slack.replies(asked) if one.words.startswith("Hello")])
        ended = await app.runtime.store.rows("SELECT end_reason FROM moor_run WHERE kind = 'workflow' ORDER BY created_at", {})
        assert [row[0] for row in ended] == ["completed", "cancelled"]
        web = next(one for one in slack.replies(asked) if "Deploy web" in one.words)
        assert web.buttons == ()


async def test_stop_ends_the_run_and_takes_its_card_away() -> None:
    async with thread() as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        await slack.until(lambda: slack.card(asked))
        await until(app, "SELECT 1 FROM moor_event WHERE type = 'input.requested' AND run_id LIKE 'ses_%'")
        [[session, creator]] = await app.runtime.store.rows("SELECT run_id, creator FROM moor_run WHERE kind = 'session'", {})
        alice = Principal(str(creator), "Alice", Standing.MEMBER, frozenset(), "slack")
        await app.runtime.sessions.cancel(alice, str(session), turn_id=None, key=None)
        await until(app, ENDED)
        await slack.until(lambda: slack.replies(asked)[0].buttons == ())
        types = [event.type for event in await events(app)]
        assert types[-2:] == ["turn.cancelled", "session.waiting"]
        assert types.count("input.requested") == types.count("input.resolved") == 1


@workflow
async def who(ctx: WorkflowContext, service: str) -> str:
    """Say who asked.

    Args:
        ctx: The run.
        service: Anything.
    """
    return await ctx.step(say_who, service)


def say_who(service: str) -> str:
    home = conversation()
    assert home is not None
    return f"{service}: {home.requester.name}, {step_context().deps}"


async def test_an_approved_workflow_starts_once_and_its_steps_know_for_whom() -> None:
    @asynccontextmanager
    async def deps() -> AsyncIterator[str]:
        yield "the pool"

    gated = workflow_tool(_named("deploy", who), approval=Approval(ask="Start {service}?"))
    async with thread(gated, deps=deps) as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        card = await slack.until(lambda: slack.card(asked))
        assert not await app.runtime.store.rows(FLOWS, {})
        await asyncio.gather(*(slack.click(card, "Approve", "alice") for _ in range(2)))
        [_, reply] = await slack.until(lambda: found if len(found := slack.replies(asked)) == 2 else None)
        assert reply.words == "api: Alice, the pool"
        assert len(await app.runtime.store.rows(FLOWS, {})) == 1
        await slack.until(lambda: "api: Alice" in slack.replies(asked)[0].words)


@workflow
async def words(ctx: WorkflowContext, service: str) -> str:
    """Ask in words.

    Args:
        ctx: The run.
        service: Anything.
    """
    said = await ctx.ask(f"Why {service}?", allow_freeform=True)
    picked = await ctx.ask("Which?", [Option(f"r{one}", f"Region {one}") for one in range(8)], by=["slack:nobody:x", "*"])
    return f"{said.text}, {said.by}, {picked.option_id}"


async def test_words_of_ones_own_answer_a_question_that_takes_them() -> None:
    async with thread(workflow_tool(_named("deploy", words))) as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        await slack.until(lambda: slack.card(asked))
        await slack.message("alice", "general", "since it is time", asked)
        await slack.until(lambda: [one for one in slack.replies(asked) if "Which?" in one.words])
        await slack.message("alice", "general", "Region 3", asked)
        [told] = await slack.until(lambda: slack.whispers("alice"))
        assert "may answer this" in told.words
        assert len(await app.runtime.store.rows(ENDED, {})) == 0


def _named(name: str, made: Any) -> Any:
    return workflow(name=name)(made.fn)


async def test_a_question_whose_card_is_refused_is_asked_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Egress._deliver

    async def refused(self: Egress, channel: Any, lane: Any, item: Any, message: Outbound) -> Any:
        if message.card is not None and item.edit_ref is None:
            raise DeliveryFailed("invalid_blocks", permanent=True)
        return await deliver(self, channel, lane, item, message)

    monkeypatch.setattr(Egress, "_deliver", refused)
    async with thread() as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        [words] = await slack.until(lambda: slack.replies(asked))
        assert "Deploy api" in words.words
        assert "2. Cancel" in words.words
        await slack.message("alice", "general", "2", asked)
        [_, reply] = await slack.until(lambda: found if len(found := slack.replies(asked)) == 2 else None)
        assert reply.words == "api was not deployed: Alice said no."
        [told] = [event.data for event in await events(app) if event.type == "input.undeliverable"]
        assert (told["error"], told["fallback"]) == ("invalid_blocks", "text")
