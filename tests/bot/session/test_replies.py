"""Replies that can't be kept as they are: scrubbed, or refused before any tool runs.

What lives here: what a model may return. What does not: arguments that don't fit a tool (test_approvals.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.errors import ModelFailed
from bot.history import AssistantItem, ResultItem, ResultStatus
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.session.replies import scrubbed
from durable_core.model import Outcome
from tests.bot.session.actors import calls, says
from tests.bot.session.kit import Thread

HALF = "a\ud800b"


async def test_halves_of_surrogate_pairs_are_replaced_everywhere(thread: Thread) -> None:
    async def streams(request: ModelRequest, on_text: OnText) -> ModelReply:
        await on_text(HALF)
        asked = (
            RequestedCall("look", {"at": HALF}, provider_id=HALF),
            RequestedCall(HALF, {HALF: [{HALF: HALF}]}),
            RequestedCall("look", HALF),
        )
        return ModelReply(HALF, asked, finish=Finish.TOOLS, model=HALF)

    thread.model.script = [streams]
    receipt = await thread.say("go")
    assert await thread.work() == 1
    (first, *_) = [item for item in thread.model.requests[1].history if isinstance(item, AssistantItem)]
    assert (first.text, first.model) == ("a?b", "a?b")
    assert [(call.tool, call.arguments, call.raw, call.provider_id) for call in first.calls] == [
        ("look", {"at": "a?b"}, None, "a?b"),
        ("a?b", {"a?b": [{"a?b": "a?b"}]}, None, ""),
        ("look", {}, "a?b", ""),
    ]
    results = [item.status for item in thread.model.requests[1].history if isinstance(item, ResultItem)]
    assert results == [ResultStatus.COMPLETED, ResultStatus.FAILED, ResultStatus.FAILED]
    assert await thread.outcome(receipt) is Outcome.COMPLETED


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


BAD: list[Any] = [
    None,
    "text",
    ModelReply(None),  # type: ignore[arg-type]
    ModelReply("", (None,)),  # type: ignore[arg-type]
    calls(("look", {"at": object()})),  # type: ignore[dict-item]
    calls(("look", {1: "x"})),  # type: ignore[dict-item]
    calls(("look", None)),  # type: ignore[arg-type]
    calls(("look", deep())),
    says("x" * (17 << 20)),
    calls(("look", {"at": "x" * (17 << 20)})),
]


@pytest.mark.parametrize("reply", BAD, ids=range(len(BAD)))
async def test_what_is_no_reply_fails_the_turn_at_once(thread: Thread, reply: Any) -> None:
    async def answer(request: ModelRequest, on_text: OnText) -> ModelReply:
        return reply

    thread.model.script = [answer]
    receipt = await thread.say("go")
    assert await thread.work() == 1
    assert len(thread.model.requests) == 1
    assert (await thread.detail(receipt))["code"] == "bad_reply"
    after = await thread.say("again")
    await thread.work()
    assert await thread.outcome(after) is Outcome.COMPLETED


async def test_a_failure_in_words_that_can_not_be_stored_is_told(thread: Thread) -> None:
    thread.model.script = [ModelFailed(HALF, HALF, retryable=False), ValueError(HALF)]
    first = await thread.say("go")
    await thread.work()
    assert (await thread.detail(first))["message"] == "a?b"
    second = await thread.say("go")
    await thread.work()
    thread.later_s(60)
    await thread.work()
    assert await thread.outcome(second) is Outcome.COMPLETED


def test_numbers_that_json_lacks_become_text() -> None:
    (call,) = scrubbed(calls(("look", {"a": float("nan"), "b": [float("inf")], "c": 1.5}))).calls
    assert call.arguments == {"a": "nan", "b": ["inf"], "c": 1.5}
