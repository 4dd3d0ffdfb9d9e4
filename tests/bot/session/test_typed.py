"""Answers that are typed: which text is one, whose it is, and that each is given once.

What lives here: messages that settle prompts on a real store. What does not: buttons (test_clicks.py), rules (tests/bot/turn/).
"""

from __future__ import annotations

import pytest

from bot.approvals import Approval
from bot.forget import forget_principal
from bot.history import ResultStatus, UserItem
from bot.ready_tools import ask_question
from durable_core.failpoints import arm
from durable_core.model import Outcome, Prompt, PromptOutcome
from tests.bot.session.actors import TOOLS, Held, calls, die, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread
from tests.bot.session.test_approvals import REFUND, ask, results
from tests.bot.session.test_times import wiring

PAY = ("pay", {"amount": 5})


async def whispers(thread: Thread) -> list[tuple[str | None, str]]:
    return [(shown.message.private_to, shown.message.text) for shown in thread.channel.shown if shown.message.private_to]


@pytest.mark.parametrize("text", ["approve", " Approve ", "APPROVE", "1"])
async def test_an_option_by_id_label_or_place_answers(thread: Thread, text: str) -> None:
    await ask(thread)
    thread.model.script = [says("done")]
    typed = await thread.say(text)
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert await thread.outcome(typed) is Outcome.COMPLETED
    detail = (await thread.detail(typed))["answer"]
    assert (detail["status"], detail["request_id"]) == ("settled", (await one_prompt(thread)).prompt_id)
    assert [item.text for item in await thread.history() if isinstance(item, UserItem)] == ["refund 5"], "no words for the model"
    assert thread.channel.texts == ["done"]
    assert await whispers(thread) == []
    received = [event for event in await thread.events() if event.type == "message.received"]
    assert received[-1].data["answers"] == detail["request_id"]
    last = thread.channel.cards[-1].card.outcome
    assert last is not None
    assert last.text == "Approved by Alice"


async def one_prompt(thread: Thread) -> Prompt:
    ((prompt_id,),) = await thread.store.rows("SELECT prompt_id FROM moor_prompt", {})
    return await thread.store.prompt(str(prompt_id))


async def test_a_no_is_one_too(thread: Thread) -> None:
    await ask(thread)
    await thread.say("2")
    await thread.work()
    assert thread.log.names() == []
    assert results(thread, 1)[0][1] is ResultStatus.REJECTED
    assert (await one_prompt(thread)).settled_via == "text"


@pytest.mark.parametrize("text", ["approve it", "3", "approved", "yes", "1."])
async def test_more_or_other_words_are_none_and_withdraw_the_request(thread: Thread, text: str) -> None:
    await ask(thread)
    await thread.say(text)
    await thread.work()
    assert thread.log.names() == []
    assert (await one_prompt(thread)).outcome is PromptOutcome.IGNORED


async def test_what_was_typed_before_the_question_is_no_answer(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(calls(REFUND))]  # type: ignore[arg-type]
    await thread.say("refund 5")
    work = thread.begin()
    await hold.reached.wait()
    early = await thread.say("approve", BOB)
    hold.go.set()
    await work
    assert (await one_prompt(thread)).outcome is None
    assert await thread.outcome(early) is None
    await thread.click("approve")
    await thread.work()


async def test_somebody_who_may_not_is_told_alone_and_the_request_stays(thread: Thread) -> None:
    await ask(thread)
    bobs = await thread.say("approve", BOB)
    await thread.work()
    assert (await one_prompt(thread)).outcome is None
    assert await thread.outcome(bobs) is Outcome.COMPLETED
    assert (await thread.detail(bobs))["answer"]["status"] == "refused"
    assert await whispers(thread) == [("bob", "Only the person who asked may answer this.")]
    await thread.click("approve")
    await thread.work()


async def test_whoever_may_can_type_it_where_a_function_decides(thread: Thread) -> None:
    thread.model.script = [calls(PAY)]  # type: ignore[arg-type]
    await thread.say("pay 5")
    await thread.work()
    await thread.say("approve")
    await thread.work()
    assert thread.log.names() == []
    assert await whispers(thread) == [("alice", "Only somebody with the right to may answer this.")]
    await thread.say("approve", FARAH)
    await thread.work()
    assert [(name, approver) for name, _, _, approver in thread.log.runs] == [("pay", FARAH.id)]


