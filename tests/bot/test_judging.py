"""A model that judges a call: only a clear and whole yes lets it run, and secrets don't reach it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest

from bot.approvals import Approval
from bot.context import ToolContext
from bot.deciding import Deciding, Surroundings
from bot.errors import ModelFailed
from bot.history import Trust, UserItem
from bot.masks import Secret
from bot.model import ModelReply, ModelRequest, OnText, RequestedCall
from bot.policies import auto
from bot.tools import tool
from tests.bot.people import ALICE

CRITERIA = ("It is small.", "The customer is known.")


@tool
async def refund(ctx: ToolContext, amount: int, token: Annotated[str, Secret]) -> None:
    """Refund some money."""


CALL = refund.call({"amount": 5, "token": "hunter2-token"}, "0.0.0", requester=ALICE)


class Judge:
    """Answers what it is told, and remembers what it was asked."""

    name = "judge"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self.asked.append(request)
        await on_text("hm")
        if isinstance(self.answer, BaseException):
            raise self.answer
        if callable(self.answer):
            waits: Callable[[], Awaitable[ModelReply]] = self.answer
            return await waits()
        reply: ModelReply = self.answer
        return reply


def verdict(arguments: dict[str, Any] | str, tool: str = "verdict") -> ModelReply:
    return ModelReply("", (RequestedCall(tool, arguments),))


SAFE = {"verdict": "safe", "reason": "small", "criteria": {"1": True, "2": True}}


async def silent() -> ModelReply:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "says", "why"),
    [
        (verdict(SAFE), "allow", "small"),
        (verdict(json.dumps(SAFE)), "allow", "small"),
        (verdict({**SAFE, "verdict": "caution", "reason": "odd"}), "ask", "odd"),
        (verdict({**SAFE, "verdict": "SAFE"}), "ask", "small"),
        (verdict({**SAFE, "criteria": {"1": True, "2": False}}), "ask", "criterion 2 is not met"),
        (verdict({**SAFE, "criteria": {"1": True}}), "ask", "incomplete"),
        (verdict({"verdict": "safe"}), "ask", "incomplete"),
        (verdict({**SAFE, "criteria": {"1": "yes", "2": True}}), "ask", "incomplete"),
        (verdict({"reason": "fine"}), "ask", "incomplete"),
        (verdict("{"), "ask", "incomplete"),
        (verdict(SAFE, "allow"), "ask", "no verdict"),
        (ModelReply("It is safe."), "ask", "no verdict"),
        (ModelReply("", (*verdict(SAFE).calls, *verdict(SAFE).calls)), "ask", "no verdict"),
        (ModelFailed("rate_limited", "429", retryable=True), "ask", "did not answer"),
        (SystemExit(), "ask", "did not answer"),
        (silent, "ask", "did not answer"),
        ("safe", "ask", "did not answer"),
        (ModelReply("", ("safe",)), "ask", "can't be read"),  # type: ignore[arg-type]
        (verdict({**SAFE, "verdict": "caution", "reason": "it has hunter2-token\u202e"}), "ask", "it has •••\\u202e"),
    ],
)
async def test_anything_but_a_whole_yes_asks_a_person(answer: Any, says: str, why: str) -> None:
    judge = Judge(answer)
    gate = Approval(when=auto(judge, criteria=CRITERIA, seconds=0.05))
    ruled = await Deciding().rule(gate, CALL)
    assert ruled.says == says
    assert why in ruled.why
    assert "hunter2" not in ruled.why


async def test_it_is_given_the_call_the_criteria_and_what_was_said_as_data() -> None:
    judge = Judge(verdict(SAFE))
    gate = Approval(when=auto(judge, instructions="Shop policy: be kind.", criteria=CRITERIA))
    said = UserItem("refund 5 please", "Alice", principal=ALICE.id, origin="console", trust=Trust.REQUESTER, at=1)
    around = Surroundings(history=[said], evidence=("Read: mail",), described=refund.description)
    await Deciding().rule(gate, CALL, around)
    (asked,) = judge.asked
    assert "Shop policy: be kind." in asked.instructions
    assert "1. It is small.\n2. The customer is known." in asked.instructions
    (spec,) = asked.tools
    assert spec.schema["required"] == ["verdict", "reason", "criteria"]
    (item,) = asked.history
    assert isinstance(item, UserItem)
    assert json.loads(item.text) == {
        "tool": "refund",
        "what_the_tool_does": "Refund some money.",
        "arguments": {"amount": "5", "token": "•••"},
        "requester": "Alice",
        "said": [{"by": "Alice", "is_requester": True, "text": "refund 5 please"}],
        "read_before": ["Read: mail"],
    }


async def test_without_a_name_the_agents_own_model_judges() -> None:
    judge = Judge(verdict({"verdict": "safe", "reason": "ok"}))
    gate = Approval(when=auto(instructions="Be careful."))
    assert (await Deciding(model=judge).rule(gate, CALL)).says == "allow"
    assert (await Deciding().rule(gate, CALL)).says == "ask"


async def test_after_untrusted_content_nobody_pays_for_a_judge() -> None:
    judge = Judge(verdict(SAFE))
    gate = Approval(when=auto(judge, criteria=CRITERIA))
    assert (await Deciding().rule(gate, CALL, Surroundings(tainted=True))).says == "ask"
    assert judge.asked == []
