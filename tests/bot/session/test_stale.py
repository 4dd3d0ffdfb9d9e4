"""Clicks that come too late or from an older copy: a private, true sentence each, and never a model call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from bot.approvals import Approval
from bot.buttons import button_value
from bot.context import ToolContext
from bot.ending import end_session
from bot.routes import address, escalate
from bot.tools import tool
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.model import PromptOutcome
from tests.bot.session.actors import CHANNEL, Log
from tests.bot.session.gated import answered, ask
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread
from tests.bot.session.test_given import ingress, whispers

ELSEWHERE = "fake:v1:managers"


@tool(
    approval=Approval(
        by=[BOB.id],
        by_text="Bob",
        expires=timedelta(hours=1),
        on_expiry=escalate(by=[FARAH.id], by_text="Farah", to=address(ELSEWHERE), expires=timedelta(hours=1)),
    )
)
async def guarded(ctx: ToolContext[Log]) -> str:
    """Do what Bob approves, or Farah."""
    await ctx.deps.run("guarded", ctx)
    return "done"


@tool(approval=Approval(by=[BOB.id, FARAH.id], route="direct"))
async def secretly(ctx: ToolContext[Log]) -> str:
    """Do what Bob or Farah, who are asked alone, approve."""
    await ctx.deps.run("secretly", ctx)
    return "done"


async def press(thread: Thread, prompt_id: str, who: str, key: str, *, at: str | None = None, option: str = "approve") -> str:
    body = {"who": who, "click": button_value(prompt_id, option), "key": key} | ({"address": at} if at else {})
    request = WebhookRequest("POST", "/", headers={}, body=codec.encode(body))
    (click,) = (await ingress(thread).receive(CHANNEL, request)).clicks
    return click.status


async def approve(thread: Thread) -> None:
    await answered(thread, "approve")


async def cancel(thread: Thread) -> None:
    await thread.cancel()
    await thread.work()


async def expire(thread: Thread) -> None:
    thread.later_s(2 * 86_400)
    await thread.work()


async def run_out(thread: Thread) -> None:
    thread.later_s(2 * 86_400)  # and no worker has seen it yet


async def steer(thread: Thread) -> None:
    await thread.say("never mind")
    await thread.work()


async def reset(thread: Thread) -> None:
    await end_session(thread.store, await thread.store.run(thread.run_id), reason="reset", by=ALICE.id)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (approve, "This was settled before: Approved by Alice."),
        (cancel, "No longer needed: the turn was stopped. Nothing was done with your answer."),
        (expire, "Nobody answered in time. It did not run. Nothing was done with your answer."),
        (run_out, "This request has expired. Nothing was done with your answer."),
        (steer, "No longer needed: Alice wrote on. Nothing was done with your answer."),
        (reset, "This conversation has ended. Nothing was done with your answer."),
    ],
)
async def test_a_click_that_comes_too_late_is_told_why(
    thread: Thread, before: Callable[[Thread], Awaitable[None]], words: str
) -> None:
    await ask(thread, ("refund", {"amount": 5}))
    prompt = await thread.prompt()
    await before(thread)
    asked, ran = len(thread.model.requests), len(thread.log.runs)
    assert await press(thread, prompt.prompt_id, "alice", "late") in {"refused", "already_settled"}
    await thread.work()
    assert whispers(thread, "alice") == [words]
    assert len(thread.model.requests) - asked <= int(before is run_out)  # what expires goes on with that
    assert len(thread.log.runs) == ran
    if before is reset:
        thread.run_id = ""


async def test_what_a_backup_does_not_know_is_told_at_once(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 5}))
    request = codec.encode({"who": "alice", "click": button_value("prm_lost", "approve"), "key": "k"})
    taken = await ingress(thread).receive(CHANNEL, WebhookRequest("POST", "/", headers={}, body=request))
    assert [click.reason for click in taken.clicks] == ["This request is no longer known. Ask again."]
    await cancel(thread)


async def test_of_a_request_that_was_handed_on_the_present_ones_decide_on_every_copy(thread: Thread) -> None:
    await ask(thread, ("guarded", {}), tools=[guarded])
    prompt = await thread.prompt()
    assert await press(thread, prompt.prompt_id, "farah", "early") == "refused"
    await thread.work()
    assert whispers(thread, "farah") == ["Only Bob may answer this."]
    thread.later_s(3_700)
    await thread.work()
    assert (await thread.prompt()).level == 1
    assert await press(thread, prompt.prompt_id, "bob", "too late") == "refused"
    assert await press(thread, prompt.prompt_id, "farah", "forged", at="fake:v1:nowhere") == "refused"
    await thread.work()
    assert whispers(thread, "bob") == ["Only Farah may answer this."]
    assert whispers(thread, "farah")[1:] == ["This request is not known here. Answer it where it was asked."]
    assert await press(thread, prompt.prompt_id, "farah", "old copy") == "settled"
    assert await press(thread, prompt.prompt_id, "farah", "new copy", at=ELSEWHERE, option="deny") == "already_settled"
    await thread.work()
    assert thread.log.names() == ["guarded"]
    acts = [(entry.act, entry.principal) for entry in await thread.store.audit(prompt_id=prompt.prompt_id)]
    assert acts == [
        ("refused", FARAH.id),
        ("moved", None),
        ("refused", BOB.id),
        ("refused", FARAH.id),
        ("settled", FARAH.id),
    ]
    assert [shown.card.buttons for shown in thread.channel.cards[-2:]] == [(), ()]


async def test_a_private_copy_counts_as_any_other(thread: Thread) -> None:
    await ask(thread, ("secretly", {}), tools=[secretly])
    prompt = await thread.prompt()
    assert {shown.message.private_to for shown in thread.channel.cards} == {"bob", "farah"}
    assert await press(thread, prompt.prompt_id, "farah", "f") == "settled"
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.APPROVED
    assert all(shown.card.buttons == () for shown in thread.channel.cards[-2:])
    assert thread.log.names() == ["secretly"]
