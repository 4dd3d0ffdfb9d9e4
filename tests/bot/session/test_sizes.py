"""Values that are too large to be kept: each is refused where it comes in, by name, and nothing waits for it for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue

from bot.app import Bot
from bot.context import ToolContext
from bot.errors import BadApp, ModelFailed
from bot.history import ResultItem, ResultStatus
from bot.ingress import Ingress
from bot.model import ModelReply, ModelRequest, OnText
from bot.session.fitting import without_largest
from bot.session_api import SessionApi
from bot.sessions import Sessions
from bot.tools import OUTPUT_LIMIT, tool
from bot.turn.change import Change
from bot.turn.state import Limits, State
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.codec import LIMIT
from durable_core.errors import TooLarge
from durable_core.model import Outcome
from tests.bot.session.actors import CHANNEL, Log, Turn, calls, says
from tests.bot.session.kit import ALICE, Thread
from tests.bot.session.test_approvals import ask

SMALL = 64 * 1024
BIG = "x" * (SMALL + 1)


def streams(text: str) -> Turn:
    async def answer(request: ModelRequest, on_text: OnText) -> ModelReply:
        for start in range(0, len(text), 10_000):
            await on_text(text[start : start + 10_000])
        return says("short after all")

    return answer


def fails(message: str) -> Turn:
    return ModelFailed("provider_error", message, retryable=False)


async def goes_on(thread: Thread) -> None:
    """The next message is answered."""
    receipt = await thread.say("still there?")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED


# A model's reply


@pytest.mark.parametrize(
    "reply",
    [says(BIG), calls(("look", {"at": BIG})), calls(("look", BIG)), streams(BIG * 2)],
    ids=["text", "arguments", "raw arguments", "streamed"],
)
async def test_a_reply_over_the_limit_fails_its_turn_at_once(thread: Thread, reply: Turn) -> None:
    thread.limits = Limits(value_bytes=SMALL)
    thread.hire("w1")
    thread.model.script = [reply]
    receipt = await thread.say("hi")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.FAILED
    assert (await thread.detail(receipt))["code"] == "bad_reply"
    assert len(thread.model.requests) == 1, "no retry mends it, so none is paid"
    await goes_on(thread)


async def test_a_reply_just_under_sixteen_mebibytes_is_kept_in_all_its_copies(thread: Thread) -> None:
    """The record holds its arguments twice, the step three times where the call waits."""
    thread.model.script = [calls(("look", {"at": "y" * (LIMIT - 1_000)})), says("done")]
    receipt = await thread.say("hi")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    await goes_on(thread)


async def test_a_provider_s_error_of_any_length_is_told_in_short(thread: Thread) -> None:
    thread.model.script = [fails("page " * 1_000_000)]
    receipt = await thread.say("hi")
    await thread.work()
    assert len((await thread.detail(receipt))["message"]) <= 2_001
    await goes_on(thread)


# Calls and their results


async def test_arguments_nobody_could_be_shown_are_refused_unasked(thread: Thread) -> None:
    thread.model.script = [calls(("pay", {"amount": 20, "why": "\u202e" * 2_000_000})), says("then not")]
    receipt = await thread.say("pay")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert thread.log.names() == []
    [result] = [item for item in thread.model.requests[1].history if isinstance(item, ResultItem)]
    assert result.status is ResultStatus.FAILED


@tool(effect="read")
async def pour(ctx: ToolContext[Log], what: str = "") -> Any:
    """Return far too much."""
    return RETURNS[what]()


def deep() -> Any:
    value: Any = []
    for _ in range(300):
        value = [value]
    return value


RETURNS: dict[str, Callable[[], Any]] = {
    "text": lambda: "z" * (LIMIT + 1),
    "list": lambda: ["z" * 1_000] * 20_000,
    "deep": deep,
    "surrogate": lambda: "\ud800",
    "numbers": lambda: {"nan": float("nan"), "big": 10**400},
    "object": object,
}


@pytest.mark.parametrize("what", RETURNS)
async def test_a_tool_may_return_anything(thread: Thread, what: str) -> None:
    thread.tools = (pour,)
    thread.hire("w1")
    thread.model.script = [calls(("pour", {"what": what})), says("done")]
    receipt = await thread.say("hi")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    [result] = [item for item in thread.model.requests[1].history if isinstance(item, ResultItem)]
    assert len(str(result.content)) < 2 * OUTPUT_LIMIT
    await goes_on(thread)


async def test_results_too_large_together_give_way_largest_first(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    thread.tools = (say_back,)
    thread.hire("w1")
    monkeypatch.setattr(codec, "MOST", 4_800)
    asked: list[tuple[str, dict[str, JsonValue] | str]] = [("say_back", {"n": n}) for n in (300, 3_500, 1_500)]
    thread.model.script = [calls(*asked), says("done")]
    receipt = await thread.say("hi")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    results = [item for item in thread.model.requests[1].history if isinstance(item, ResultItem)]
    assert [item.status for item in results] == [ResultStatus.COMPLETED] * 3
    assert [str(item.content)[:3] for item in results] == ["aaa", "It ", "aaa"]
    monkeypatch.undo()
    thread.hire("w2")  # what is stored is what the model was told
    await goes_on(thread)
    folded = [item for item in thread.model.requests[-1].history if isinstance(item, ResultItem)]
    assert folded == results


@tool(effect="read")
async def say_back(ctx: ToolContext[Log], n: int = 0) -> str:
    """Return so many letters."""
    return "a" * n


def test_without_results_nothing_gives_way() -> None:
    assert without_largest(Change(kind="open", state=State())) is None


# Messages


async def test_a_message_over_the_limit_is_refused_by_name(thread: Thread) -> None:
    sessions: SessionApi = Sessions(
        store=thread.store,
        streams=thread.streams,
        prompts=thread.prompts,
        agents=["support"],
        deployment="d",
        lifetime_ms=None,
        message_bytes=Limits(value_bytes=SMALL).message_bytes,
    )
    with pytest.raises(TooLarge) as caught:
        await sessions.create(ALICE, message="x" * 5_000, agent=None, metadata=None, key=None)
    assert caught.value.limit == SMALL // 16


async def test_a_channel_s_message_over_the_limit_is_left_aside(thread: Thread) -> None:
    ingress = Ingress(
        store=thread.store,
        channels={CHANNEL: thread.channel},
        agent_of={CHANNEL: "support"},
        answers=thread.answers,
        deployment="d",
        lifetime_ms=None,
    )
    for text, taken in (("x" * (LIMIT // 16), 0), ("@bot hello", 1)):
        body = codec.encode({"who": "alice", "text": text, "key": text[:9]})
        got = await ingress.receive(CHANNEL, WebhookRequest("POST", "/", body=body))
        assert (got.response.status, len(got.receipts)) == (200, taken)
    assert ingress.counts["unstorable"] == 1


async def test_as_many_of_the_largest_messages_as_are_folded_fit_into_one_step(thread: Thread) -> None:
    await ask(thread)
    receipts = [await thread.say("m" * (Limits().message_bytes - 1_000)) for _ in range(Limits().folded_messages)]
    await thread.work()
    assert [await thread.outcome(receipt) for receipt in receipts] == [Outcome.COMPLETED] * len(receipts)


# The setting


@pytest.mark.parametrize("value", [0, SMALL - 1, LIMIT + 1])
def test_a_limit_out_of_bounds_is_a_problem_at_start(thread: Thread, value: int) -> None:
    with pytest.raises(BadApp, match="value_bytes"):
        Bot(agents=[thread.agent], limits=Limits(value_bytes=value)).check()
