"""Consent that holds: who may run a cut-off call again, who may still run an approved one, and questions that come too late.

What lives here: consent inherited, re-checked, or not asked for any more. What does not: plain approvals (test_approvals.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from bot.access import Action, Allow, Decision, Deny
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.history import ResultItem, ResultStatus, UserItem
from bot.principal import Principal
from bot.tools import tool
from channels.events import Place
from durable_core.model import AnswerPolicy, AnswerStatus, Outcome
from tests.bot.session.actors import TOOLS, Held, Log, calls
from tests.bot.session.kit import ALICE, BOB, FARAH, START, Thread
from tests.bot.session.test_approvals import ask
from tests.bot.session.test_interruption import cut_off, killed_at

PAY = ("pay", {"amount": 5})


def results(thread: Thread, request: int = 1) -> list[tuple[ResultStatus, object]]:
    history = thread.model.requests[request].history
    return [(item.status, item.content) for item in history if isinstance(item, ResultItem)]


async def paid_and_died(thread: Thread) -> None:
    thread.model.script = [calls(PAY)]  # type: ignore[arg-type]
    await thread.say("pay 5")
    await thread.work()
    await thread.click("approve", FARAH)
    await killed_at(thread, "tool.after_effect")
    await thread.work()


async def test_whoever_had_to_approve_has_to_say_that_it_may_run_again(thread: Thread) -> None:
    await paid_and_died(thread)
    prompt = await thread.prompt()
    assert (prompt.kind, prompt.policy) == ("rerun", AnswerPolicy.FUNCTION)
    assert prompt.expires_at == START + int(timedelta(days=3).total_seconds() * 1000)
    assert "Somebody with the right to may answer" in thread.channel.cards[-1].card.detail
    for who in (ALICE, BOB):
        receipt = await thread.click("rerun", who)
        await thread.work()
        assert (await thread.answers.result(receipt)).status is AnswerStatus.REFUSED
    assert thread.log.names() == ["pay"]
    receipt = await thread.click("rerun", FARAH)
    await thread.work()
    assert (await thread.answers.result(receipt)).status is AnswerStatus.SETTLED
    assert [(name, attempt) for name, attempt, *_ in thread.log.runs] == [("pay", 1), ("pay", 2)]
    assert results(thread)[0][0] is ResultStatus.COMPLETED


async def test_it_waits_as_long_as_the_approval_did(thread: Thread) -> None:
    await ask(thread)
    await thread.click("approve")
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    prompt = await thread.prompt()
    assert prompt.expires_at == START + int(timedelta(days=1).total_seconds() * 1000)
    assert (await thread.click("rerun", BOB)).reason == "not_yours"
    await thread.click("skip")
    await thread.work()


async def test_the_requester_is_asked_of_a_call_that_needed_nobody(thread: Thread) -> None:
    await cut_off(thread)
    assert (await thread.prompt()).policy is AnswerPolicy.REQUESTER
    assert (await thread.click("rerun", FARAH)).reason == "not_yours"
    await thread.click("rerun")
    await thread.work()
    assert thread.log.names() == ["put", "put"]


async def test_each_run_is_counted_over_any_number_of_cuts(thread: Thread) -> None:
    await cut_off(thread)
    for place in ("w3", "w4"):
        await thread.click("rerun")
        await killed_at(thread, "tool.after_effect")
        thread.hire(place)
        await thread.work()
    await thread.click("rerun")
    await thread.work()
    assert [attempt for _, attempt, *_ in thread.log.runs] == [1, 2, 3, 4]


class Roster:
    """Who may use the bot; looking fails while it is down."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.down = False
        self.asked: list[tuple[str, Action]] = []

    def __call__(self, principal: Principal, place: Place, action: Action) -> Decision:
        self.asked.append((principal.id, action))
        if self.down:
            raise LookupError("the directory is down")
        return Deny("left", "You have left.") if principal.id in self.gone else Allow()


async def approved_then(thread: Thread) -> Roster:
    thread.access = roster = Roster()
    thread.hire("w1")
    thread.model.script = [calls(PAY)]  # type: ignore[arg-type]
    await thread.say("pay 5")
    await thread.work()
    await thread.click("approve", FARAH)
    (interaction,) = await thread.store.take_interactions(thread.owner, limit=4, lease_ms=60_000)
    await thread.answers.evaluate(interaction)
    return roster


