"""Where cards are put: in the thread, privately, elsewhere, several on one; and what happens where one can't be.

What lives here: posts and their copies on a real store. What does not: times (test_times.py), the rules (tests/bot/turn/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bot.answers import Way
from bot.approvals import Approval
from bot.egress import Egress
from bot.history import ResultStatus
from bot.routes import address
from channels.cards import MAX_ITEMS
from channels.errors import DeliveryFailed
from channels.outbound import Delivery, Outbound
from durable_core import codec
from durable_core.model import AnswerStatus, OutboxItem, Prompt, PromptOutcome
from tests.bot.session.actors import ADDRESS, CHANNEL, PLACE, TOOLS, Shown, calls, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread
from tests.bot.session.test_approvals import results
from tests.bot.session.test_times import ROOM, gated, notices, wiring

ELSEWHERE = Approval(ask="Wire {amount}?", by=[FARAH.id], by_text="Finance", route=address(ROOM), remind_after=None)
PRIVATE = Approval(ask="Wire {amount}?", route="direct", remind_after=None)


def refusing(thread: Thread, monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Delivery], bool]) -> None:
    """Have the platform refuse some deliveries for good."""

    def attempt(delivery: Delivery) -> None:
        thread.channel.attempts.append(delivery.id)
        if refuses(delivery):
            raise DeliveryFailed("is_archived", permanent=True)

    monkeypatch.setattr(thread.channel, "_try", attempt)


def cards(thread: Thread) -> list[tuple[str, str | None, bool]]:
    """Where cards were posted: the address, the one reader, and whether as plain text."""
    return [
        (shown.delivery.address, shown.message.private_to, shown.message.card is None)
        for shown in thread.channel.shown
        if shown.edits is None and "Wire" in (shown.message.text + (shown.card.question if shown.message.card else ""))
    ]


def latest(thread: Thread) -> dict[str, Shown]:
    """What each card shows now."""
    return {shown.ref: shown for shown in thread.channel.cards}


async def click_at(thread: Thread, where: str, prompt: Prompt, who: object = ALICE) -> AnswerStatus:
    receipt = await thread.answers.admit(
        prompt.prompt_id,
        "approve",
        principal=who,  # type: ignore[arg-type]
        place=PLACE,
        way=Way(via="button", source=CHANNEL, key=f"k:{where}", at=(CHANNEL, where)),
    )
    return receipt.status


async def undeliverable(thread: Thread) -> list[tuple[str, str | None]]:
    events = [event for event in await thread.events() if event.type == "input.undeliverable"]
    return [(event.data["address"], event.data["fallback"]) for event in events]


# ── routes ──


async def test_a_card_elsewhere_leaves_a_word_in_the_thread(thread: Thread) -> None:
    prompt = await wiring(thread, ELSEWHERE)
    assert cards(thread) == [(ROOM, None, False)]
    assert [notice.text for notice in notices(thread)] == ["Finance may answer a request that was put elsewhere."]
    assert await click_at(thread, ADDRESS, prompt, FARAH) is AnswerStatus.REFUSED, "a button's value alone gives no right"
    assert await click_at(thread, ROOM, prompt, FARAH) is AnswerStatus.SETTLED
    await thread.work()
    (card,) = latest(thread).values()
    assert card.card.buttons == ()
    assert card.card.outcome is not None
    assert card.card.outcome.result == "wired 5"


async def test_a_private_card_is_seen_by_who_is_asked_alone(thread: Thread) -> None:
    await wiring(thread, PRIVATE)
    assert cards(thread) == [(ADDRESS, "alice", False)]
    assert [notice.text for notice in notices(thread)] == ["Alice may answer a request that was put to them privately."]
    await thread.click("deny")
    await thread.work()
    assert {shown.message.private_to for shown in latest(thread).values()} == {"alice"}


async def test_each_of_those_who_are_listed_gets_a_private_card(thread: Thread) -> None:
    approval = Approval(ask="Wire {amount}?", by=[BOB.id, FARAH.id], route="direct", remind_after=None)
    await wiring(thread, approval)
    assert cards(thread) == [(ADDRESS, "bob", False), (ADDRESS, "farah", False)]
    await thread.click("approve", FARAH)
    await thread.work()
    assert [shown.card.buttons for shown in latest(thread).values()] == [(), ()]


async def test_what_is_typed_in_the_thread_does_not_answer_a_card_elsewhere(thread: Thread) -> None:
    prompt = await wiring(thread, ELSEWHERE)
    farahs = await thread.say("approve", FARAH)
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is None
    assert await thread.outcome(farahs) is None
    await thread.cancel()
    await thread.work()
    assert [shown.card.buttons for shown in latest(thread).values()] == [()], "every copy is retired"


# ── one card for several ──


async def test_calls_of_one_step_share_a_card(thread: Thread) -> None:
    first = await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None), times=3)
    prompts = await thread.store.open_prompts(thread.run_id)
    assert {prompt.group for prompt in prompts} == {first.prompt_id}
    assert len(thread.channel.cards) == 1
    rows = await thread.store.rows("SELECT DISTINCT prompt_id FROM moor_outbox WHERE prompt_id IS NOT NULL", {})
    assert rows == [(first.prompt_id,)]
    await thread.cancel()
    await thread.work()


async def test_more_calls_than_a_card_holds_are_all_seen(thread: Thread) -> None:
    await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None), times=MAX_ITEMS + 3)
    assert sorted(len(shown.message.card.items) for shown in thread.channel.shown if shown.message.card is not None) == [
        3,
        MAX_ITEMS,
    ]
    assert await undeliverable(thread) == []
    await thread.cancel()
    await thread.work()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bodies of all that is drawn, in order."""
    bodies: list[Any] = []
    render = Egress._render

    async def noting(egress: Egress, item: OutboxItem) -> Outbound:
        bodies.append(codec.decode(item.body))
        return await render(egress, item)

    monkeypatch.setattr(Egress, "_render", noting)
    return bodies


