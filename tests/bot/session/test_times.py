"""Requests over time: reminders, what nobody answers, who is asked next, and clicks that race all of it.

What lives here: times of prompts on a real store. What does not: the rules (tests/bot/turn/), where cards go (test_routes.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import JsonValue

from bot.approvals import Approval
from bot.context import ToolContext
from bot.history import ResultStatus
from bot.routes import address, escalate
from bot.session.live import LiveSession
from bot.tools import Tool, tool
from bot.turn.state import Limits
from bot.turn.view import View
from channels.outbound import Outbound
from durable_core.errors import PromptTaken
from durable_core.failpoints import arm
from durable_core.model import AnswerPolicy, AnswerStatus, Committed, Outcome, Prompt, PromptOutcome, StepCommit
from durable_core.store import Store
from tests.bot.session.actors import ADDRESS, TOOLS, Log, calls, die, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread
from tests.bot.session.test_approvals import results

HOUR, MS = timedelta(hours=1), timedelta(milliseconds=1)
ROOM = "fake:v1:finance"


def gated(approval: Approval) -> Tool:
    @tool(effect="write", approval=approval, name="wire")
    async def wire(ctx: ToolContext[Log], amount: int) -> str:
        """Wire money."""
        await ctx.deps.run("wire", ctx)
        return f"wired {amount}"

    return wire


async def wiring(thread: Thread, approval: Approval, *, times: int = 1) -> Prompt:
    """Have Alice's turn wait for a yes to wiring money."""
    thread.tools = (*TOOLS, gated(approval))
    thread.hire("w1")
    asked: list[tuple[str, dict[str, JsonValue] | str]] = [("wire", {"amount": place}) for place in range(5, 5 + times)]
    thread.model.script = [calls(*asked), says("done")]
    await thread.say("wire 5")
    await thread.work()
    return min(await thread.store.open_prompts(thread.run_id), key=lambda prompt: prompt.call_id or "")


async def later(thread: Thread, span: timedelta) -> None:
    thread.clock.advance(span)
    await thread.work()


def notices(thread: Thread, at: str = ADDRESS) -> list[Outbound]:
    return [shown.message for shown in thread.channel.shown if shown.message.notice and shown.delivery.address == at]


# ── reminders ──


async def test_a_reminder_comes_once_and_names_who_is_waited_for(thread: Thread) -> None:
    prompt = await wiring(thread, Approval(ask="Wire {amount}?", remind_after=HOUR, expires=4 * HOUR))
    await later(thread, HOUR - timedelta(milliseconds=1))
    assert notices(thread) == []
    await later(thread, timedelta(milliseconds=1))
    assert [notice.text for notice in notices(thread)] == ["Still unanswered: “Wire 5?”. Alice may answer."]
    assert (await thread.store.prompt(prompt.prompt_id)).remind_at is None
    assert "input.reminded" in await thread.types()
    await later(thread, 2 * HOUR)
    assert len(notices(thread)) == 1
    assert thread.settled(await thread.click("approve"))
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_what_is_answered_is_not_reminded_of(thread: Thread) -> None:
    await wiring(thread, Approval(remind_after=HOUR))
    await thread.click("approve")
    await thread.work()
    await later(thread, 2 * HOUR)
    assert notices(thread) == []


async def test_a_worker_that_was_away_does_not_remind_of_what_is_over(thread: Thread) -> None:
    await wiring(thread, Approval(remind_after=HOUR, expires=2 * HOUR))
    await later(thread, 3 * HOUR)
    assert notices(thread) == []
    assert results(thread, 1)[0][1] is ResultStatus.EXPIRED


async def test_several_on_one_card_are_reminded_of_in_one_notice(thread: Thread) -> None:
    await wiring(thread, Approval(remind_after=HOUR), times=3)
    await later(thread, HOUR)
    assert [notice.text for notice in notices(thread)] == ["Still unanswered: 3 requests. Alice may answer."]
    await thread.cancel()
    await thread.work()


