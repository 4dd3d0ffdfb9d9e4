"""Tools: what a declaration accepts, what a model is told, how a body's end becomes a result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bot.approvals import Approval, always, over
from bot.context import ToolContext
from bot.deciding import Deciding
from bot.errors import BadArguments, BadTool
from bot.history import ResultStatus
from bot.policies import never, once
from bot.tools import ERROR_LIMIT, OUTPUT_LIMIT, Effect, Interrupt, Tool, tool
from tests.bot.people import ALICE


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Address(BaseModel):
    street: str
    number: int = 1


@dataclass
class Deps:
    log: list[str]


def context(**changes: Any) -> ToolContext[Deps]:
    return ToolContext("ses_1", ALICE, call_id="0.1.0", deps=Deps([]), **changes)


@tool(effect="read")
async def everything(
    ctx: ToolContext[Deps],
    schema: str,
    amount: Annotated[Decimal, Field(gt=0, description="given here")],
    day: date,
    sizes: set[Size],
    *,
    address: Address | None = None,
    mode: Literal["fast", "safe"] = "safe",
    copy: bool = False,
) -> dict[str, object]:
    """Take one of each.

    More about it,
    on two lines.

    Args:
        ctx: The call.
        schema: A name that pydantic
            keeps for itself.
        amount: not used, the annotation says more
        mode (str): How to go: fast or safe.

    Returns:
        Things.
    """
    return {"schema": schema, "amount": amount, "day": day, "sizes": sizes, "address": address, "mode": mode, "copy": copy}


def test_the_schema_comes_from_the_signature_and_the_docstring() -> None:
    spec = everything.spec
    assert spec.name == "everything"
    assert spec.description == "Take one of each.\n\nMore about it,\non two lines."
    properties: Any = spec.schema["properties"]
    assert list(properties) == ["schema", "amount", "day", "sizes", "address", "mode", "copy"]
    assert properties["schema"]["description"] == "A name that pydantic keeps for itself."
    assert properties["amount"]["description"] == "given here"
    assert properties["mode"]["description"] == "How to go: fast or safe."
    assert spec.schema["required"] == ["schema", "amount", "day", "sizes"]
    assert spec.schema["additionalProperties"] is False
    assert "title" not in spec.schema


async def test_json_arguments_arrive_typed_and_results_leave_as_json() -> None:
    arguments: dict[str, Any] = {
        "schema": "x",
        "amount": "20.50",
        "day": "2026-01-02",
        "sizes": ["s"],
        "address": {"street": "Pier"},
    }
    typed = everything.validate(arguments)
    assert typed["amount"] == Decimal("20.50")
    assert typed["day"] == date(2026, 1, 2)
    assert typed["sizes"] == {Size.SMALL}
    assert typed["address"] == Address(street="Pier")
    assert (typed["mode"], typed["copy"]) == ("safe", False)
    outcome = await everything.run(context(), arguments)
    assert outcome.status is ResultStatus.COMPLETED
    assert outcome.content == {
        "schema": "x",
        "amount": "20.50",
        "day": "2026-01-02",
        "sizes": ["s"],
        "address": {"street": "Pier", "number": 1},
        "mode": "safe",
        "copy": False,
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "schema: Field required"),
        ('{"schema": "x"', "Invalid JSON"),
        ("[1]", "should be an object"),
        ("null", "should be an object"),
        ({"schema": 1}, "schema: Input should be a valid string"),
        ({"amount": "-1"}, "amount: Input should be greater than 0"),
        ({"amount": "NaN"}, "amount: Input should be a finite number"),
        ('{"amount": NaN}', "amount: Input should be"),
        ({"schema": "\ud800"}, "surrogates not allowed"),
        ({"copy": "yes"}, "copy: Input should be a valid boolean"),
        ({"mode": "reckless"}, "mode: Input should be 'fast' or 'safe'"),
        ({"address": {"street": 1}}, "address.street"),
        ({"ctx": {}}, "ctx: Extra inputs are not permitted"),
        ({"arg0": "x"}, "arg0: Extra inputs are not permitted"),
    ],
)
async def test_bad_arguments_are_named_and_never_reach_the_body(arguments: Any, complaint: str) -> None:
    with pytest.raises(BadArguments) as caught:
        everything.validate(arguments)
    assert complaint in str(caught.value)
    outcome = await everything.run(context(), arguments)
    assert outcome.status is ResultStatus.FAILED
    assert outcome.error == "BadArguments"
    assert complaint in str(outcome.content)


def test_a_complaint_never_repeats_the_value() -> None:
    with pytest.raises(BadArguments) as caught:
        everything.validate({"schema": ["hunter2"], "hunter3": 1})
    assert "hunter2" not in str(caught.value)


def test_a_plain_decorator_makes_an_ungated_write_that_asks_when_interrupted() -> None:
    @tool
    def touch(ctx: ToolContext) -> None:
        """Touch it."""

    assert (touch.effect, touch.approval, touch.idempotent) == (Effect.WRITE, None, False)
    assert touch.on_interrupt is Interrupt.ASK
    assert touch.asks_after_untrusted
    assert touch.schema == {"additionalProperties": False, "properties": {}, "type": "object"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"effect": "read"}, Interrupt.RERUN),
        ({"idempotent": True}, Interrupt.RERUN),
        ({"effect": "read", "on_interrupt": "report"}, Interrupt.REPORT),
        ({"on_interrupt": "rerun"}, Interrupt.RERUN),
        ({"idempotent": True, "on_interrupt": "ask"}, Interrupt.ASK),
    ],
)
def test_an_interrupted_call_is_treated_as_declared(options: Any, expected: Interrupt) -> None:
    declared: Tool = tool(**options)(noop)
    assert declared.on_interrupt is expected


@pytest.mark.parametrize(
    ("options", "asks"), [({"effect": "read"}, False), ({"untrusted": "allow"}, False), ({"idempotent": True}, True)]
)
def test_writes_ask_after_untrusted_content_unless_allowed(options: Any, asks: bool) -> None:
    assert tool(**options)(noop).asks_after_untrusted is asks


async def test_the_gate_sees_typed_arguments() -> None:
    gated = tool(approval=Approval(when=over("amount", 100), ask="Pay {amount}?"))(pay)
    calls = [gated.call({"amount": amount}, "0.0.0", requester=ALICE) for amount in ("99.99", "100.01")]
    assert [(await Deciding().rule(gated.approval, call)).says for call in calls] == ["allow", "ask"]
    assert (await Deciding().rule(tool(approval=always)(pay).approval, calls[0])).says == "ask"


def test_a_bare_policy_is_an_approval() -> None:
    assert tool(approval=never)(pay).approval == Approval(when=never)
    assert tool(approval=once(arguments=["amount"]))(pay).approval == Approval(when=once(arguments=["amount"]))


async def noop(ctx: ToolContext) -> None: ...


async def pay(ctx: ToolContext, amount: Decimal) -> None: ...


async def no_context(name: str) -> None: ...


async def nothing() -> None: ...


async def untyped_context(ctx) -> None:  # type: ignore[no-untyped-def]
    ...


async def untyped(ctx: ToolContext, name) -> None:  # type: ignore[no-untyped-def]
    ...


async def variadic(ctx: ToolContext, *names: str) -> None: ...


async def keywords(ctx: ToolContext, **names: str) -> None: ...


async def positional(ctx: ToolContext, name: str, /) -> None: ...


async def two_contexts(ctx: ToolContext, other: ToolContext) -> None: ...


async def no_json(ctx: ToolContext, lock: threading.Lock) -> None: ...


async def a_callback(ctx: ToolContext, then: Awaitable[int]) -> None: ...


async def bad_default(ctx: ToolContext, size: Any = object()) -> None: ...  # noqa: B008 - a default that is no JSON


async def unknown_type(ctx: ToolContext, thing: NotThere) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


async def stale_docs(ctx: ToolContext, new: str) -> None:
    """Do it.

    Args:
        old: Renamed since.
    """


async def generator(ctx: ToolContext) -> Any:
    yield 1


async def größe(ctx: ToolContext) -> None: ...  # noqa: PLC2401 - a name that providers refuse


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (no_context, "first parameter must be a ToolContext"),
        (nothing, "first parameter must be a ToolContext"),
        (untyped_context, "first parameter must be a ToolContext"),
        (untyped, "'name' has no type"),
        (variadic, "'names' must be an ordinary one"),
        (keywords, "'names' must be an ordinary one"),
        (positional, "'name' must be an ordinary one"),
        (two_contexts, "second ToolContext"),
        (no_json, "no schema can be made"),
        (a_callback, "no schema can be made"),
        (bad_default, "no schema can be made"),
        (unknown_type, "NotThere"),
        (stale_docs, "describes old"),
        (generator, "generator"),
        (größe, "ASCII"),
    ],
)
def test_a_function_that_can_not_be_offered_fails_when_declared(function: Any, problem: str) -> None:
    with pytest.raises(BadTool) as caught:
        tool(function)
    assert problem in caught.value.problem


def test_a_policy_that_names_no_parameter_fails_when_declared() -> None:
    with pytest.raises(BadTool) as caught:
        tool(approval=Approval(ask="Pay {total}?", when=over("sum", 1)))(pay)
    assert "total" in caught.value.problem
    assert "sum" in caught.value.problem


def test_a_tool_may_keep_its_name_when_the_function_is_renamed() -> None:
    assert tool(name="pay-v1")(pay).name == "pay-v1"
    with pytest.raises(BadTool):
        tool(name="pay me")(pay)


async def test_a_plain_function_runs_in_a_thread() -> None:
    @tool(effect="read")
    def where(ctx: ToolContext) -> str:
        return threading.current_thread().name

    outcome = await where.run(context(), {})
    assert outcome.content != threading.current_thread().name


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such charge"), "ValueError: no such charge"),
        (KeyError(), "KeyError"),
        (StopIteration(3), "RuntimeError: coroutine raised StopIteration"),
        (ExceptionGroup("two", [ValueError()]), "ExceptionGroup: two (1 sub-exception)"),
        (Broken(), "Broken: its message can't be shown"),
        (ValueError("\ud800"), "ValueError: ?"),
    ],
)
async def test_an_exception_is_a_failed_result(error: Exception, text: str, threaded: bool) -> None:
    def fail(ctx: ToolContext) -> None:
        raise error

    async def fail_later(ctx: ToolContext) -> None:
        raise error

    outcome = await tool(fail if threaded else fail_later).run(context(), {})
    assert (outcome.status, outcome.content) == (ResultStatus.FAILED, text)


async def test_a_long_message_is_cut_and_says_so() -> None:
    @tool
    async def fail(ctx: ToolContext) -> None:
        raise ValueError("é" * ERROR_LIMIT)

    outcome = await fail.run(context(), {})
    assert str(outcome.content).endswith(f"[cut: the first {ERROR_LIMIT} of {2 * ERROR_LIMIT + 12} bytes]")


async def test_cancellation_goes_through() -> None:
    begun = asyncio.Event()

    @tool
    async def wait(ctx: ToolContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(wait.run(context(), {}))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, None),
        (Decimal("1.20"), "1.20"),
        (float("nan"), "NaN"),
        (Address(street="Pier"), {"street": "Pier", "number": 1}),
        (b"\xff", "_w=="),
        ((1, 2), [1, 2]),
        ("half \ud800", "half ?"),
    ],
)
async def test_a_value_becomes_json(value: object, content: object) -> None:
    @tool
    async def give(ctx: ToolContext) -> object:
        return value

    outcome = await give.run(context(), {})
    assert (outcome.status, outcome.content, outcome.cut) == (ResultStatus.COMPLETED, content, False)


async def test_a_value_that_is_not_json_does_not_make_a_done_effect_undone() -> None:
    @tool
    async def give(ctx: ToolContext) -> object:
        return threading.Lock()

    outcome = await give.run(context(), {})
    assert outcome.status is ResultStatus.COMPLETED
    assert outcome.content == "give ran, but returned a lock that is not JSON."


@pytest.mark.parametrize("value", ["é" * OUTPUT_LIMIT, ["x" * OUTPUT_LIMIT]])
async def test_a_large_result_is_cut_with_its_size(value: object) -> None:
    @tool
    async def give(ctx: ToolContext) -> object:
        return value

    outcome = await give.run(context(), {})
    assert outcome.cut
    assert isinstance(outcome.content, str)
    assert f"[cut: the first {OUTPUT_LIMIT} of " in outcome.content
    assert len(outcome.content.encode()) < OUTPUT_LIMIT + 100


async def test_a_body_sees_its_call_and_reports_progress() -> None:
    heard: list[str] = []

    async def hear(text: str) -> None:
        heard.append(text)

    @tool
    async def work(ctx: ToolContext[Deps]) -> str:
        ctx.deps.log.append(ctx.principal.name)
        await ctx.progress("half")
        return ctx.idempotency_key

    ctx = context(on_progress=hear, attempt=2)
    outcome = await work.run(ctx, {})
    assert outcome.content == "ses_1:0.1.0"
    assert (ctx.deps.log, heard, ctx.attempt) == (["Alice"], ["half"], 2)
    assert (await work.run(context(), {})).content == "ses_1:0.1.0"


@given(st.text(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_no_arguments_whatever_break_validation(arguments: Any) -> None:
    if isinstance(arguments, str | dict):
        with pytest.raises(BadArguments):
            everything.validate(arguments)