async def test_what_is_approved_runs_at_once_and_its_result_stays_on_the_card(thread: Thread, drawn: list[Any]) -> None:
    await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None), times=3)
    prompts = await thread.store.open_prompts(thread.run_id)
    one, two, three = sorted(prompts, key=lambda prompt: prompt.call_id or "")
    await thread.click("approve", prompt=two)
    await thread.work()
    assert len(thread.log.runs) == 1
    await thread.click("deny", prompt=one)
    await thread.work()
    await thread.click("approve", prompt=three)
    await thread.work()
    assert len(thread.log.runs) == 2
    assert thread.channel.texts[-1] == "done"
    told = [{of: known["result"] for of, known in body["results"].items()} for body in drawn if "results" in body]
    assert told == [
        {two.prompt_id: "wired 6"},
        {two.prompt_id: "wired 6"},
        {two.prompt_id: "wired 6", three.prompt_id: "wired 7"},
    ]
    statuses = [status for _, status, _ in results(thread, 1)]
    assert sorted(statuses) == [ResultStatus.COMPLETED, ResultStatus.COMPLETED, ResultStatus.REJECTED]


async def test_a_reminder_and_a_cancel_leave_results_on_the_card(thread: Thread, drawn: list[Any]) -> None:
    await wiring(thread, Approval(ask="Wire {amount}?"), times=3)
    two = (await thread.store.open_prompts(thread.run_id))[1]
    await thread.click("approve", prompt=two)
    await thread.work()
    thread.later_s(5 * 60 * 60)
    await thread.work()
    assert list([body for body in drawn if body.get("kind") == "card"][-1]["results"]) == [two.prompt_id]
    await thread.cancel()
    await thread.work()
    assert list([body for body in drawn if body.get("kind") == "card"][-1]["results"]) == [two.prompt_id]


