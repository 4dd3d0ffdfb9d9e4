"""Reminders of what workflows ask: in the place of the card, for those who may answer, and alone where the card was private."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bot.access import AccessPolicy, Allow, members_only
from bot.connections.connection import OAuthConnection
from durable_core import NotAuthorized
from durable_core.context import WorkflowContext
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.bot.flows.connecting import private_card, privately
from tests.bot.flows.threads import Obeying, check_balance, events, posted, thread
from tests.bot.signins.authority import Authority, authority

HOUR = timedelta(hours=1)


@workflow
async def roll(ctx: WorkflowContext, service: str) -> str:
    """Ask before it rolls out."""
    answer = await ctx.ask(f"Roll {service} out?", [Option("go", "Go")], remind_after=HOUR, expires=2 * HOUR)
    return "nobody said so" if answer.expired else "rolled out"


@pytest.fixture
async def tracker() -> AsyncIterator[OAuthConnection]:
    async with authority() as provider:
        yield connection(provider)


def connection(provider: Authority) -> OAuthConnection:
    names: dict[str, Any] = {f"{name}_url": f"{provider.url}/{name}" for name in ("device", "token", "userinfo", "revoke")}
    return OAuthConnection("tracker", title="Tracker", client_id="app", grant="device", scopes=["issues"], **names)


@pytest.mark.parametrize("access", [members_only, lambda *_: Allow()], ids=["default", "own"])
async def test_a_question_is_reminded_of_in_its_thread(access: AccessPolicy) -> None:
    async with thread(roll, model=Obeying(), access=access) as (slack, app):
        asked = await slack.mention("alice", "general", "roll api")
        await slack.until(lambda: slack.card(asked))
        await slack.advance(HOUR)
        reminder = await posted(slack, asked, "Still unanswered: “Roll api out?”. Alice may answer.")
        assert reminder.words.startswith("<@U")
        await slack.advance(HOUR)
        await posted(slack, asked, "roll: completed: nobody said so")
        assert len([one for one in slack.replies(asked) if "Still unanswered" in one.words]) == 1
        seen = await events(app)
        check_balance(seen)
        [reminded] = [event.data for event in seen if event.type == "input.reminded"]
        [requested] = [request for event in seen if event.type == "input.requested" for request in event.data["requests"]]
        assert (reminded["request_id"], reminded["kind"]) == (requested["request_id"], "question")


async def test_a_sign_in_is_reminded_of_in_private(tracker: OAuthConnection) -> None:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        try:
            return (await ctx.authorize(tracker)).account
        except NotAuthorized as error:
            return error.reason

    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await private_card(slack)
        await slack.advance(4 * HOUR)
        words = "Still unanswered: “Connect Tracker to go on”. Alice may answer."
        await slack.until(lambda: [one for one in privately(slack) if words in one.words])
        assert all("Still unanswered" not in one.words for one in slack.replies(asked))
        await slack.advance(20 * HOUR)
        await posted(slack, asked, "visit: completed: Nobody connected Tracker in time.")
        assert [event.data["kind"] for event in await events(app) if event.type == "input.reminded"] == ["sign-in"]
