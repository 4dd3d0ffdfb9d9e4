"""Tools that wait in place of a run: a question to the person, a sleep, an end without words.

What lives here: their calls on a real store. What does not: the rules of waiting (tests/bot/turn/).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.access import Allow
from bot.answers import Way
from bot.forget import forget_principal
from bot.history import ResultItem, ResultStatus
from bot.ready_tools import ask_question, no_reply, sleep
from bot.session_api import Response, ResponseStatus
from bot.sessions import Sessions
from bot.turn.state import TurnPolicy
from durable_core.model import AnswerStatus, Outcome, Phase, PromptOutcome
from durable_core.streams import Streams
from tests.bot.session.actors import CHANNEL, PLACE, TOOLS, calls, says
from tests.bot.session.kit import ALICE, BOB, Thread
from tests.bot.session.test_approvals import results


async def asking(thread: Thread, name: str, **arguments: object) -> None:
    thread.tools = (*TOOLS, ask_question, sleep, no_reply)
    thread.hire("w1")
    thread.model.script = [calls((name, arguments)), says("done")]  # type: ignore[arg-type]
    await thread.say("go")
    await thread.work()


# ── questions ──


async def test_a_question_waits_and_the_chosen_option_is_the_result(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?", options=["Red", "Blue"])
    prompt = await thread.prompt()
    assert prompt.kind == "question"
    (card,) = thread.channel.cards
    assert card.card.question == "Which colour?"
    assert [button.label for button in card.card.buttons][:2] == ["Red", "Blue"]
    assert thread.settled(await thread.click("option_2"))
    await thread.work()
    assert results(thread, 1) == [("ask_question", ResultStatus.COMPLETED, {"option": "Blue", "by": "Alice"})]
    assert thread.channel.texts == ["done"]
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.ANSWERED


@pytest.mark.parametrize("text", ["blue", "2"])
async def test_it_can_be_answered_by_text(thread: Thread, text: str) -> None:
    await asking(thread, "ask_question", text="Which colour?", options=["Red", "Blue"])
    await thread.say(text)
    await thread.work()
    assert results(thread, 1)[0][2] == {"option": "Blue", "by": "Alice"}


async def test_their_own_words_answer_it_where_they_may(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?", options=["Red", "Blue"])
    typed = await thread.say("something greenish, please")
    await thread.work()
    assert results(thread, 1)[0][2] == {"text": "something greenish, please", "by": "Alice"}
    assert await thread.outcome(typed) is Outcome.COMPLETED


async def test_a_form_and_the_api_take_own_words_too(thread: Thread) -> None:
    for words in ("sent by a form", "sent by the API"):
        await asking(thread, "ask_question", text="Which colour?", options=["Red"])
        prompt = await thread.prompt()
        if "form" in words:
            await thread.answers.admit(
                prompt.prompt_id,
                "",
                principal=ALICE,
                place=PLACE,
                way=Way(via="button", source=CHANNEL, key="form"),
                fields={"text": words},
            )
        else:
            sessions = Sessions(
                store=thread.store,
                streams=Streams(thread.store),
                prompts=thread.prompts,
                agents=["support"],
                deployment="d",
                lifetime_ms=None,
            )
            (told,) = await sessions.respond(ALICE, thread.run_id, responses=[Response(prompt.prompt_id, text=words)], key=None)
            assert told.status is ResponseStatus.SETTLED
        await thread.work()
        assert results(thread, len(thread.model.requests) - 1)[-1][2] == {"text": words, "by": "Alice"}


async def test_forgetting_somebody_takes_their_answer_out(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?")
    await thread.say("and me?", BOB)
    await thread.say("like the sea at my house")
    await thread.work()
    await thread.work()
    await forget_principal(thread.store, ALICE.id, by="test")
    kept = [item.content for item in await thread.history() if isinstance(item, ResultItem)]
    assert kept == [{"text": "[deleted]", "by": "Alice"}]
    told = [event.data["result"] for event in await thread.events() if event.type == "action.result"]
    assert told == kept


async def test_words_of_others_are_no_answer(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?")
    bobs = await thread.say("I like green", BOB)
    await thread.work()
    assert (await thread.prompt()).outcome is None
    assert await thread.outcome(bobs) is None
    assert (await thread.click("option_1", BOB)).status is AnswerStatus.REFUSED
    await thread.cancel()
    await thread.work()


async def test_without_own_words_other_text_steers(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?", options=["Red"], allow_freeform=False)
    await thread.say("never mind")
    await thread.work()
    assert results(thread, 1)[0][1:] == (ResultStatus.REJECTED, "The person wrote a new message instead of answering.")


async def test_words_that_name_two_options_name_none(thread: Thread) -> None:
    await asking(thread, "ask_question", text="How many?", options=["3", "1"], allow_freeform=False)
    prompt = await thread.prompt()
    await thread.say("1")
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.IGNORED


async def test_a_question_that_nobody_answers_is_over_in_time(thread: Thread) -> None:
    await asking(thread, "ask_question", text="Which colour?")
    thread.clock.advance(timedelta(days=3))
    await thread.work()
    assert results(thread, 1)[0][1:] == (ResultStatus.EXPIRED, "Nobody answered in time.")


async def test_where_access_is_code_a_worker_decides_who_answers(thread: Thread) -> None:
    thread.access = lambda *_: Allow()
    await asking(thread, "ask_question", text="Which colour?", options=["Red", "Blue"])
    await thread.say("red")
    await thread.work()
    assert results(thread, 1)[0][2] == {"option": "Red", "by": "Alice"}


@pytest.mark.parametrize("arguments", [{"text": " "}, {"text": "Which?", "options": [""]}, {"options": ["Red"]}])
async def test_a_question_that_makes_no_sense_is_refused(thread: Thread, arguments: dict[str, object]) -> None:
    await asking(thread, "ask_question", **arguments)
    assert results(thread, 1)[0][1] is ResultStatus.FAILED


# ── sleep ──


async def test_a_sleep_holds_nothing_and_wakes_in_time(thread: Thread) -> None:
    await asking(thread, "sleep", minutes=2, seconds=1)
    run = await thread.store.run(thread.run_id)
    assert (run.phase, run.turn_id) == (Phase.WAITING, "turn_0")
    assert thread.channel.shown == []
    waiting = [event.data["on"] for event in await thread.events() if event.type == "turn.waiting"]
    assert waiting == ["time"]
    thread.later_s(120.9)
    assert await thread.work() == 0
    thread.hire("w2")
    thread.later_s(0.1)
    await thread.work()
    assert results(thread, 1) == [("sleep", ResultStatus.COMPLETED, "Slept 121 seconds.")]
    assert thread.channel.texts == ["done"]


async def test_a_new_word_wakes_it_and_a_queued_one_does_not(thread: Thread) -> None:
    await asking(thread, "sleep", seconds=60)
    await thread.say("later", policy=TurnPolicy.QUEUE)
    await thread.say("hello?", BOB)
    await thread.work()
    assert len(thread.model.requests) == 1
    thread.later_s(10)
    await thread.say("wake up")
    await thread.work()
    assert results(thread, 1) == [("sleep", ResultStatus.CANCELLED, "Woken by a new message after 10 seconds.")]


async def test_a_cancel_ends_it(thread: Thread) -> None:
    await asking(thread, "sleep", seconds=60)
    await thread.cancel()
    await thread.work()
    assert (await thread.store.run(thread.run_id)).turn_id is None
    assert ALICE.id in {event.data["author"]["id"] for event in await thread.events() if event.type == "message.received"}


async def test_it_wakes_while_a_sibling_waits_for_its_answer(thread: Thread) -> None:
    thread.tools = (*TOOLS, sleep)
    thread.hire("w1")
    thread.model.script = [calls(("sleep", {"seconds": 5}), ("refund", {"amount": 5}))]
    await thread.say("go")
    await thread.work()
    thread.later_s(5)
    await thread.work()
    assert len(await thread.store.open_prompts(thread.run_id)) == 1
    await thread.click("approve")
    await thread.work()
    assert {name: status for name, status, _ in results(thread, 1)} == {
        "sleep": ResultStatus.COMPLETED,
        "refund": ResultStatus.COMPLETED,
    }


async def test_no_time_at_all_is_a_wait_too(thread: Thread) -> None:
    await asking(thread, "sleep")
    assert results(thread, 1) == [("sleep", ResultStatus.COMPLETED, "Slept 0 seconds.")]


# ── no reply ──


async def test_a_turn_may_end_without_words(thread: Thread) -> None:
    thread.tools = (*TOOLS, no_reply)
    thread.hire("w1")
    thread.model.script = [calls(("no_reply", {}), text="(thinking aloud)")]
    receipt = await thread.say("thanks")
    await thread.work()
    assert thread.channel.shown == []
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert len(thread.model.requests) == 1
    assert (await thread.types())[-3:] == ["step.completed", "turn.completed", "session.waiting"]
    await thread.say("hi")
    await thread.work()
    assert thread.channel.texts == ["answer 2"]


async def test_beside_other_calls_it_ends_nothing(thread: Thread) -> None:
    thread.tools = (*TOOLS, no_reply)
    thread.hire("w1")
    thread.model.script = [calls(("no_reply", {}), ("look", {})), says("done")]
    await thread.say("go")
    await thread.work()
    assert thread.channel.texts == ["done"]
