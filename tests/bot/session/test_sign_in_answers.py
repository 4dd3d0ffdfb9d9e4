"""Answers to a request to sign in: a link is asked for beside them, cancelling is one, and nobody can say "connected" for it.

What lives here: buttons, API, override and typed text on a real store. What does not: the link itself (tests/bot/signins).
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.answers import Way
from bot.buttons import button_value
from bot.egress import NO_SIGN_INS
from bot.history import ResultStatus
from bot.ingress import Ingress
from bot.principal import Principal
from bot.session_api import Response, ResponseStatus
from bot.telling import explain
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.ids import new_id
from durable_core.model import AnswerStatus, Outcome, Prompt, PromptOutcome
from tests.bot.session.accounts import press, settle, with_accounts
from tests.bot.session.actors import ADDRESS, CHANNEL, PLACE
from tests.bot.session.gated import ask, prompts, results
from tests.bot.session.kit import ALICE, BOB, Thread


async def asking(thread: Thread) -> Prompt:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    return await thread.prompt()


async def links(thread: Thread) -> list[tuple[str | None, str]]:
    """Who was given a link, alone, and where: here it can't be made, and that is told in its place."""
    await thread.work()
    told = [shown for shown in thread.channel.shown if shown.message.text == NO_SIGN_INS]
    return [(one.message.private_to, one.delivery.address) for one in told]


async def still_open(thread: Thread, asked: Prompt) -> None:
    (open_one,) = await prompts(thread)
    assert (open_one.prompt_id, open_one.outcome, open_one.votes) == (asked.prompt_id, None, ())
    assert thread.log.runs == []
    await thread.cancel()
    await thread.work()


async def test_connect_asks_for_a_link_that_is_owed_to_them_alone_as_often_as_they_like(thread: Thread) -> None:
    asked = await asking(thread)
    for count in range(1, 4):
        receipt = await press(thread, "connect")
        assert (receipt.status, receipt.reason, explain(receipt)) == (AnswerStatus.ASIDE, None, None)
        assert await links(thread) == [("alice", ADDRESS)] * count
    await still_open(thread, asked)


async def test_the_same_click_twice_is_one_link(thread: Thread) -> None:
    asked = await asking(thread)
    way = Way(via="button", source=CHANNEL, key="click-1", at=(CHANNEL, ADDRESS), tell_at=(CHANNEL, ADDRESS))
    for _ in range(2):
        receipt = await thread.answers.admit(asked.prompt_id, "connect", principal=ALICE, place=PLACE, way=way)
        assert receipt.status is AnswerStatus.ASIDE
    assert len(await links(thread)) == 1
    await still_open(thread, asked)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (BOB, "Only the person who asked may answer this."),
        (Principal("", "Alice", ALICE.standing), "This bot answers only people it can tell apart."),
    ],
)
async def test_nobody_else_gets_a_link(thread: Thread, who: Principal, why: str) -> None:
    asked = await asking(thread)
    receipt = await press(thread, "connect", who)
    assert (receipt.status, explain(receipt)) == (AnswerStatus.REFUSED, why)
    assert await links(thread) == []
    await still_open(thread, asked)


async def test_an_override_gets_nobody_else_s_link_and_connects_nothing(thread: Thread) -> None:
    asked = await asking(thread)
    given: dict[str, Any] = {"reason": "urgent", "note": None, "key": None}
    assert (await thread.prompts.override(BOB, asked.prompt_id, option_id="connect", **given)).status is ResponseStatus.REFUSED
    assert (await thread.prompts.override(BOB, asked.prompt_id, option_id="connected", **given)).status is ResponseStatus.REFUSED
    assert await links(thread) == []
    await still_open(thread, asked)


async def test_once_it_is_settled_there_is_no_link(thread: Thread) -> None:
    asked = await asking(thread)
    await press(thread, "cancel")
    receipt = await press(thread, "connect", prompt=asked)
    assert receipt.status is AnswerStatus.ALREADY_SETTLED
    assert explain(receipt) == "This was settled before: Alice did not connect GitHub."
    assert await links(thread) == []
    await thread.work()


