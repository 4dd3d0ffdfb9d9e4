"""Prompts on Slack from the question to its end: several on one card, forms, and a card that one person alone sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import JsonValue

from bot import Agent, Approval, Bot, ToolContext, tool
from bot.answers import MOST_A_MINUTE
from bot.history import ResultItem
from bot.model import ModelReply, ModelRequest, OnText
from bot.testing import FakeSlack, running
from bot.testing.slack import Message, Said
from channels.slack import Slack
from tests.bot.session.actors import calls, says


@tool(effect="write", approval=Approval(ask="Refund {amount} for {charge_id}?", edit=["amount"]))
async def refund(ctx: ToolContext[None], charge_id: str, amount: int) -> str:
    """Refund a charge."""
    return f"refunded {amount} for {charge_id}"


@tool(effect="write", approval=Approval(ask="Deploy {part}?", route="direct"))
async def deploy(ctx: ToolContext[None], part: str) -> str:
    """Deploy a part."""
    return f"deployed {part}"


class Model:
    """Asks for what the message names, then repeats what came of it."""

    name = "told"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        last = request.history[-1]
        if isinstance(last, ResultItem):
            return says("; ".join(str(item.content) for item in request.history if isinstance(item, ResultItem)))
        words = str(getattr(last, "text", ""))
        if "deploy" in words:
            return calls(("deploy", {"part": "web"}))
        wanted: list[dict[str, JsonValue]] = [{"charge_id": f"ch_{number}", "amount": 10 * number} for number in (1, 2, 3)]
        return calls(*(("refund", arguments) for arguments in wanted))


@asynccontextmanager
async def shop() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
        bot = Bot(agents=[Agent("support", Model(), tools=[refund, deploy])], channels=[channel])
        async with running(bot, slack=slack):
            yield slack


async def asked(slack: FakeSlack, text: str = "refund all") -> tuple[Said, Message]:
    said = await slack.mention("alice", "general", text)
    return said, await slack.until(lambda: slack.card(said))


def card(slack: FakeSlack, said: Said) -> Message:
    return slack.replies(said)[0]


async def test_calls_that_wait_together_share_a_card_and_are_approved_one_by_one_or_all() -> None:
    async with shop() as slack:
        said, shown = await asked(slack)
        assert "3 calls wait for an answer" in shown.words
        assert [button.label for button in shown.buttons][-2:] == ["Approve all", "Deny all"]
        second = [button for button in shown.buttons if button.label == "Deny"][1]
        await slack.click(shown, second.value, "alice")
        await slack.until(lambda: "Denied by Alice" in card(slack, said).words)
        assert "2 of 3 calls still wait" in card(slack, said).words
        await slack.click(card(slack, said), "Approve all", "bob")
        await slack.until(lambda: slack.whispers("bob"))
        assert "2 of 3 calls still wait" in card(slack, said).words
        posting = await slack.click(card(slack, said), "Approve all", "alice")
        (_, reply) = await slack.until(lambda: slack.replies(said)[1:] and slack.replies(said))
        assert "refunded 10 for ch_1" in reply.words
        assert "refunded 30 for ch_3" in reply.words
        assert "refunded 20" not in reply.words
        await slack.until(lambda: "3 calls, all of them settled" in card(slack, said).words)
        assert card(slack, said).buttons == ()
        await slack.repeat(posting)
        await slack.settled()
        assert len(slack.replies(said)) == 2


async def test_a_click_for_all_of_which_one_answer_comes_above_the_bound_holds_nothing_up() -> None:
    async with shop() as slack:
        said, shown = await asked(slack)
        first = next(button for button in shown.buttons if button.label == "Approve")
        for _ in range(MOST_A_MINUTE):
            await slack.click(shown, first.value, "bob")
        await slack.until(lambda: len(slack.whispers("bob")) == MOST_A_MINUTE)
        await slack.click(shown, "Approve all", "bob")
        await slack.click(shown, "Approve all", "alice")
        reply = await slack.until(lambda: [one for one in slack.replies(said) if "refunded 30 for ch_3" in one.words])
        assert reply
        told = slack.whispers("bob")[-1].words
        assert "2: Only" in told
        assert "1: That was too often within a minute" in told


async def test_a_denial_bears_a_note_that_the_card_quotes() -> None:
    async with shop() as slack:
        said, shown = await asked(slack)
        button = next(button for button in shown.buttons if button.label == "Deny with a note")
        await slack.click(shown, button.value, "alice")
        form = await slack.until(lambda: slack.modal("alice"))
        assert "Refund 10 for ch_1?" in form.words
        (label,) = form.fields
        await slack.submit(form, {label: "Not this month"})
        assert slack.modal("alice") is None
        await slack.until(lambda: "Not this month" in card(slack, said).words)
        assert "2 of 3 calls still wait" in card(slack, said).words


async def test_a_form_is_refused_to_others_only_once_it_is_sent_and_the_card_stays() -> None:
    async with shop() as slack:
        said, shown = await asked(slack)
        button = next(button for button in shown.buttons if button.label == "Change first")
        await slack.click(shown, button.value, "bob")
        form = await slack.until(lambda: slack.modal("bob"))
        assert form.fields == {"amount": "10"}
        await slack.submit(form, {"amount": "1000"})
        await slack.until(lambda: slack.whispers("bob"))
        assert "3 calls wait for an answer" in card(slack, said).words


async def test_a_card_for_one_person_is_a_direct_message_that_is_settled_there() -> None:
    async with shop() as slack:
        said = await slack.mention("alice", "general", "deploy web")
        await slack.until(lambda: slack.replies(said))
        assert "to them privately" in slack.replies(said)[0].words
        assert slack.card(said) is None

        def direct() -> Message | None:
            return next((one for one in slack.visible_to("alice") if one.channel != said.channel), None)

        shown = await slack.until(direct)
        assert "Deploy web?" in shown.words
        await slack.click(shown, "Approve", "alice")
        await slack.until(lambda: any("deployed web" in reply.words for reply in slack.replies(said)))
        await slack.until(lambda: "Approved by Alice" in (direct() or shown).words)
        assert (direct() or shown).buttons == ()
        assert not [one for one in slack.visible_to("bob") if "Deploy web?" in one.words]
