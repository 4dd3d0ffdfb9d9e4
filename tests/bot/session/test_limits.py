"""Limits: over them somebody is asked whether to go on, and where nobody can be asked the turn fails.

What lives here: session-limit prompts on a real store. What does not: the rule (tests/bot/turn/test_decide.py).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.turn.state import Limits, MessageBody, TurnPolicy, body_to_json
from durable_core import codec
from durable_core.ids import new_id
from durable_core.model import (
    Admission,
    AnswerStatus,
    CommandKind,
    NewRun,
    Outcome,
    Phase,
    PromptOutcome,
    Receipt,
    ToNew,
)
from tests.bot.session.actors import PLACE, calls, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread


async def over(thread: Thread, **limits: object) -> Receipt:
    """Have Alice's turn reach three model calls."""
    thread.limits = Limits(model_calls=3, **limits)  # type: ignore[arg-type]
    thread.hire("w1")
    thread.model.script = [calls(("look", {})) for _ in range(9)]
    receipt = await thread.say("go")
    await thread.work()
    return receipt


async def unreachable(thread: Thread, text: str) -> Receipt:
    """Begin a session that only an API reads: there is no place to ask in."""
    new = NewRun(
        run_id=new_id("ses"),
        name="support",
        creator=ALICE.id,
        header=codec.encode({"channel": "api"}),
        deployment="d",
        lifetime_ms=None,
    )
    body = MessageBody(text=text, author=ALICE, place=PLACE, turn_policy=TurnPolicy.STEER)
    receipt = await thread.store.admit(
        Admission(
            source="api",
            key=new_id("key"),
            digest=b"",
            on_conflict="refuse",
            submission_id=new_id("sub"),
            target=ToNew(new=new),
            kind=CommandKind.MESSAGE,
            body=codec.encode(body_to_json(body)),
            principal=ALICE.id,
        )
    )
    thread.run_id = receipt.run_id
    return receipt


async def test_over_its_model_calls_a_turn_asks_before_the_next(thread: Thread) -> None:
    receipt = await over(thread)
    assert (len(thread.model.requests), thread.log.names()) == (3, ["look"] * 3)
    prompt = await thread.prompt()
    assert (prompt.kind, prompt.call_id) == ("session-limit", None)
    (card,) = thread.channel.cards
    assert card.card.question == "The turn used its 3 model calls. Go on?"
    assert [button.label for button in card.card.buttons] == ["Continue", "Stop"]
    assert (await thread.store.run(thread.run_id)).phase is Phase.WAITING
    assert await thread.outcome(receipt) is None
    await thread.click("stop")
    await thread.work()


async def test_continue_allows_as_many_again_and_then_it_asks_again(thread: Thread) -> None:
    receipt = await over(thread)
    assert thread.settled(await thread.click("continue"))
    await thread.work()
    assert len(thread.model.requests) == 6
    thread.model.script = [says("done")]
    assert thread.settled(await thread.click("continue"))
    await thread.work()
    assert (len(thread.model.requests), thread.channel.texts[-1]) == (7, "done")
    assert await thread.outcome(receipt) is Outcome.COMPLETED


async def test_stop_ends_the_turn_and_the_next_has_its_own_count(thread: Thread) -> None:
    receipt = await over(thread)
    await thread.click("stop")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.ABORTED
    assert await thread.detail(receipt) == {"code": "model_call_limit", "message": "Alice chose to stop at the limit."}
    assert thread.channel.texts[-1] == "Stopped. Alice chose to stop at the limit."
    thread.model.script = [says("hello")]
    await thread.say("again")
    await thread.work()
    assert thread.channel.texts[-1] == "hello"


async def test_what_nobody_answers_stops(thread: Thread) -> None:
    receipt = await over(thread)
    prompt = await thread.prompt()
    thread.clock.advance(timedelta(days=3))
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.EXPIRED
    assert (await thread.detail(receipt))["code"] == "model_call_limit"
    assert (await thread.types())[-3:] == ["input.resolved", "turn.cancelled", "session.waiting"]
    assert thread.channel.cards[-1].card.buttons == ()


async def test_nobody_else_lets_it_go_on(thread: Thread) -> None:
    await over(thread)
    assert (await thread.click("continue", BOB)).status is AnswerStatus.REFUSED
    await thread.cancel()
    await thread.work()
    assert len(thread.model.requests) == 3


async def test_a_budget_owner_lets_it_go_on(thread: Thread) -> None:
    await over(thread, owners=(FARAH.id,))
    assert thread.channel.cards[-1].card.detail == "Alice or a budget owner may answer."
    assert (await thread.click("continue", BOB)).status is AnswerStatus.REFUSED
    thread.model.script = [says("done")]
    await thread.say("continue", FARAH)
    await thread.work()
    assert thread.channel.texts[-1] == "done"


async def test_a_new_word_of_the_requester_is_taken_in_and_the_question_put_again(thread: Thread) -> None:
    await over(thread)
    first = await thread.prompt()
    await thread.say("and hurry")
    await thread.work()
    second = await thread.prompt()
    assert second.prompt_id != first.prompt_id
    assert (await thread.store.prompt(first.prompt_id)).outcome is PromptOutcome.IGNORED
    assert len(thread.model.requests) == 3
    await thread.click("stop")
    await thread.work()


async def test_a_session_asks_over_its_input_tokens_and_continue_holds_for_its_next_turns(thread: Thread) -> None:
    thread.limits = Limits(input_tokens=100)
    thread.hire("w1")
    thread.model.script = [says("ok", tokens=100), says("more", tokens=50), says("and more", tokens=50)]
    for text in ("one", "two"):
        await thread.say(text)
        await thread.work()
    assert thread.channel.texts == ["ok"]
    assert thread.channel.cards[-1].card.question == "The session used its 100 input tokens. Go on?"
    await thread.click("continue")
    await thread.work()
    await thread.say("three")
    await thread.work()
    assert thread.channel.texts == ["ok", "more", "and more"]
    await thread.say("four")
    await thread.work()
    assert thread.channel.cards[-1].card.question == "The session used its 200 input tokens. Go on?"
    await thread.click("stop")
    await thread.work()


@pytest.mark.parametrize(
    ("limits", "code"),
    [(Limits(model_calls=0), "model_call_limit"), (Limits(input_tokens=0), "session_token_limit")],
)
async def test_where_nobody_can_be_asked_it_fails(thread: Thread, limits: Limits, code: str) -> None:
    thread.limits = limits
    thread.hire("w1")
    receipt = await unreachable(thread, "go")
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.FAILED
    assert (await thread.detail(receipt))["code"] == code
    assert thread.model.requests == []
