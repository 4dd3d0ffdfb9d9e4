"""The rules of turns that runs work for, one by one; random threads have them too (test_machine.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.history import Call, ResultStatus
from bot.session.private import shown_to
from bot.turn import changes, children
from bot.turn.actions import Dismiss, Interrupt, Relay, Resolve, Rest, Stop
from bot.turn.change import Begun
from bot.turn.children import ENDED, STOP_MS, begun
from bot.turn.copies import Copy
from bot.turn.decide import decide
from bot.turn.state import FromChild, Pending, Purpose, Stage, TurnPolicy
from bot.turn.view import View
from tests.bot.turn.views import busy, cancel, message, pending

CHILD = "run_1"


def at_work(place: int = 0) -> Pending:
    call = Call(f"0.0.{place}", "deploy", arguments={})
    return begun(Pending(call=call, purpose=Purpose.WORKFLOW, stage=Stage.AT_WORK), CHILD)


def word(seq: int, kind: str = "progress", *, run_id: str = CHILD, call_id: str = "0.0.0", **told: object) -> FromChild:
    return FromChild(seq=seq, submission_id=f"sub_{seq}", run_id=run_id, call_id=call_id, kind=kind, told=told)  # type: ignore[arg-type]


def question(seq: int) -> FromChild:
    return word(seq, "asked", request={"request_id": "prm_1", "options": [], "requester": {"id": "console:alice"}})


def heard(view: View) -> View:
    """The view after the words were relayed."""
    turn = view.state.turn
    action = decide(view)
    assert turn is not None
    assert isinstance(action, Relay)
    return replace(view, state=children.relayed(view.state, turn, action).state, inbox=view.inbox[len(action.words) :])


def test_words_are_relayed_though_a_worker_died_in_the_middle_of_it() -> None:
    view = busy(question(1), waiting=(at_work(),))
    assert decide(view) == decide(replace(view, begun=True)) == Relay(words=(question(1),))


def test_words_wait_for_a_call_that_has_begun_and_no_longer() -> None:
    ready = replace(pending(1), stage=Stage.READY)
    view = busy(word(1), waiting=(at_work(), ready))
    assert isinstance(decide(view), Relay)
    action = decide(replace(view, begun=True))
    assert isinstance(action, Resolve)
    assert action.run == (ready,)


def test_a_run_that_the_run_of_a_call_started_speaks_for_the_call() -> None:
    action = decide(busy(word(1, run_id="run_nested"), waiting=(at_work(),)))
    assert action == Relay(words=(word(1, run_id="run_nested"),))


def test_what_nobody_waits_for_is_dismissed() -> None:
    stale = (word(1, call_id="9.9.9"), word(2, ENDED, run_id="run_2", ok=True, value=1))
    assert decide(busy(*stale, waiting=(at_work(),))) == Dismiss(inputs=stale)


def test_how_far_a_run_is_that_acts_with_somebodys_account_is_told_to_nobody_else() -> None:
    """Its card may stand where everybody reads: like its result, what it shows on its way is the person's."""
    waiting = replace(at_work(), prompt_id="prm_1", copies=(Copy(delivery_id="dlv_1"),))
    for words, posts, private in (((), 1, False), ((word(1, "account"),), 0, True)):
        view = busy(*words, word(2, text="found: the plan to sell"), waiting=(waiting,))
        action = decide(view)
        assert view.state.turn is not None
        assert isinstance(action, Relay)
        change = children.relayed(view.state, view.state.turn, action)
        [told] = [event.data for event in change.events if event.type == "action.partial"]
        assert len(change.posts) == posts
        assert ("private_to" in told) is private
        stranger = shown_to(told, "console:mallory")["text"]
        assert (stranger == "found: the plan to sell") is not private


@pytest.mark.parametrize("policy", TurnPolicy)
def test_words_for_which_a_run_is_stopped_are_taken_in_with_its_end(policy: TurnPolicy) -> None:
    view = heard(busy(question(1), waiting=(at_work(),)))
    said = message(2, "stop that", policy=policy)
    action = decide(replace(view, inbox=(said,)))
    assert isinstance(action, Interrupt)
    assert view.state.turn is not None
    change = children.interrupted(view.state, view.state.turn, action, now=view.now)
    assert change.cancels == (CHILD,)
    stopping = replace(view, state=change.state, inbox=(said,))
    assert decide(stopping) == Rest(timer_at=view.now + STOP_MS)
    over = (word(3, "resolved", request_id="prm_1", outcome="cancelled"), word(4, ENDED, ok=False, error={"code": "cancelled"}))
    stopping = heard(replace(stopping, inbox=(*over[:1], said, *over[1:])))
    action = decide(stopping)
    assert isinstance(action, Resolve)
    assert action.steer == (said,)
    assert [closed.status for closed in action.closed] == [ResultStatus.CANCELLED]


def test_a_run_that_does_not_stop_is_waited_for_no_longer_than_a_minute() -> None:
    view, said = busy(waiting=(at_work(),)), message(1)
    action = decide(replace(view, inbox=(said,)))
    assert isinstance(action, Interrupt)
    assert view.state.turn is not None
    state = children.interrupted(view.state, view.state.turn, action, now=view.now).state
    action = decide(replace(view, state=state, inbox=(said,), now=view.now + STOP_MS))
    assert isinstance(action, Resolve)
    assert (action.steer, [closed.status for closed in action.closed]) == ((said,), [ResultStatus.UNKNOWN])
    assert state.turn is not None
    told = changes.resolved(state, state.turn, action, results={}).events
    assert [event.type for event in told] == ["task.settled", "action.result", "message.received"]


def test_a_turn_that_is_cancelled_tells_its_runs_and_its_readers() -> None:
    view = heard(busy(question(1), waiting=(at_work(),)))
    action = decide(replace(view, inbox=(cancel(2),)))
    assert view.state.turn is not None
    assert isinstance(action, Stop)
    change = changes.stopped(view.state, view.state.turn, action, Begun())
    assert change.cancels == (CHILD,)
    types = [event.type for event in change.events]
    assert types == ["input.resolved", "task.settled", "action.result", "turn.cancelled", "session.waiting"]