async def test_other_routes_have_other_cards(thread: Thread) -> None:
    thread.tools = (*TOOLS, gated(ELSEWHERE))
    thread.hire("w1")
    thread.model.script = [calls(("wire", {"amount": 5}), ("refund", {"amount": 5}))]
    await thread.say("go")
    await thread.work()
    assert sorted(shown.delivery.address for shown in thread.channel.cards) == sorted([ROOM, ADDRESS])
    assert {prompt.group for prompt in await thread.store.open_prompts(thread.run_id)} == {None}
    await thread.say("never mind")
    await thread.work()
    assert [shown.card.buttons for shown in latest(thread).values()] == [(), ()]


# ── what can't be delivered ──


async def test_a_card_that_can_not_be_put_elsewhere_comes_into_the_thread(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(thread, monkeypatch, lambda delivery: delivery.address == ROOM)
    prompt = await wiring(thread, ELSEWHERE)
    assert cards(thread) == [(ADDRESS, None, False)]
    assert await undeliverable(thread) == [(ROOM, "thread")]
    assert await click_at(thread, ADDRESS, prompt, FARAH) is AnswerStatus.SETTLED
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_a_private_card_that_nobody_can_see_stays_private_and_the_thread_learns_that_nobody_was_asked(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(thread, monkeypatch, lambda delivery: delivery.message.private_to is not None)
    approval = Approval(ask="Wire {amount}?", by=[BOB.id, FARAH.id], route="direct", remind_after=None)
    await wiring(thread, approval)
    assert cards(thread) == []
    assert await undeliverable(thread) == [(ADDRESS, None), (ADDRESS, None)]
    told = [shown.message.text for shown in thread.channel.shown if shown.message.notice]
    assert [text.startswith("Nobody could be asked privately") for text in told].count(True) == 1
    assert not any("Wire" in text for text in told), "what it is about is not for the thread"
    assert (await thread.click("deny", FARAH)).status is AnswerStatus.SETTLED
    await thread.work()


async def test_a_card_that_the_thread_refuses_comes_as_text(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(thread, monkeypatch, lambda delivery: delivery.message.card is not None)
    await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None))
    assert cards(thread) == [(ADDRESS, None, True)]
    assert await undeliverable(thread) == [(ADDRESS, "text")]
    await thread.say("1")
    await thread.work()
    assert thread.log.names() == ["wire"]
    assert "Approved by Alice" in [shown.message.text for shown in thread.channel.shown if shown.edits is not None][-1]


async def test_what_can_not_be_put_anywhere_is_told_and_still_ends(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(thread, monkeypatch, lambda _: True)
    prompt = await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None))
    assert await undeliverable(thread) == [(ADDRESS, "text"), (ADDRESS, None)]
    rows = await thread.store.rows("SELECT state, last_error FROM moor_outbox", {})
    assert rows == [("dead", "is_archived")] * 2
    assert [one.prompt_id for one in await thread.store.open_prompts(thread.run_id)] == [prompt.prompt_id]
    await thread.click("deny")
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.DENIED


async def test_a_card_of_several_falls_back_as_one(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(thread, monkeypatch, lambda delivery: delivery.address == ROOM)
    await wiring(thread, ELSEWHERE, times=2)
    assert len([shown for shown in thread.channel.cards if shown.edits is None]) == 1
    assert await undeliverable(thread) == [(ROOM, "thread")] * 2
    for prompt in await thread.store.open_prompts(thread.run_id):
        await thread.click("approve", FARAH, prompt=prompt)
    thread.model.script = [says("done")]
    await thread.work()
    assert thread.log.names() == ["wire", "wire"]


async def test_a_card_that_is_settled_when_it_is_found_undeliverable_is_let_go(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.channel.failures = [DeliveryFailed("busy", permanent=False)]
    await wiring(thread, Approval(ask="Wire {amount}?", remind_after=None))
    await thread.click("deny")
    refusing(thread, monkeypatch, lambda delivery: delivery.message.card is not None)
    thread.later_s(2)
    await thread.work()
    assert await undeliverable(thread) == []
    rows = await thread.store.rows("SELECT count(*) FROM moor_admission WHERE outcome IS NULL", {})
    assert rows == [(0,)]