async def test_a_worker_that_dies_before_it_reminds_reminds_once(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    await wiring(thread, Approval(remind_after=HOUR))
    thread.clock.advance(HOUR)
    with monkeypatch.context() as patch:
        patch.setattr("bot.turn.waits.reminded", lambda *_: die())
        await thread.killed("w2")
    assert notices(thread) == []
    await thread.work()
    assert len(notices(thread)) == 1
    await thread.cancel()
    await thread.work()


async def test_a_question_whether_to_run_again_is_put_and_reminded_of_like_any_other(thread: Thread) -> None:
    approval = Approval(by=[FARAH.id], route=address(ROOM), remind_after=HOUR, expires=2 * HOUR)
    await wiring(thread, approval)
    await thread.click("approve", FARAH)
    with arm("tool.after_effect", die, on=1):
        await thread.killed("w2")
    await thread.work()
    prompt = await thread.prompt()
    assert prompt.kind == "rerun"
    (again,) = [shown for shown in thread.channel.cards if "cut off" in shown.card.question]
    assert again.delivery.address == ROOM
    await later(thread, HOUR)
    said = f"Still unanswered: “{again.card.question}”. {prompt.asked} may answer."
    assert [notice.text for notice in notices(thread, ROOM)] == [said]
    await later(thread, HOUR)
    assert results(thread, 1)[0][1] is ResultStatus.UNKNOWN
    assert thread.log.names() == ["wire"]


# ── expiry ──


async def test_on_expiry_a_turn_can_be_cancelled(thread: Thread) -> None:
    prompt = await wiring(thread, Approval(expires=HOUR, on_expiry="cancel", remind_after=None), times=2)
    ((submission,),) = await thread.store.rows("SELECT submission_id FROM moor_admission", {})
    await later(thread, HOUR)
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.EXPIRED
    assert (await thread.types())[-6:] == [
        "input.resolved",
        "input.resolved",
        "action.result",
        "action.result",
        "turn.cancelled",
        "session.waiting",
    ]
    assert (await thread.store.submission(str(submission))).outcome is Outcome.ABORTED
    assert thread.channel.texts[-1] == "Stopped. Nobody answered in time."
    assert len(thread.model.requests) == 1


async def test_what_was_approved_runs_before_its_sibling_cancels_the_turn(thread: Thread) -> None:
    await wiring(thread, Approval(expires=HOUR, on_expiry="cancel", remind_after=None), times=2)
    first, _ = await thread.store.open_prompts(thread.run_id)
    await thread.click("approve", prompt=first)
    await later(thread, HOUR)
    assert thread.log.names() == ["wire"]
    assert (await thread.types())[-2:] == ["turn.cancelled", "session.waiting"]


# ── who is asked next ──

UP = Approval(
    ask="Wire {amount}?",
    by=[ALICE.id],
    self_ok=True,
    expires=2 * HOUR,
    remind_after=HOUR,
    on_expiry=escalate(by=[FARAH.id], to=address(ROOM), expires=3 * HOUR, by_text="Finance"),
)


async def test_what_nobody_answers_is_handed_on_where_others_are(thread: Thread) -> None:
    prompt = await wiring(thread, UP)
    assert prompt.policy is AnswerPolicy.LISTED
    await later(thread, 2 * HOUR)
    moved = await thread.store.prompt(prompt.prompt_id)
    assert (moved.level, moved.answerers, moved.asked, moved.outcome) == (1, (FARAH.id,), "Finance", None)
    assert moved.expires_at == (prompt.expires_at or 0) + 3 * 60 * 60 * 1000
    assert [notice.text for notice in notices(thread)] == ["Nobody answered in time, so now Finance may answer: “Wire 5?”"]
    copy = [shown for shown in thread.channel.cards if shown.delivery.address == ROOM]
    assert [shown.card.question for shown in copy] == ["Wire 5?"]
    assert (await thread.click("approve", ALICE, prompt=moved)).status is AnswerStatus.REFUSED
    assert thread.settled(await thread.click("approve", FARAH, prompt=moved))
    await thread.work()
    assert thread.log.names() == ["wire"]
    last = {shown.ref: shown for shown in thread.channel.cards}
    assert len(last) == 2
    assert [shown.card.buttons for shown in last.values()] == [(), ()], "every copy lost its buttons"
    assert [shown.card.outcome.result for shown in last.values() if shown.card.outcome] == ["wired 5"] * 2


async def test_the_last_who_are_asked_are_reminded_and_then_it_is_denied(thread: Thread) -> None:
    prompt = await wiring(thread, UP)
    await later(thread, 2 * HOUR)
    await later(thread, HOUR)
    assert [notice.text for notice in notices(thread, ROOM)] == ["Still unanswered: “Wire 5?”. Finance may answer."]
    await later(thread, 2 * HOUR)
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.EXPIRED
    assert results(thread, 1)[0][1] is ResultStatus.EXPIRED
    resolved = [event for event in await thread.events() if event.type == "input.resolved"]
    assert len(resolved) == 1
    assert (await thread.click("approve", FARAH, prompt=prompt)).status is AnswerStatus.ALREADY_SETTLED


async def test_several_are_handed_on_with_one_card(thread: Thread) -> None:
    await wiring(thread, UP, times=2)
    await later(thread, 2 * HOUR)
    assert len([shown for shown in thread.channel.cards if shown.delivery.address == ROOM and shown.edits is None]) == 1
    for prompt in await thread.store.open_prompts(thread.run_id):
        assert prompt.level == 1
        await thread.click("approve", FARAH, prompt=prompt)
    await thread.work()
    assert thread.log.names() == ["wire", "wire"]


async def test_a_word_typed_where_it_was_handed_to_is_not_in_the_thread(thread: Thread) -> None:
    await wiring(thread, UP)
    await later(thread, 2 * HOUR)
    farahs = await thread.say("approve", FARAH)
    await thread.work()
    assert (await thread.detail(farahs))["answer"]["status"] == "settled", "the card stands in the thread as well"
    assert thread.log.names() == ["wire"]


# ── races ──


@pytest.mark.parametrize(
    ("approval", "span"),
    [
        (Approval(remind_after=HOUR), HOUR),
        (Approval(expires=HOUR, remind_after=None), HOUR),
        (Approval(expires=HOUR, remind_after=None, on_expiry="cancel"), HOUR),
        (UP, 2 * HOUR),
    ],
    ids=["remind", "deny", "cancel", "escalate"],
)
async def test_a_click_that_races_a_time_has_one_outcome(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, approval: Approval, span: timedelta
) -> None:
    """The worker decides that it is time, the click is committed before its step is: that is refused, and decided anew."""
    prompt = await wiring(thread, approval)
    real, view = type(thread.store).commit, LiveSession.view
    seen: list[object] = []

    async def racing(store: Store, commit: StepCommit) -> Committed:
        if (commit.updates or commit.settle) and not seen:
            seen.append(commit)
            assert thread.settled(await thread.click("approve", prompt=prompt))
        try:
            return await real(store, commit)
        except PromptTaken as error:
            seen.append(error)
            raise

    def early(session: LiveSession, limits: Limits) -> View:
        found = view(session, limits)
        return replace(found, now=found.now + int(span.total_seconds() * 1000))

    await thread.say("hi", BOB)
    monkeypatch.setattr(type(thread.store), "commit", racing)
    monkeypatch.setattr(LiveSession, "view", early)
    await thread.work()
    assert isinstance(seen[1], PromptTaken)
    assert thread.log.names() == ["wire"]
    settled = await thread.store.prompt(prompt.prompt_id)
    assert (settled.outcome, settled.level) == (PromptOutcome.APPROVED, 0)
    assert [event.type for event in await thread.events()].count("input.resolved") == 1
    assert notices(thread) == []


async def test_nobody_else_counts_before_it_is_handed_on(thread: Thread) -> None:
    prompt = await wiring(thread, UP)
    assert (await thread.click("approve", FARAH, prompt=prompt)).status is AnswerStatus.REFUSED
    assert (await thread.click("approve", BOB, prompt=prompt)).status is AnswerStatus.REFUSED
    await thread.cancel()
    await thread.work()


async def test_who_was_asked_before_does_not_answer_for_those_who_are_asked_now(thread: Thread) -> None:
    approval = Approval(
        by=lambda _, who: who.id == FARAH.id,
        expires=HOUR,
        remind_after=None,
        on_expiry=escalate(by=lambda _, who: who.id == BOB.id),
    )
    prompt = await wiring(thread, approval)
    receipt = await thread.click("approve", FARAH)
    (interaction,) = await thread.store.take_interactions("w1", limit=1, lease_ms=86_400_000)
    await later(thread, HOUR)  # it is handed on while her answer is looked at
    await thread.answers.evaluate(interaction)
    late = await thread.answers.result(receipt)
    assert (late.status, late.reason) == (AnswerStatus.REFUSED, "moved")
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is None
    assert thread.log.runs == []
    await thread.click("approve", BOB)
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_whoever_asked_is_not_named_among_those_who_are_asked_next(thread: Thread) -> None:
    approval = Approval(expires=HOUR, remind_after=None, on_expiry=escalate(by=[ALICE.id, BOB.id]))
    prompt = await wiring(thread, approval)
    await later(thread, HOUR)
    moved = await thread.store.prompt(prompt.prompt_id)
    assert (moved.asked, moved.answerers) == (BOB.id, (BOB.id,))
    await thread.click("approve", BOB)
    await thread.work()


async def test_a_level_at_which_nobody_may_answer_is_passed_over(thread: Thread) -> None:
    steps = [escalate(by=[ALICE.id]), escalate(by=[FARAH.id], expires=2 * HOUR)]
    prompt = await wiring(thread, Approval(by=[BOB.id], expires=HOUR, remind_after=None, on_expiry=steps))
    await later(thread, HOUR)
    moved = await thread.store.prompt(prompt.prompt_id)
    assert (moved.level, moved.answerers, moved.expires_at) == (2, (FARAH.id,), prompt.created_at + 3 * HOUR // MS)
    await thread.click("approve", FARAH)
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_a_last_level_at_which_nobody_may_answer_is_the_end(thread: Thread) -> None:
    approval = Approval(by=[BOB.id], expires=HOUR, remind_after=None, on_expiry=escalate(by=[ALICE.id]))
    prompt = await wiring(thread, approval)
    await later(thread, HOUR)
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.EXPIRED
    assert results(thread, 1)[-1][1] is ResultStatus.EXPIRED
