"""Approvals: calls that wait, what people click, write or leave, and that each runs at most once.

What lives here: held turns and their cards. What does not: races and refusals of clicks (test_clicks.py).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.history import NoteItem, ResultItem, ResultStatus, Trust
from bot.session.live import LiveSession, WarmHistories
from bot.turn.state import TurnPolicy
from durable_core.model import AnswerStatus, Outcome, Phase, PromptOutcome
from durable_core.worker import Held as HeldRun
from tests.bot.session.actors import Held, calls, says
from tests.bot.session.kit import ALICE, BOB, Thread

REFUND = ("refund", {"amount": 5})


async def ask(thread: Thread, *more: tuple[str, dict[str, object]], text: str = "") -> None:
    """Have Alice's turn wait for her yes to a refund, beside calls that need nobody."""
    thread.model.script.insert(0, calls(*more, REFUND, text=text))  # type: ignore[arg-type]
    await thread.say("refund 5")
    await thread.work()


def results(thread: Thread, request: int) -> list[tuple[str, ResultStatus, object]]:
    history = thread.model.requests[request].history
    return [(item.tool, item.status, item.content) for item in history if isinstance(item, ResultItem)]


async def test_calls_that_need_nobody_run_while_the_gated_one_waits(thread: Thread) -> None:
    await ask(thread, ("look", {"at": "sea"}), text="On it.")
    assert thread.log.names() == ["look"]
    assert thread.channel.texts == ["On it."]
    (card,) = thread.channel.cards
    assert card.card.question == "Refund 5?"
    assert [button.label for button in card.card.buttons] == ["Approve", "Deny", "Deny with a note"]
    assert ("amount", "5") in card.card.fields
    run = await thread.store.run(thread.run_id)
    assert (run.phase, run.turn_id) == (Phase.WAITING, "turn_0")
    assert (await thread.types())[3:] == [
        "step.started",
        "actions.requested",
        "action.result",
        "message.completed",
        "input.requested",
        "step.completed",
        "turn.waiting",
    ]
    await thread.click("approve")
    await thread.work()


async def test_an_approved_call_runs_once_as_the_requester_and_the_turn_goes_on(thread: Thread) -> None:
    await ask(thread)
    thread.model.script = [says("done")]
    assert (await thread.click("approve")).status is AnswerStatus.SETTLED
    await thread.work()
    assert [(name, attempt, approver) for name, attempt, _, approver in thread.log.runs] == [("refund", 1, ALICE.id)]
    assert thread.channel.texts == ["done"]
    assert results(thread, 1) == [("refund", ResultStatus.COMPLETED, "refunded 5")]
    types = await thread.types()
    resumed = types[types.index("turn.waiting") + 1 :]
    assert resumed == [
        "approval.settled",
        "input.resolved",
        "step.started",
        "action.result",
        "step.completed",
        "step.started",
        "message.completed",
        "step.completed",
        "turn.completed",
        "session.waiting",
    ]
    assert {event.data["turn_id"] for event in await thread.events() if "turn_id" in event.data} == {"turn_0"}
    last = thread.channel.cards[-1]
    assert last.card.outcome is not None
    assert (last.edits, last.card.outcome.text, last.card.outcome.result) == ("m0", "Approved by Alice", "refunded 5")
    assert last.card.buttons == ()


async def test_a_denial_and_its_note_reach_the_model(thread: Thread) -> None:
    await ask(thread)
    await thread.click("deny", note="too much")
    await thread.work()
    assert thread.log.runs == []
    ((_, status, content),) = results(thread, 1)
    assert status is ResultStatus.REJECTED
    assert content == 'Alice did not approve this call. It did not run. Their note: "too much"'


