"""Cancelling: idle, in a model call, in tools, while held; what had begun is known afterwards.

What lives here: cancels by whoever may. What does not: a click that races a cancel (test_clicks.py).
"""

from __future__ import annotations

import pytest

from bot.history import Item, ResultItem, ResultStatus, UserItem
from durable_core.model import AnswerStatus, Outcome, PromptOutcome
from tests.bot.session.actors import Held, calls, says
from tests.bot.session.kit import ALICE, BOB, Thread
from tests.bot.session.test_approvals import ask


def statuses(history: list[Item]) -> dict[str, ResultStatus]:
    return {item.tool: item.status for item in history if isinstance(item, ResultItem)}


async def test_with_nothing_under_way_it_says_so(thread: Thread) -> None:
    await thread.say("hi")
    await thread.work()
    before = await thread.types()
    cancel = await thread.cancel()
    assert await thread.detail(cancel) == {"status": "no_active_turn"}
    assert await thread.work() == 0
    assert await thread.types() == before


async def test_in_a_model_call_the_call_is_stopped(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("never"))]
    receipt = await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    cancel = await thread.cancel("turn_0")
    await work
    assert thread.channel.texts == ["Stopped."]
    assert await thread.outcome(receipt) is Outcome.ABORTED
    assert await thread.detail(cancel) == {"status": "accepted"}
    assert (await thread.types())[-2:] == ["turn.cancelled", "session.waiting"]
    await thread.say("again")
    await thread.work()
    assert thread.channel.texts[1:] == ["answer 2"]


async def test_after_output_began_it_stops_too(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("never"), shown="some")]
    receipt = await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    await thread.cancel()
    await work
    assert await thread.outcome(receipt) is Outcome.ABORTED


async def test_a_read_is_stopped_at_once_and_a_write_finishes_first(thread: Thread) -> None:
    thread.log.holds = {"look": (look := Held()), "put": (put := Held())}
    thread.model.script = [calls(("look", {}), ("put", {}))]
    receipt = await thread.say("go")
    work = thread.begin()
    await look.reached.wait()
    await put.reached.wait()
    await thread.cancel()
    put.go.set()
    await work
    assert thread.log.ended == ["put"]
    assert statuses(await thread.history()) == {"look": ResultStatus.CANCELLED, "put": ResultStatus.COMPLETED}
    assert await thread.outcome(receipt) is Outcome.ABORTED
    assert len(thread.model.requests) == 1
    await thread.say("and?")
    await thread.work()
    assert thread.log.names().count("put") == 1


async def test_a_write_that_had_not_begun_when_the_cancel_came_is_known_not_to_have_run(thread: Thread) -> None:
    thread.log.holds = {"look": (look := Held())}
    hold = Held()
    thread.model.script = [hold.model(calls(("put", {})))]
    await thread.say("go")
    work = thread.begin()
    await hold.reached.wait()
    await thread.deaf()  # the cancel is heard of only with the start's record
    await thread.cancel()
    hold.go.set()
    await work
    assert thread.log.runs == []
    assert not look.reached.is_set()
    assert statuses(await thread.history()) == {"put": ResultStatus.CANCELLED}


async def test_while_held_the_card_is_retired_and_a_later_click_refused(thread: Thread) -> None:
    await ask(thread)
    prompt = await thread.prompt()
    receipt = await thread.cancel()
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.CANCELLED
    last = thread.channel.cards[-1]
    assert last.card.outcome is not None
    assert (last.edits, last.card.outcome.kind, last.card.buttons) == ("m0", "cancelled", ())
    assert (await thread.click("approve", prompt=prompt)).status is AnswerStatus.ALREADY_SETTLED
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    types = await thread.types()
    assert types[types.index("turn.waiting") + 1 :] == ["input.resolved", "action.result", "turn.cancelled", "session.waiting"]
    assert statuses(await thread.history()) == {"refund": ResultStatus.CANCELLED}


async def test_of_a_turn_that_has_not_begun_it_stops_that_turn(thread: Thread) -> None:
    receipt = await thread.say("oh no")
    cancel = await thread.cancel()
    later = await thread.say("something else", BOB)
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.ABORTED
    assert await thread.detail(cancel) == {"status": "accepted"}
    assert await thread.outcome(later) is Outcome.COMPLETED
    assert [item.text for item in thread.model.requests[0].history if isinstance(item, UserItem)] == ["oh no", "something else"]


async def test_one_that_comes_as_its_turn_ends_does_not_hit_the_next_persons(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("done"), shown="do")]
    await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    bobs = await thread.say("me next", BOB)
    await thread.deaf()  # the worker hears of the cancel only once the turn has ended
    cancel = await thread.cancel()
    hold.go.set()
    await work
    assert await thread.outcome(bobs) is Outcome.COMPLETED
    assert await thread.detail(cancel) == {"status": "no_active_turn"}


@pytest.mark.parametrize("times", [2])
async def test_two_are_one(thread: Thread, times: int) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("never"))]
    await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    receipts = [await thread.cancel() for _ in range(times)]
    await work
    assert [await thread.outcome(receipt) for receipt in receipts] == [Outcome.COMPLETED] * times
    assert thread.channel.texts == ["Stopped."]
    await thread.say("again", ALICE)
    await thread.work()
    assert thread.channel.texts[1:] == ["answer 2"]
