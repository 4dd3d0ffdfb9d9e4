"""Words of people within the bot's own: names in remarks, values in a card that is shown as text. None is a link of the bot's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from bot import Agent, Approval, Bot, ToolContext, tool
from bot.history import ResultItem
from bot.model import ModelReply, ModelRequest, OnText
from bot.testing import FakeSlack, running
from bot.testing.slack.faults import refused
from bot.testing.slack.shapes import user_json
from channels.slack import Slack
from tests.bot.session.actors import calls, says

NAME = "[Open the portal](https://evil.example/x)"
VALUE = "ch_1_a_ *b* [ch_9](https://evil.example/pay) ~~x~~ ```"
HOUR = timedelta(hours=1)


@tool(effect="write", approval=Approval(ask="Refund {charge_id}?", remind_after=HOUR))
async def refund(ctx: ToolContext[None], charge_id: str) -> str:
    """Refund a charge."""
    return f"refunded {charge_id}"


class Model:
    """Refunds what it was told to by somebody else."""

    name = "told"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        return says("done") if isinstance(request.history[-1], ResultItem) else calls(("refund", {"charge_id": VALUE}))


@asynccontextmanager
async def shop(slack: FakeSlack) -> AsyncIterator[FakeSlack]:
    channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
    async with running(
        Bot(agents=[Agent("support", Model(), tools=[refund])], channels=[channel]), slack=slack, clock=slack.clock
    ):
        yield slack


async def test_a_display_name_is_no_link_in_what_the_bot_remarks(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(user: Any, **known: Any) -> Any:
        told = user_json(user, **known)
        if user.name == "alice":
            told["profile"]["display_name"] = NAME
        return told

    monkeypatch.setattr("bot.testing.slack.reading.user_json", named)
    async with FakeSlack() as fresh, shop(fresh) as slack:
        said = await slack.mention("alice", "general", "go")
        card = await slack.until(lambda: slack.card(said))
        await slack.advance(HOUR)
        (reminder,) = await slack.until(lambda: slack.replies(said)[1:])
        await slack.until(lambda: "[Open the portal]" in slack.replies(said)[1].text)
        assert reminder.links == ()
        await slack.click(card, "Approve", "alice")
        await slack.until(lambda: "Approved by [Open the portal]" in slack.replies(said)[0].words)
        await slack.click(card, "Deny", "bob")
        (told,) = await slack.until(lambda: [one for one in slack.visible_to("bob") if "settled before" in one.text])
        assert "[Open the portal]" in told.text
        assert told.links == ()


async def test_a_card_that_is_shown_as_text_shows_values_to_the_letter() -> None:
    async with FakeSlack() as fresh, shop(fresh) as slack:
        slack.fail("chat.postMessage", refused("invalid_blocks"), times=2)
        said = await slack.mention("alice", "general", "go")
        (shown,) = await slack.until(lambda: slack.replies(said))
        assert shown.links == ()
        assert f"\n  | {VALUE}\n" in shown.words
        assert shown.words.startswith("````\n")
        assert shown.words.endswith("\n````")