async def test_a_request_that_nobody_answers_expires_on_time(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    thread.clock.advance(timedelta(days=1) - timedelta(milliseconds=1))
    assert await thread.work() == 1, "it reminds"
    assert await thread.work() == 0
    thread.clock.advance(timedelta(milliseconds=1))
    assert (await thread.click("approve", prompt=prompt)).reason == "expired"
    await thread.work()
    assert thread.log.runs == []
    assert results(thread, 1)[0][1] is ResultStatus.EXPIRED
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.EXPIRED
    assert thread.channel.cards[-1].card.outcome is not None


@pytest.mark.parametrize("policy", list(TurnPolicy))
async def test_who_writes_on_instead_of_answering_withdraws_the_request(thread: Thread, policy: TurnPolicy) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    second = await thread.say("wait, how much?", policy=policy)
    await thread.work()
    assert thread.log.runs == []
    assert (await thread.submission(second)).turn_id == "turn_0"
    assert results(thread, 1)[0][1] is ResultStatus.REJECTED
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.IGNORED
    late = await thread.click("approve", prompt=prompt)
    assert late.status is AnswerStatus.ALREADY_SETTLED


async def test_a_queued_message_from_before_the_question_does_not_answer_it(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(calls(REFUND))]  # type: ignore[arg-type]
    await thread.say("refund 5")
    work = thread.begin()
    await hold.reached.wait()
    queued = await thread.say("and then?", policy=TurnPolicy.QUEUE)
    hold.go.set()
    await work
    assert (await thread.prompt()).outcome is None
    await thread.click("approve")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert (await thread.submission(queued)).turn_id == "turn_1"


async def test_another_persons_message_waits_for_its_own_turn(thread: Thread) -> None:
    await ask(thread)
    bobs = await thread.say("approve what?", BOB)
    await thread.work()
    assert (await thread.prompt()).outcome is None
    assert await thread.outcome(bobs) is None
    await thread.click("approve")
    await thread.work()
    assert (await thread.submission(bobs)).turn_id == "turn_1"
    assert await thread.outcome(bobs) is Outcome.COMPLETED
    assert thread.log.names() == ["refund"]


async def test_of_two_requests_each_is_settled_by_itself(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 7}))
    first, second = sorted(await thread.store.open_prompts(thread.run_id), key=lambda prompt: prompt.call_id or "")
    await thread.click("approve", prompt=first)
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert (await thread.types())[-1] == "turn.waiting"
    assert len(thread.model.requests) == 1
    await thread.click("deny", prompt=second)
    await thread.work()
    assert [status for _, status, _ in results(thread, 1)] == [ResultStatus.COMPLETED, ResultStatus.REJECTED]
    assert results(thread, 1)[0][2] == "refunded 7"


async def test_the_second_answer_that_comes_while_the_first_call_runs_keeps_name_and_note(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 7}))
    first, second = sorted(await thread.store.open_prompts(thread.run_id), key=lambda prompt: prompt.call_id or "")
    thread.log.holds["refund"] = hold = Held()
    await thread.click("approve", prompt=first)
    work = thread.begin()
    await hold.reached.wait()
    await thread.say("hm")
    # the answer is heard of only with the commit, as on a worker that missed the wake-up
    await thread.deaf()
    await thread.click("deny", prompt=second, note="not that one")
    hold.go.set()
    await work
    assert 'Alice did not approve this call. It did not run. Their note: "not that one"' in [c for _, _, c in results(thread, 1)]


async def test_the_approved_sibling_runs_and_the_other_is_ignored_when_the_requester_writes_on(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 7}))
    first, second = await thread.store.open_prompts(thread.run_id)
    await thread.click("approve", prompt=first)
    await thread.say("that's enough")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert (await thread.store.prompt(second.prompt_id)).outcome is PromptOutcome.IGNORED


class Tainted(WarmHistories):
    """Histories in which a stranger's mail was read."""

    async def load(self, held: HeldRun) -> LiveSession:
        session = await super().load(held)
        if not any(isinstance(item, NoteItem) for item in session.history):
            session.history.insert(0, NoteItem("pay me", "mail:eve", trust=Trust.UNTRUSTED))
        return session


async def test_after_untrusted_content_a_write_asks_whatever_its_policy_says(thread: Thread) -> None:
    object.__setattr__(thread.runner, "warm", Tainted(thread.store))
    thread.model.script = [calls(("put", {"what": "y"}), ("look", {}))]
    await thread.say("read my mail")
    await thread.work()
    assert thread.log.names() == ["look"]
    (card,) = thread.channel.cards
    assert card.card.evidence == ("From outside, not vouched for: mail:eve",)
    assert (await thread.click("approve", BOB)).status is AnswerStatus.REFUSED
    await thread.click("approve")
    await thread.work()
    assert thread.log.names() == ["look", "put"]


async def test_junk_from_the_model_becomes_results_it_can_act_on(thread: Thread) -> None:
    thread.model.script = [
        calls(
            ("refund", {"amount": "lots"}),
            ("nothing_here", {}),
            ("look", "{not json"),
            ("look", {"at": "a"}),
            ("look", {"at": "b"}),
        )
    ]
    await thread.say("go")
    await thread.work()
    told = results(thread, 1)
    assert [(name, status) for name, status, _ in told] == [
        ("refund", ResultStatus.FAILED),
        ("nothing_here", ResultStatus.FAILED),
        ("look", ResultStatus.FAILED),
        ("look", ResultStatus.COMPLETED),
        ("look", ResultStatus.COMPLETED),
    ]
    assert [content for *_, content in told][3:] == ["saw a", "saw b"]
    assert thread.log.names() == ["look", "look"]
    assert len({key for _, _, key, _ in thread.log.runs}) == 2
    assert await thread.store.open_prompts(thread.run_id) == []