async def test_the_api_says_where_a_link_is_to_be_had(thread: Thread) -> None:
    asked = await asking(thread)
    (result,) = await thread.prompts.respond(
        ALICE, thread.run_id, responses=[Response(asked.prompt_id, option_id="connect")], key=None
    )
    assert (result.status, result.reason) == (
        ResponseStatus.REFUSED,
        "A link is given where it was asked for, or by POST /v1/prompts/{request_id}/connect.",
    )
    await still_open(thread, asked)


# ── forgeries ──


async def test_a_forged_button_connects_nothing(thread: Thread) -> None:
    asked = await asking(thread)
    ingress = Ingress(
        store=thread.store,
        channels={CHANNEL: thread.channel},
        agent_of={CHANNEL: "support"},
        answers=thread.answers,
        deployment="d",
        lifetime_ms=None,
    )
    for option in ("connected", "declined", "approve", "=connected", "*approve", "?connected"):
        body = codec.encode({"who": "alice", "click": f"{asked.prompt_id}:{option}", "key": new_id("key")})
        (click,) = (await ingress.receive(CHANNEL, WebhookRequest("POST", "/", body=body))).clicks
        assert click.status == "refused", option
    assert button_value(asked.prompt_id, "connected") == f"{asked.prompt_id}:connected"
    await still_open(thread, asked)


async def test_the_api_connects_nothing(thread: Thread) -> None:
    asked = await asking(thread)
    for given in (
        Response(asked.prompt_id, option_id="connected"),
        Response(asked.prompt_id, text="connected"),
        Response(asked.prompt_id, option_id="approve"),
    ):
        (result,) = await thread.prompts.respond(ALICE, thread.run_id, responses=[given], key=None)
        assert result.status is ResponseStatus.REFUSED
    await still_open(thread, asked)


async def test_typed_it_is_a_word_like_any_other(thread: Thread) -> None:
    asked = await asking(thread)
    await thread.say("connected", BOB)
    await thread.work()
    assert len(await prompts(thread)) == 1
    await thread.say("connected")
    await thread.work()
    assert (await thread.store.prompt(asked.prompt_id)).outcome is PromptOutcome.IGNORED
    assert thread.log.runs == []
    assert results(thread)[0][0] is ResultStatus.REJECTED


# ── typed ──


@pytest.mark.parametrize("text", ["connect", "Connect GitHub", "1"])
async def test_typed_connect_asks_for_a_link(thread: Thread, text: str) -> None:
    asked = await asking(thread)
    typed = await thread.say(text)
    assert len(await links(thread)) == 1
    assert await thread.outcome(typed) is Outcome.COMPLETED
    assert (await thread.detail(typed))["answer"]["status"] == "aside"
    await still_open(thread, asked)


@pytest.mark.parametrize("text", ["cancel", "2"])
async def test_typed_cancel_ends_it(thread: Thread, text: str) -> None:
    await asking(thread)
    await thread.say(text)
    await thread.work()
    assert results(thread) == [(ResultStatus.REJECTED, "Alice did not connect GitHub. The call did not run.")]


async def test_typed_by_somebody_else_it_gets_them_nothing(thread: Thread) -> None:
    asked = await asking(thread)
    await thread.say("connect", BOB)
    assert await links(thread) == []
    await thread.work()
    await still_open(thread, asked)


async def test_a_note_with_a_cancel_reaches_the_model_quoted(thread: Thread) -> None:
    asked = await asking(thread)
    given = Response(asked.prompt_id, option_id="cancel", note="not with my account")
    await thread.prompts.respond(ALICE, thread.run_id, responses=[given], key=None)
    await thread.work()
    text = 'Alice did not connect GitHub. Their note: "not with my account" The call did not run.'
    assert results(thread) == [(ResultStatus.REJECTED, text)]


async def test_whoever_is_later_is_told_who_was_first(thread: Thread) -> None:
    asked = await asking(thread)
    assert (await press(thread, "cancel")).status is AnswerStatus.SETTLED
    assert (await settle(thread, asked)).status is AnswerStatus.ALREADY_SETTLED
    await thread.work()
    assert thread.log.runs == []
