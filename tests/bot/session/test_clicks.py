"""Clicks: who may, what is too late, and that one of many settles.

What lives here: refusals and races of answers. What does not: what an answer leads to (test_approvals.py).
"""

from __future__ import annotations

import asyncio

import pytest

from bot.access import Action, Allow, Decision, Deny
from bot.answers import Way
from bot.buttons import button_value
from bot.ingress import Ingress
from bot.principal import Principal
from bot.telling import explain
from channels.events import Place
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.errors import NotFound
from durable_core.model import AnswerStatus, Outcome, PromptOutcome
from tests.bot.session.actors import Held, calls
from tests.bot.session.kit import ALICE, BOB, FARAH, GUEST, Thread
from tests.bot.session.test_approvals import ask


async def test_of_two_clicks_one_settles_and_the_other_is_told_by_whom(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    receipts = await asyncio.gather(thread.click("approve", prompt=prompt), thread.click("deny", prompt=prompt))
    assert sorted(receipt.status for receipt in receipts) == [AnswerStatus.ALREADY_SETTLED, AnswerStatus.SETTLED]
    (loser,) = [receipt for receipt in receipts if receipt.status is AnswerStatus.ALREADY_SETTLED]
    assert explain(loser) == "This was settled before: Approved by Alice."
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert len(thread.model.requests) == 2


async def test_a_redelivered_click_is_one_click(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    first = await thread.click("approve", prompt=prompt, key="k")
    await thread.work()
    again = await thread.click("approve", prompt=prompt, key="k")
    assert (again.submission_id, again.status, again.deduplicated) == (first.submission_id, AnswerStatus.SETTLED, True)
    await thread.work()
    assert thread.log.names() == ["refund"]


@pytest.mark.parametrize(("who", "reason"), [(BOB, "not_yours"), (GUEST, "Guests can't use this bot.")])
async def test_the_card_stays_for_whoever_may_not_answer(thread: Thread, who: Principal, reason: str) -> None:
    await ask(thread)
    receipt = await thread.click("approve", who)
    assert (receipt.status, receipt.reason) == (AnswerStatus.REFUSED, reason)
    assert await thread.work() == 0
    assert (await thread.prompt()).outcome is None
    await thread.click("deny")
    await thread.work()


async def test_an_option_that_is_none_and_a_prompt_that_is_none(thread: Thread) -> None:
    await ask(thread)
    assert (await thread.click("rerun")).reason == "unknown_option"
    with pytest.raises(NotFound):
        await thread.answers.admit(
            "prm_forged", "approve", principal=ALICE, place=Place("channel"), way=Way(via="button", source="fake", key="k")
        )
    await thread.click("deny")
    await thread.work()


async def test_over_the_channel_a_forged_value_is_refused_and_a_real_one_settles(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    taker = Ingress(
        store=thread.store,
        channels={"fake": thread.channel},
        agent_of={"fake": "support"},
        answers=thread.answers,
        deployment="d",
        lifetime_ms=None,
    )

    async def send(key: str, value: str, who: str = "alice") -> str:
        body = codec.encode({"who": who, "click": value, "key": key})
        taken = await taker.receive("fake", WebhookRequest("POST", "/", headers={}, body=body))
        assert taken.response.status == 200
        return taken.clicks[0].status

    assert [await send("1", value) for value in ("junk", "prm_forged:approve", f"{prompt.prompt_id}:")] == ["refused"] * 3
    assert await send("2", button_value(prompt.prompt_id, "approve"), "bob") == "refused"
    assert await send("3", button_value(prompt.prompt_id, "approve")) == "settled"
    await thread.work()
    assert thread.log.names() == ["refund"]


async def test_a_function_decides_without_waiting_for_the_run(thread: Thread) -> None:
    thread.model.script = [calls(("pay", {"amount": 5}), ("pay", {"amount": 6}))]
    await thread.say("pay")
    await thread.work()
    first, second = await thread.store.open_prompts(thread.run_id)
    thread.log.holds["pay"] = hold = Held()
    assert (await thread.click("approve", FARAH, prompt=first)).status is AnswerStatus.PENDING
    work = thread.begin()
    await hold.reached.wait()
    # the first call runs and holds the run; the second click is decided meanwhile
    receipt = await thread.click("deny", FARAH, prompt=second)
    (interaction,) = await thread.store.take_interactions("w1", limit=1, lease_ms=1000)
    await thread.answers.evaluate(interaction)
    assert (await thread.answers.result(receipt)).status is AnswerStatus.SETTLED
    hold.go.set()
    await work
    assert [(name, approver) for name, _, _, approver in thread.log.runs] == [("pay", FARAH.id)]


@pytest.mark.parametrize(("amount", "who"), [(5, ALICE), (5, BOB), (13, FARAH)])
async def test_a_function_that_refuses_or_fails_leaves_the_card(thread: Thread, amount: int, who: Principal) -> None:
    thread.model.script = [calls(("pay", {"amount": amount}))]
    await thread.say("pay")
    await thread.work()
    receipt = await thread.click("approve", who)
    await thread.work()
    decided = await thread.answers.result(receipt)
    assert (decided.status, decided.reason) == (AnswerStatus.REFUSED, "not_allowed")
    assert (await thread.prompt()).outcome is None
    assert thread.log.runs == []
    await thread.cancel()
    await thread.work()


async def test_an_access_policy_of_the_app_is_asked_for_clicks_and_may_fail_once(thread: Thread) -> None:
    asked: list[Action] = []

    async def access(principal: Principal, place: Place, action: Action) -> Decision:
        asked.append(action)
        if asked.count(Action.CLICK) == 1 and action is Action.CLICK:
            raise LookupError("down")
        return Allow() if principal.id == ALICE.id else Deny("no")

    thread.access = access
    thread.hire("w1")
    await ask(thread)
    for outcome in (AnswerStatus.REFUSED, AnswerStatus.SETTLED):
        receipt = await thread.click("approve")
        await thread.work()
        assert (await thread.answers.result(receipt)).status is outcome
    assert thread.log.names() == ["refund"]


async def test_a_policy_that_came_after_the_question_is_asked_too(thread: Thread) -> None:
    await ask(thread)
    allowed = {BOB.id}

    async def access(principal: Principal, place: Place, action: Action) -> Decision:
        return Allow() if principal.id in allowed else Deny("no", "Not any more.")

    thread.access = access
    thread.hire("w2")
    receipt = await thread.click("approve")
    assert (receipt.status, receipt.reason) == (AnswerStatus.REFUSED, "Not any more.")
    allowed.add(ALICE.id)
    await thread.click("approve")
    await thread.work()
    assert thread.log.names() == ["refund"]


async def test_a_cancel_that_was_admitted_first_beats_the_click(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    await thread.cancel()
    assert (await thread.click("approve", prompt=prompt)).reason == "cancelled"
    await thread.work()
    assert thread.log.runs == []
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.CANCELLED


async def test_a_click_that_was_settled_before_the_cancel_keeps_its_outcome_and_runs_nothing(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 7}))
    first, second = await thread.store.open_prompts(thread.run_id)
    await thread.click("approve", prompt=first)
    cancel = await thread.cancel()
    await thread.work()
    assert thread.log.runs == []
    assert (await thread.store.prompt(first.prompt_id)).outcome is PromptOutcome.APPROVED
    assert (await thread.store.prompt(second.prompt_id)).outcome is PromptOutcome.CANCELLED
    assert await thread.outcome(cancel) is Outcome.COMPLETED
    assert (await thread.types())[-2:] == ["turn.cancelled", "session.waiting"]
    resolved = [event.data["resolutions"][0]["request_id"] for event in await thread.events() if event.type == "input.resolved"]
    assert sorted(resolved) == sorted([first.prompt_id, second.prompt_id])


async def test_a_click_after_the_end_is_refused(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    await thread.store.end(thread.run_id, reason="reset", events=())
    receipt = await thread.click("approve", prompt=prompt)
    assert receipt.status in {AnswerStatus.REFUSED, AnswerStatus.ALREADY_SETTLED}
    await thread.work()
    assert thread.log.runs == []
    assert thread.channel.cards[-1].card.buttons == ()
    thread.run_id = ""