async def test_one_message_answers_one_request(thread: Thread) -> None:
    await ask(thread, REFUND)  # type: ignore[arg-type]
    await thread.say("approve")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert len(await thread.store.open_prompts(thread.run_id)) == 1
    await thread.say("approve")
    await thread.work()
    assert thread.log.names() == ["refund", "refund"]


async def test_what_was_typed_for_one_request_that_a_click_has_answered_since_approves_no_other(thread: Thread) -> None:
    await ask(thread, REFUND)  # type: ignore[arg-type]
    first, second = sorted(await thread.store.open_prompts(thread.run_id), key=lambda prompt: prompt.call_id or "")
    typed = await thread.say("approve")  # nothing seems to come of it: no worker has a moment
    await thread.click("approve", prompt=first)
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert (await thread.store.prompt(second.prompt_id)).outcome is None
    detail = (await thread.detail(typed))["answer"]
    assert (detail["status"], detail["request_id"]) == ("already_settled", first.prompt_id)
    assert [who for who, _ in await whispers(thread)] == ["alice"]


async def test_a_word_that_steers_comes_before_an_answer_that_follows_it(thread: Thread) -> None:
    await ask(thread)
    await thread.say("wait")
    await thread.say("approve")
    await thread.work()
    assert thread.log.names() == []
    assert (await one_prompt(thread)).outcome is PromptOutcome.IGNORED


@pytest.mark.parametrize("given", [False, True])
async def test_a_worker_that_dies_while_it_answers_answers_once(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Once before the answer is given, once after it was and before the message is consumed."""
    await ask(thread, REFUND)  # type: ignore[arg-type]
    typed = await thread.say("approve")
    if given:
        with monkeypatch.context() as patch:
            patch.setattr("bot.turn.waits.answered", lambda *_: die())
            await thread.killed("w2")
    else:
        with arm("record.after_commit", die, on=1):
            await thread.killed("w2")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert len(await thread.store.open_prompts(thread.run_id)) == 1, "the message answered one request"
    assert (await thread.detail(typed))["answer"]["status"] == "settled"
    assert [item.text for item in await thread.history() if isinstance(item, UserItem)] == ["refund 5"]
    await thread.click("deny")
    await thread.work()


async def test_words_that_were_redacted_after_they_were_given_are_not_given_again(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.tools = (*TOOLS, ask_question)
    thread.hire("w1")
    thread.model.script = [calls(("ask_question", {"text": "Which colour?"})), says("done")]
    await thread.say("go")
    await thread.work()
    await thread.say("and me?", BOB)
    typed = await thread.say("green")
    with monkeypatch.context() as patch:
        patch.setattr("bot.turn.waits.answered", lambda *_: die())
        await thread.killed("w2")
    await forget_principal(thread.store, ALICE.id, by="test")
    await thread.work()
    assert (await thread.detail(typed))["answer"]["status"] == "settled"
    assert len(thread.model.requests) == 3


async def test_votes_can_be_typed(thread: Thread) -> None:
    await wiring(thread, Approval(by=[BOB.id, FARAH.id], quorum=2, remind_after=None))
    first = await thread.say("approve", BOB)
    await thread.work()
    assert (await thread.detail(first))["answer"]["status"] == "counted"
    assert thread.log.names() == []
    again = await thread.say("approve", BOB)
    await thread.work()
    assert (await thread.detail(again))["answer"]["status"] in {"refused", "counted"}
    assert thread.log.names() == []
    await thread.say("approve", FARAH)
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_a_cancel_while_it_is_answered_ends_the_turn_and_consumes_the_message(thread: Thread) -> None:
    await ask(thread)
    typed = await thread.say("approve")
    with arm("record.after_commit", die, on=1):
        await thread.killed("w2")
    await thread.cancel()
    await thread.work()
    assert thread.log.names() == []
    assert (await thread.detail(typed))["answer"]["status"] == "refused"
    assert (await thread.store.run(thread.run_id)).turn_id is None


async def test_others_are_told_once_that_their_message_waits(thread: Thread) -> None:
    await ask(thread)
    first = await thread.say("what about lunch?", BOB)
    await thread.work()
    await thread.say("hello?", BOB)
    await thread.work()
    assert await whispers(thread) == [("bob", "I am still with a request of Alice. Your message is next after that.")]
    assert await thread.outcome(first) is None
    await thread.click("deny")
    await thread.work()
    assert await thread.outcome(first) is Outcome.COMPLETED
