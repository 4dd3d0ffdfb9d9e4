"""`once`: a yes counts for the same requester, tool and arguments, for a day, and never for what was shown already."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.approvals import Approval
from bot.context import ToolContext
from bot.policies import never, once
from bot.tools import tool
from tests.bot.session.actors import Log, calls
from tests.bot.session.gated import Asked, answered, ask, body, prompts
from tests.bot.session.kit import ALICE, BOB, Thread


@tool(approval=once(arguments=("customer",)))
async def mail(ctx: ToolContext[Log], customer: str, text: str = "hi", tone: str = "kind") -> str:
    """Write to a customer."""
    await ctx.deps.run("mail", ctx)
    return f"wrote {text} to {customer}"


@tool(approval=Approval(when=once(), by=lambda *_: True, edit=["text"]))
async def post(ctx: ToolContext[Log], text: str) -> str:
    """Post something."""
    await ctx.deps.run("post", ctx)
    return text


TOOLS = (mail, post)
C1: Asked = ("mail", {"customer": "c1"})
C2: Asked = ("mail", {"customer": "c2"})


async def agreed(thread: Thread) -> None:
    await ask(thread, C1, tools=TOOLS)
    await answered(thread, "approve")
    assert thread.log.names() == ["mail"]


async def test_a_yes_counts_for_the_same_customer_also_with_another_text_and_not_for_another(thread: Thread) -> None:
    await agreed(thread)
    await ask(thread, ("mail", {"customer": "c1", "text": "again"}), C2)
    assert thread.log.names() == ["mail", "mail"]
    (asked,) = await prompts(thread)
    assert body(asked)["action"]["input"] == {"customer": "c2"}
    await answered(thread, "deny")


async def test_it_ends_after_a_day(thread: Thread) -> None:
    await agreed(thread)
    thread.clock.advance(timedelta(hours=24) - timedelta(milliseconds=1))
    await ask(thread, C1)
    assert thread.log.names() == ["mail"] * 2
    thread.clock.advance(timedelta(milliseconds=1))
    await ask(thread, C1)
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny")


async def test_it_survives_a_worker(thread: Thread) -> None:
    await agreed(thread)
    thread.hire("w2")
    await ask(thread, C1)
    assert thread.log.names() == ["mail"] * 2


async def test_it_is_the_requesters_only(thread: Thread) -> None:
    await agreed(thread)
    thread.model.script.insert(0, calls(C1))
    await thread.say("me too", BOB)
    await thread.work()
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny", BOB)


async def test_of_two_that_are_shown_each_needs_its_own_yes(thread: Thread) -> None:
    await ask(thread, C1, C1, tools=TOOLS)
    first, second = await prompts(thread)
    await answered(thread, "approve", prompt=first)
    assert thread.log.names() == ["mail"]
    assert (await prompts(thread)) == [second]
    await answered(thread, "approve", prompt=second)
    assert thread.log.names() == ["mail", "mail"]
    await ask(thread, C1)
    assert thread.log.names() == ["mail"] * 3


async def test_a_no_takes_it_away(thread: Thread) -> None:
    await ask(thread, C1, C1, C2, tools=TOOLS)
    first, second, other = await prompts(thread)
    await answered(thread, "approve", prompt=first)
    await answered(thread, "deny", prompt=second)
    await answered(thread, "approve", prompt=other)
    await ask(thread, C1, C2)
    assert thread.log.names() == ["mail"] * 3
    (asked,) = await prompts(thread)
    assert body(asked)["action"]["input"] == {"customer": "c1"}
    await answered(thread, "deny")


async def test_a_no_alone_grants_nothing(thread: Thread) -> None:
    await ask(thread, C1, tools=TOOLS)
    await answered(thread, "deny")
    await ask(thread, C1)
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny")


@pytest.mark.parametrize("words", ["", "go on"])
async def test_what_nobody_answered_grants_nothing(thread: Thread, words: str) -> None:
    await ask(thread, C1, tools=TOOLS)
    if words:
        await thread.say(words)
    else:
        thread.clock.advance(timedelta(days=3))
    await thread.work()
    await ask(thread, C1)
    assert thread.log.runs == []
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny")


async def test_a_tool_that_is_no_longer_once_forgets(thread: Thread) -> None:
    await agreed(thread)
    strict = tool(approval=Approval())(mail.function)
    await ask(thread, C1, tools=(strict,), owner="w2")
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny")
    free = tool(approval=never)(mail.function)
    await ask(thread, C1, tools=(free,), owner="w3")
    assert thread.log.names() == ["mail", "mail"]


@tool(name="mail", approval=once(arguments=("customer",)))
async def mail_all(ctx: ToolContext[Log], customer: str, *, everybody: bool = True) -> str:
    """Write to a customer, and to everybody else."""
    await ctx.deps.run("mail", ctx)
    return "wrote"


@pytest.mark.parametrize("agreed_before", [True, False])
async def test_a_yes_is_given_to_the_tool_as_it_was(thread: Thread, agreed_before: bool) -> None:
    await ask(thread, C1, tools=TOOLS)
    await thread.click("approve")
    if agreed_before:
        await thread.work()
    thread.tools = (mail_all,)
    thread.hire("w2")
    await thread.work()  # the yes itself is void, if it is found only now
    assert thread.log.names() == (["mail"] if agreed_before else [])
    await ask(thread, C1)
    assert len(await prompts(thread)) == 1
    await answered(thread, "deny")


async def test_somebody_elses_yes_counts_for_the_requester(thread: Thread) -> None:
    await ask(thread, ("post", {"text": "a"}), tools=TOOLS)
    await answered(thread, "approve", BOB)
    await ask(thread, ("post", {"text": "b"}))
    assert thread.log.names() == ["post", "post"]
    assert [approver for *_, approver in thread.log.runs] == [BOB.id, None]
    assert ALICE.id != BOB.id
