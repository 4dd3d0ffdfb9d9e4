"""Claimed keys in tools: one call has the effect, every other one hears what became of it, whichever session it is in."""

from __future__ import annotations

import asyncio

import pytest

from bot.context import ToolContext
from bot.history import ResultItem, ResultStatus
from bot.principal import Principal
from bot.tools import Tool, tool
from channels.events import Standing
from durable_core.errors import LeaseLost
from durable_core.failpoints import arm
from tests.bot.session.actors import Held, Log, calls, die
from tests.bot.session.kit import Thread


@tool(idempotent=True)
async def bill(ctx: ToolContext[Log], number: str = "17") -> str:
    """Bill by a service that knows no keys."""
    claim = await ctx.claim(f"invoice-{number}")
    if claim.state == "pending":
        return f"unclear: {'own' if claim.is_own else claim.operation_id} attempt {claim.attempt}"
    if claim.state == "done":
        return f"known: {claim.value}"
    await ctx.deps.run("bill", ctx)
    return f"billed: {(await claim.done(ctx.call_id)).value}"


@tool(idempotent=True)
def bill_plainly(ctx: ToolContext[Log]) -> str:
    """Bill, in a thread."""
    claim = ctx.claim("invoice-17").wait()
    if claim.state == "claimed":
        return f"billed: {claim.done('in a thread').wait().value}"
    return f"known: {claim.value}"


@tool(idempotent=True)
async def bill_and_die(ctx: ToolContext[Log]) -> str:
    """Have the effect, and die before it is said."""
    claim = await ctx.claim("invoice-17")
    if claim.state == "claimed":
        await ctx.deps.run("bill_and_die", ctx)
        return "lost"
    ctx.deps.ended.append(f"{claim.state}: {claim.run_id == ctx.session_id and claim.operation_id == ctx.call_id}")
    assert (claim.is_own, claim.attempt, ctx.attempt) == (True, 1, 2)
    return str((await claim.done("looked up")).value)


@tool(idempotent=True)
async def bill_late(ctx: ToolContext[Log]) -> str:
    """Bill after the lease was lost."""
    await ctx.deps.run("bill_late", ctx)
    try:
        await ctx.claim("invoice-17")
    except LeaseLost as lost:
        ctx.deps.ended.append(str(lost))
        raise
    return "billed"


def equip(thread: Thread, *tools: Tool) -> None:
    thread.tools = tools
    thread.hire(thread.owner)


async def told(thread: Thread) -> list[object]:
    return [item.content for item in await thread.history() if isinstance(item, ResultItem)]


async def test_two_calls_of_one_step_and_another_session_have_one_effect(thread: Thread) -> None:
    equip(thread, bill)
    thread.model.script = [calls(("bill", {}), ("bill", {}))]
    await thread.say("bill it")
    thread.log.holds["bill"] = hold = Held()
    working = thread.begin()
    first = thread.run_id
    while "action.result" not in await thread.types():
        await asyncio.sleep(0)
    hold.go.set()
    await working
    assert sorted(map(str, await told(thread))) == ["billed: 0.0.0", "unclear: 0.0.0 attempt 1"]
    thread.model.script = [calls(("bill", {}), ("bill", {"number": "18"}))]
    await thread.say("bill it", address="fake:v1:other")
    assert thread.run_id != first
    await thread.work()
    assert await told(thread) == ["known: 0.0.0", "billed: 0.0.1"]
    assert thread.log.names() == ["bill", "bill"]


async def test_a_plain_tool_waits_in_its_thread(thread: Thread) -> None:
    equip(thread, bill_plainly)
    thread.model.script = [calls(("bill_plainly", {})), calls(("bill_plainly", {}))]
    await thread.say("bill it")
    await thread.work()
    assert await told(thread) == ["billed: in a thread", "known: in a thread"]


async def test_cut_off_after_its_effect_the_call_finds_its_own_claim_pending(thread: Thread) -> None:
    equip(thread, bill_and_die)
    thread.model.script = [calls(("bill_and_die", {}))]
    await thread.say("bill it")
    with arm("tool.after_effect", die, on=1):
        await thread.killed("w2")
    await thread.work()
    assert thread.log.ended == ["bill_and_die", "pending: True"]
    assert await told(thread) == ["looked up"]


async def test_who_lost_the_session_claims_nothing(thread: Thread) -> None:
    equip(thread, bill_late)
    thread.model.script = [calls(("bill_late", {}))]
    await thread.say("bill it")
    thread.log.holds["bill_late"] = hold = Held()
    working = thread.begin()
    await hold.reached.wait()
    thread.later_s(120)
    thread.hire("w2")
    thread.log.holds.clear()
    await thread.work()
    hold.go.set()
    with pytest.raises(LeaseLost):
        await working
    assert await told(thread) == ["billed"]
    assert [one for one in thread.log.ended if one != "bill_late"] == [str(LeaseLost(thread.run_id, 1))]


async def test_a_tool_that_is_tried_without_a_bot_is_told_so() -> None:
    alice = Principal("console:alice", "Alice", Standing.MEMBER)
    outcome = await bill.run(ToolContext("ses_1", alice, call_id="0.0.0", deps=Log()), {})
    assert outcome.status is ResultStatus.FAILED
    assert "belongs to no running bot" in str(outcome.content)
