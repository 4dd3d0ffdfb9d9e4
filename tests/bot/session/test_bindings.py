"""A yes is bound to exactly the call that was shown: with another tool or other arguments it opens nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field

from bot.approvals import Approval
from bot.bindings import binding
from bot.context import ToolContext
from bot.history import Call, ResultStatus
from bot.session.edits import voided
from bot.tools import Tool, tool
from bot.turn.state import Consent, Pending, Purpose, Stage
from durable_core import codec
from durable_core.model import AnswerStatus
from tests.bot.session.actors import Log
from tests.bot.session.gated import answered, ask, body, results
from tests.bot.session.kit import ALICE, BOB, Thread

VOID = "Alice approved this call, but the tool or the call has changed since: the approval doesn't count. It did not run."


@tool(approval=Approval())
async def send(ctx: ToolContext[Log], amount: int, to: str = "x") -> str:
    """Send something."""
    await ctx.deps.run("send", ctx)
    return "sent"


@tool(name="send", approval=Approval(ask="Really?", expires=None))
async def same(ctx: ToolContext[Log], amount: int, to: str = "x") -> str:
    """Words that differ change nothing that was agreed to."""
    await ctx.deps.run("send", ctx)
    return "sent"


@tool(name="send", approval=Approval())
async def wider(ctx: ToolContext[Log], amount: int, to: str = "everybody") -> str:
    """Send something."""
    raise AssertionError


@tool(name="other", approval=Approval())
async def other(ctx: ToolContext[Log]) -> str:
    """Do something else."""
    raise AssertionError


async def approved_then(thread: Thread, *tools: Tool) -> None:
    """Approve, and have a new version of the app find the answer."""
    await ask(thread, ("send", {"amount": 5}), tools=(send,))
    prompt = await thread.prompt()
    assert body(prompt)["binding"] == send.binding({"amount": 5})
    await thread.click("approve")
    thread.tools = tools
    thread.hire("w2")
    await thread.work()


class Days:
    """What a word for a day comes to, today."""

    now = 1

    @classmethod
    def of(cls, word: Any) -> Any:
        return cls.now + 1 if word == "tomorrow" else word


class Stop(BaseModel):
    at: str
    day: int = Field(default_factory=lambda: Days.now)


@tool(approval=Approval(ask="Book {day}?", edit=["note"]))
async def book(  # noqa: PLR0917 - a tool's arguments are named
    ctx: ToolContext[Log],
    day: Annotated[int, BeforeValidator(Days.of)],
    until: Annotated[int, Field(default_factory=lambda: Days.now + 7)],
    stop: Stop | None = None,
    tags: set[str] | None = None,
    note: str = "",
) -> str:
    """Book a day."""
    await ctx.deps.run("book", ctx)
    return f"booked {day} until {until}"


@pytest.mark.parametrize(
    "case",
    [
        ({"day": "tomorrow", "until": 9}, 2, False),
        ({"day": 3}, 2, True),
        ({"day": 3, "until": 9, "stop": {"at": "x"}}, 2, False),
        ({"day": 3, "until": 9, "stop": {"at": "x", "day": 3}, "tags": ["c", "b", "a"]}, 2, True),
        ({"day": "tomorrow", "stop": {"at": "x"}}, 1, True),
    ],
)
@pytest.mark.parametrize("edits", [None, {"note": "by train"}])
async def test_what_is_shown_is_what_runs_also_where_the_tool_makes_it(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, case: tuple[dict[str, Any], int, bool], edits: dict[str, Any] | None
) -> None:
    asked, later, runs = case
    monkeypatch.setattr(Days, "now", 1)
    await ask(thread, ("book", asked), tools=(book,))
    receipt = await thread.click("approve", edits=edits)
    for interaction in await thread.store.take_interactions("w1", limit=4, lease_ms=60_000):
        await thread.answers.evaluate(interaction)
    assert (await thread.answers.result(receipt)).status is AnswerStatus.SETTLED
    monkeypatch.setattr(Days, "now", later)
    thread.hire("w2")
    await thread.work()
    assert bool(thread.log.runs) is runs
    if "until" not in asked and runs:
        assert "until 8" in str(results(thread)), "as it was when people were asked"
    if not runs:
        assert results(thread) == [(ResultStatus.REJECTED, VOID)]


async def test_a_changed_tool_voids_it_and_the_card_says_so(thread: Thread) -> None:
    await approved_then(thread, wider)
    assert results(thread) == [(ResultStatus.REJECTED, VOID)]
    outcome = thread.channel.cards[-1].card.outcome
    assert outcome is not None
    assert (outcome.text, outcome.result) == ("Approved by Alice", VOID)
    assert await thread.store.rows("SELECT key FROM moor_record WHERE key LIKE 'started:%'", {}) == []
    await ask(thread, ("send", {"amount": 5}))
    assert body(await thread.prompt())["binding"] == wider.binding({"amount": 5})
    await answered(thread, "deny")


async def test_a_missing_tool_is_said_to_be_missing(thread: Thread) -> None:
    await approved_then(thread, other)
    text = "Alice approved this call, but the tool 'send' is no longer offered. The call did not run."
    assert results(thread) == [(ResultStatus.FAILED, text)]


async def finance(*_: object) -> bool:
    return True


@pytest.mark.parametrize("later", [tool(name="send")(send.function), other])
async def test_nobody_approves_in_place_of_those_whose_rule_is_gone(thread: Thread, later: Tool) -> None:
    await ask(thread, ("send", {"amount": 5}), tools=(tool(name="send", approval=Approval(by=finance))(send.function),))
    thread.tools = (later,)
    thread.hire("w2")
    refused = await answered(thread, "approve", ALICE)
    assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "The tool has changed since this was asked. Ask again.")
    assert (await answered(thread, "deny", BOB)).reason == "not_yours"
    assert (await answered(thread, "deny", ALICE)).status is AnswerStatus.SETTLED
    assert thread.log.runs == []


async def test_a_tool_that_only_reads_differently_is_the_same(thread: Thread) -> None:
    await approved_then(thread, same)
    assert results(thread) == [(ResultStatus.COMPLETED, "sent")]


def a_pending(**changes: Any) -> Pending:
    consent = Consent(principal=ALICE.id, name="Alice", at=1)
    made = Pending(
        call=Call("0.0.0", "send", arguments={"amount": 5}),
        purpose=Purpose.APPROVAL,
        stage=Stage.READY,
        prompt_id="prm_1",
        consent=consent,
        binding=send.binding({"amount": 5}),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("pending", "runs"),
    [
        (a_pending(), True),
        (a_pending(binding=""), True),  # asked about by a version that noted none
        (a_pending(consent=None), True),
        (a_pending(call=Call("0.0.0", "send", arguments={"amount": 6})), False),
        (a_pending(call=Call("0.0.0", "send", arguments={"amount": 5, "to": "x"})), False),
        (a_pending(binding=wider.binding({"amount": 5})), False),
        (a_pending(consent=Consent(principal="a:1", name="Alice", at=1, edits={"amount": 6})), False),
        (
            a_pending(
                consent=Consent(principal="a:1", name="Alice", at=1, edits={"amount": 6}, binding=send.binding({"amount": 6}))
            ),
            True,
        ),
        (
            a_pending(
                consent=Consent(principal="a:1", name="Alice", at=1, edits={"amount": 7}, binding=send.binding({"amount": 6}))
            ),
            False,
        ),
    ],
)
def test_what_runs_is_what_was_agreed_to(pending: Pending, runs: bool) -> None:
    assert (voided(send, pending) is None) is runs


def test_a_call_to_run_again_says_that_its_effect_is_unknown() -> None:
    result = voided(wider, a_pending(purpose=Purpose.RERUN))
    assert result is not None
    assert result.status is ResultStatus.UNKNOWN


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        ({"a": 1, "b": [1, {"c": 2, "d": 3}]}, {"b": [1, {"d": 3, "c": 2}], "a": 1}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": None}, {}, False),
    ],
)
def test_the_order_of_keys_means_nothing_and_all_else_does(one: Any, two: Any, equal: bool) -> None:
    assert (binding("t", {"x": one}, {}) == binding("t", {"x": two}, {})) is equal
    assert (binding("t", {}, one) == binding("t", {}, two)) is equal
    assert binding("t", {}, one) != binding("u", {}, one)


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="abcé", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(alphabet="abc"), json, max_size=4))
def test_what_comes_back_from_storage_is_the_same_call(arguments: dict[str, Any]) -> None:
    stored: Any = codec.decode(codec.encode(arguments))
    assert binding("t", {}, stored) == binding("t", {}, arguments)
