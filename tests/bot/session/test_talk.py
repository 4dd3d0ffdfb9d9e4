"""Talking: turns, history, who may speak, steering and queueing.

What lives here: turns without gated calls. What does not: approvals, cancels, failures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.access import Action, Allow, Decision, Deny
from bot.history import AssistantItem, UserItem
from bot.principal import Principal
from bot.turn.state import TurnPolicy
from channels.events import Place
from durable_core.model import Outcome
from durable_core.schema import upgrade
from tests.bot.session.actors import Held, says
from tests.bot.session.kit import ALICE, BOB, GUEST, Thread, open_thread, person


async def test_a_message_is_answered_once_and_told_in_order(thread: Thread) -> None:
    receipt = await thread.say("hi")
    await thread.work()
    assert thread.channel.texts == ["answer 1"]
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert await thread.types() == [
        "session.started",
        "turn.started",
        "message.received",
        "step.started",
        "message.completed",
        "step.completed",
        "turn.completed",
        "session.waiting",
    ]
    completed = (await thread.events())[4]
    assert completed.data == {
        "turn_id": "turn_0",
        "step_index": 0,
        "sequence": 0,
        "finish_reason": "stop",
        "message": "answer 1",
    }
    assert (await thread.submission(receipt)).turn_id == "turn_0"


async def test_each_turn_sees_the_ones_before(thread: Thread) -> None:
    for text in ("one", "two", "three"):
        await thread.say(text)
        await thread.work()
    assert [item.text for item in thread.model.requests[2].history if isinstance(item, UserItem)] == ["one", "two", "three"]
    assert [request.sequence for request in thread.model.requests] == [0, 1, 2]
    assert [event.data["turn_id"] for event in await thread.events() if event.type == "turn.started"] == [
        "turn_0",
        "turn_1",
        "turn_2",
    ]
    assert (await thread.types()).count("session.started") == 1


async def test_a_fresh_process_on_the_same_file_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    upgrade(f"sqlite:///{path}")
    first = await open_thread(path)
    await first.say("before")
    await first.work()
    await first.store.close()
    second = await open_thread(path, clock=first.clock, keys=first.keys)
    await second.say("after")
    await second.work()
    (request,) = second.model.requests
    assert [item.text for item in request.history if isinstance(item, UserItem | AssistantItem)] == [
        "before",
        "answer 1",
        "after",
    ]
    await second.check()
    await second.store.close()


async def test_an_empty_reply_ends_the_turn_without_a_message(thread: Thread) -> None:
    thread.model.script = [says("")]
    receipt = await thread.say("hi")
    await thread.work()
    assert thread.channel.shown == []
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert "message.completed" not in await thread.types()


async def test_messages_that_wait_together_are_one_turn_of_one_person(thread: Thread) -> None:
    receipts = [await thread.say(text, who) for text, who in (("a", ALICE), ("b", ALICE), ("c", BOB))]
    receipts.append(await thread.say("d", policy=TurnPolicy.QUEUE))
    await thread.work()
    assert [(await thread.submission(receipt)).turn_id for receipt in receipts] == ["turn_0", "turn_0", "turn_1", "turn_2"]
    assert len(thread.model.requests) == 3


async def test_messages_of_nobody_in_particular_never_fold(thread: Thread) -> None:
    thread.access = Shaky(0)
    thread.hire("w1")
    for text in ("a", "b"):
        await thread.say(text, person(""))
    await thread.work()
    assert len(thread.model.requests) == 2


async def test_a_correction_before_any_output_stops_the_call_and_joins_the_turn(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("never")), says("both")]
    first = await thread.say("red")
    work = thread.begin()
    await hold.reached.wait()
    second = await thread.say("no, blue")
    await work
    assert thread.channel.texts == ["both"]
    assert [item.text for item in thread.model.requests[1].history if isinstance(item, UserItem)] == ["red", "no, blue"]
    assert [(await thread.submission(one)).turn_id for one in (first, second)] == ["turn_0", "turn_0"]
    assert [await thread.outcome(one) for one in (first, second)] == [Outcome.COMPLETED] * 2
    steps = [event.data["step_index"] for event in await thread.events() if event.type == "step.started"]
    assert steps == [0, 1]


async def test_a_correction_after_output_began_waits_for_the_next_boundary(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("red it is"), shown="red it"), says("blue it is")]
    await thread.say("red")
    work = thread.begin()
    await hold.reached.wait()
    second = await thread.say("no, blue")
    hold.go.set()
    await work
    assert thread.channel.texts == ["red it is", "blue it is"]
    assert (await thread.submission(second)).turn_id == "turn_1"


async def test_a_guest_who_talks_into_it_does_not_delay_a_correction(thread: Thread) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("never"))]
    await thread.say("red")
    work = thread.begin()
    await hold.reached.wait()
    guest = await thread.say("pssst", GUEST)
    await thread.say("no, blue")
    await work
    assert [text for text in thread.channel.texts if text.startswith("answer")] == ["answer 2"]
    assert (await thread.submission(guest)).turn_id is None
    steps = [event.data["step_index"] for event in await thread.events() if event.type == "step.started"]
    assert steps == [0, 1]


@pytest.mark.parametrize(("who", "policy"), [(BOB, TurnPolicy.STEER), (ALICE, TurnPolicy.QUEUE)])
async def test_what_does_not_steer_waits_for_its_own_turn(thread: Thread, who: Principal, policy: TurnPolicy) -> None:
    hold = Held()
    thread.model.script = [hold.model(says("first"))]
    await thread.say("one")
    work = thread.begin()
    await hold.reached.wait()
    waiting = await thread.say("two", who, policy=policy)
    hold.go.set()
    await work
    assert thread.channel.texts[0] == "first"
    assert (await thread.submission(waiting)).turn_id == "turn_1"
    assert len(thread.model.requests) == 2


async def test_a_guest_is_refused_privately_and_costs_no_model_call(thread: Thread) -> None:
    receipt = await thread.say("hi", GUEST)
    await thread.work()
    assert thread.model.requests == []
    (shown,) = thread.channel.shown
    assert (shown.message.private_to, shown.message.notice) == ("gus", True)
    assert await thread.outcome(receipt) is Outcome.FAILED
    assert (await thread.detail(receipt))["code"] == "not_allowed"
    assert await thread.types() == []


async def test_a_refusal_of_nobody_in_particular_is_not_posted_for_all(thread: Thread) -> None:
    await thread.say("hi", Principal("", "", GUEST.standing, channel="fake"))
    await thread.work()
    assert thread.channel.shown == []


class Shaky:
    """An access policy that fails a number of times, then allows."""

    def __init__(self, failures: int, *, of: str = ALICE.id) -> None:
        self.failures = failures
        self.of = of
        self.asked = 0

    async def __call__(self, principal: Principal, place: Place, action: Action) -> Decision:
        if principal.id == self.of:
            self.asked += 1
            if self.asked <= self.failures:
                raise LookupError("the directory is down")
        return Allow() if principal.id != GUEST.id else Deny("guest")


async def test_a_look_up_of_the_author_that_fails_is_asked_again(thread: Thread) -> None:
    thread.access = shaky = Shaky(1)
    thread.hire("w1")
    receipt = await thread.say("hi")
    await thread.work()
    assert (thread.model.requests, await thread.outcome(receipt)) == ([], None)
    thread.later_s(1)
    await thread.work()
    assert (shaky.asked, await thread.outcome(receipt)) == (2, Outcome.COMPLETED)


async def test_a_look_up_that_goes_on_failing_refuses_in_the_end(thread: Thread) -> None:
    thread.access = Shaky(99)
    thread.hire("w1")
    receipt = await thread.say("hi")
    claims = 0
    for _ in range(10):
        claims += await thread.work()
        thread.later_s(60)
    assert claims == 4
    assert await thread.outcome(receipt) is Outcome.FAILED
    assert [shown.message.private_to for shown in thread.channel.shown] == ["alice"]
    assert thread.model.requests == []


async def test_a_failing_look_up_of_one_leaves_the_turn_of_another_alone(thread: Thread) -> None:
    thread.access = Shaky(1, of=BOB.id)
    thread.hire("w1")
    hold = Held()
    thread.model.script = [hold.model(says("for alice"))]
    await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    await thread.say("me too", BOB)
    hold.go.set()
    await work
    thread.later_s(1)
    await thread.work()
    assert thread.channel.texts == ["for alice", "answer 2"]
    assert len(thread.model.requests) == 2