async def test_who_has_lost_access_since_gets_nothing_run(thread: Thread) -> None:
    roster = await approved_then(thread)
    roster.gone.add(ALICE.id)
    await thread.work()
    assert thread.log.runs == []
    assert results(thread) == [
        (
            ResultStatus.REJECTED,
            "The call was approved, but it did not run. Alice may not use this bot here any more: You have left.",
        )
    ]
    assert await thread.store.rows("SELECT key FROM moor_record WHERE key LIKE 'started:%'", {}) == []


async def test_who_still_has_it_is_asked_for_once_more(thread: Thread) -> None:
    roster = await approved_then(thread)
    roster.asked.clear()
    await thread.work()
    assert roster.asked == [(ALICE.id, Action.MESSAGE)]
    assert thread.log.names() == ["pay"]


async def test_a_look_up_that_fails_is_made_again_and_in_the_end_refuses(thread: Thread) -> None:
    roster = await approved_then(thread)
    roster.down = True
    roster.asked.clear()
    for _ in range(8):
        await thread.work()
        await thread.work()
        thread.later_s(60)
    assert len(roster.asked) == 4
    assert thread.log.runs == []
    assert results(thread)[0][0] is ResultStatus.REJECTED


async def test_a_look_up_that_comes_back_lets_it_run(thread: Thread) -> None:
    roster = await approved_then(thread)
    roster.down = True
    await thread.work()
    roster.down = False
    await thread.say("hurry", BOB)
    await thread.work()
    assert thread.log.runs == []  # Bob buys no attempt
    thread.later_s(60)
    await thread.work()
    assert thread.log.names() == ["pay"]


async def test_a_policy_that_hangs_counts_as_one_that_fails(thread: Thread) -> None:
    hold = Held()

    async def hangs(principal: Principal, place: Place, action: Action) -> Decision:
        while not hold.go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await hold.wait()
        return Allow()

    thread.access = hangs
    thread.hire("w1")
    object.__setattr__(thread.runner, "access_seconds", 0.01)
    await thread.say("hi")
    assert await thread.work() == 1
    assert thread.model.requests == []
    thread.access = lambda *_: Allow()
    thread.hire("w2")
    thread.later_s(60)
    await thread.work()
    assert len(thread.model.requests) == 1
    hold.go.set()


async def test_an_approval_function_that_hangs_asks(thread: Thread) -> None:
    import threading

    go = threading.Event()

    def hangs(call: ToolCall) -> bool:
        go.wait()
        return False

    @tool(approval=Approval(when=hangs))
    async def gated(ctx: ToolContext[Log]) -> str:
        """Gated."""
        await ctx.deps.run("gated", ctx)
        return "ok"

    thread.tools = (gated,)
    thread.hire("w1")
    object.__setattr__(thread.runner, "access_seconds", 0.01)
    thread.model.script = [calls(("gated", {}))]
    await thread.say("go")
    await thread.work()
    go.set()
    assert (await thread.prompt()).kind == "approval"
    await thread.click("approve")
    await thread.work()
    assert thread.log.names() == ["gated"]


@pytest.mark.parametrize("heard", [True, False])
async def test_what_was_written_before_the_question_comes_first_and_no_card_appears(thread: Thread, heard: bool) -> None:
    thread.log.holds["look"] = hold = Held()
    thread.model.script = [calls(("look", {}), ("refund", {"amount": 5}))]
    await thread.say("refund 5")
    work = thread.begin()
    await hold.reached.wait()
    if not heard:
        await thread.deaf()
    second = await thread.say("no, 6")
    hold.go.set()
    await work
    assert thread.channel.cards == []
    assert "input.requested" not in await thread.types()
    assert [status for status, _ in results(thread)] == [ResultStatus.COMPLETED, ResultStatus.REJECTED]
    assert results(thread)[1][1] == "Not asked: the person wrote on. The call did not run."
    assert [item.text for item in thread.model.requests[1].history if isinstance(item, UserItem)] == ["refund 5", "no, 6"]
    assert await thread.outcome(second) is Outcome.COMPLETED
    assert thread.log.names() == ["look"]


async def test_nor_is_it_asked_whether_a_call_may_run_again(thread: Thread) -> None:
    await ask(thread)
    await thread.click("approve")
    await killed_at(thread, "tool.after_effect")
    cards = len(thread.channel.cards)
    await thread.say("never mind")
    await thread.work()
    assert await thread.store.open_prompts(thread.run_id) == []
    assert thread.log.names() == ["refund"]
    assert results(thread)[0][0] is ResultStatus.UNKNOWN
    assert all(shown.edits is not None for shown in thread.channel.cards[cards:])
    assert len(TOOLS) == 6
