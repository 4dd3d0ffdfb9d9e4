"""What a session does next, row by row.

What lives here: the table of decisions. What does not: long stories (test_machine.py), doing (tests/bot/session/).
"""

from __future__ import annotations

import pytest

from bot.history import ResultStatus
from bot.turn.actions import Action, AskLimit, Dismiss, End, Fail, Open, Refuse, Resolve, Rest, Stop, Tell, Think
from bot.turn.decide import decide
from bot.turn.state import Input, Limits, Purpose, Stage, TurnPolicy
from bot.turn.view import OpenPrompt
from durable_core.model import PromptOutcome
from tests.bot.people import ALICE, BOB, NOBODY
from tests.bot.turn.views import busy, cancel, idle, message, pending, response


def seqs(action: Action) -> list[int]:
    match action:
        case Open(messages=messages) | Refuse(messages=messages):
            return [one.seq for one in messages]
        case Dismiss(inputs=inputs):
            return [one.seq for one in inputs]
        case Resolve(steer=steer):
            return [one.seq for one in steer]
        case _:
            return []


# ── idle ──


def test_with_nothing_it_rests() -> None:
    assert decide(idle()) == Rest()


def test_adjacent_messages_of_one_person_fold() -> None:
    assert seqs(decide(idle(message(1), message(2), message(3, who=BOB), message(4)))) == [1, 2]


def test_at_most_so_many_fold() -> None:
    view = idle(*(message(n) for n in range(1, 80)))
    assert len(seqs(decide(view))) == view.limits.folded_messages


def test_nobody_in_particular_never_folds() -> None:
    assert seqs(decide(idle(message(1, who=NOBODY), message(2, who=NOBODY)))) == [1]


def test_who_may_not_speak_is_refused_first() -> None:
    assert seqs(decide(idle(message(1), message(2, denied="no")))) == [2]


def test_answers_of_a_turn_that_is_over_are_dismissed() -> None:
    assert seqs(decide(idle(response(1, "prm_0"), message(2)))) == [1]


@pytest.mark.parametrize("turn_id", [None, "turn_7"])
def test_a_cancel_of_nothing_is_dismissed(turn_id: str | None) -> None:
    assert seqs(decide(idle(cancel(1, turn_id), message(2)))) == [1]


def test_a_cancel_after_a_message_leaves_its_turn_to_be_begun_and_stopped() -> None:
    view = idle(message(1), cancel(2), message(3))
    assert seqs(decide(view)) == [1]
    assert decide(busy(cancel(2), message(3))) == Stop(cancel=cancel(2))


def test_a_deadline_ends_an_idle_session() -> None:
    assert decide(idle(deadline_at=1000)) == End(reason="expired")
    assert decide(idle(deadline_at=1001)) == Rest()


def test_what_came_before_the_deadline_is_answered_first_and_what_came_after_is_not() -> None:
    assert seqs(decide(idle(message(999), message(1000), deadline_at=1000))) == [999]
    assert decide(idle(message(1000), deadline_at=1000)) == End(reason="expired")


# ── busy ──


def test_the_model_is_asked() -> None:
    assert decide(busy()) == Think()


@pytest.mark.parametrize("entry", [message(1, who=BOB), message(1, policy=TurnPolicy.QUEUE)])
def test_what_does_not_steer_waits(entry: Input) -> None:
    assert decide(busy(entry)) == Think()


def test_the_requesters_own_words_steer() -> None:
    assert seqs(decide(busy(message(1), message(2, who=BOB), message(3)))) == [1, 3]


def test_a_recorded_reply_is_finished_before_anything_steers() -> None:
    assert decide(busy(message(1), replied=True, begun=True)) == Think()


@pytest.mark.parametrize("entry", [message(1, who=BOB, denied="no"), response(1, "prm_9"), cancel(1, "turn_9")])
def test_what_is_aside_waits_while_a_step_has_begun(entry: Input) -> None:
    assert seqs(decide(busy(entry))) == [1]
    assert decide(busy(entry, replied=True, begun=True)) == Think()


def test_what_is_aside_does_not_cut_a_wait_short() -> None:
    assert decide(busy(message(1, who=BOB, denied="no"), begun=True, retry_at=2000)) == Rest(timer_at=2000)


def test_a_failed_step_waits_for_its_time_and_no_longer() -> None:
    assert decide(busy(retry_at=2000, begun=True)) == Rest(timer_at=2000)
    assert decide(busy(retry_at=1000, begun=True)) == Think()


def test_what_is_exhausted_fails_unless_it_is_cancelled() -> None:
    assert decide(busy(exhausted="died", begun=True)) == Fail(code="attempts_exhausted", message="died")
    assert isinstance(decide(busy(cancel(1), exhausted="died", begun=True)), Stop)


def test_limits_stop_the_next_model_call_but_not_the_one_that_was_paid() -> None:
    none = Limits(model_calls=0)
    action = decide(busy(limits=none))
    assert isinstance(action, AskLimit)
    assert action.code == "model_call_limit"
    assert decide(busy(limits=none, replied=True, begun=True)) == Think()
    action = decide(busy(limits=Limits(input_tokens=0)))
    assert isinstance(action, AskLimit)
    assert action.code == "session_token_limit"


# ── held ──


def test_while_held_it_rests_until_the_first_request_expires() -> None:
    waiting = (pending(0), pending(1))
    both = {"prm_0": OpenPrompt(expires_at=5000), "prm_1": OpenPrompt(expires_at=4000)}
    assert decide(busy(waiting=waiting, open=both)) == Rest(timer_at=4000)


def test_an_approval_releases_its_call_alone() -> None:
    action = decide(busy(response(1, "prm_1"), message(2), waiting=(pending(0), pending(1))))
    assert isinstance(action, Resolve)
    assert [(one.prompt_id, one.stage) for one in action.run] == [("prm_1", Stage.READY)]
    assert (action.closed, action.settle, action.steer) == ((), (), ())


@pytest.mark.parametrize(
    ("purpose", "status"), [(Purpose.APPROVAL, ResultStatus.REJECTED), (Purpose.RERUN, ResultStatus.UNKNOWN)]
)
def test_a_denial_closes_and_says_no_more_than_is_known(purpose: Purpose, status: ResultStatus) -> None:
    waiting = (pending(0, purpose=purpose),)
    action = decide(busy(response(1, "prm_0", PromptOutcome.DENIED), waiting=waiting))
    assert isinstance(action, Resolve)
    assert [closed.status for closed in action.closed] == [status]
    assert action.settle == ()


@pytest.mark.parametrize(("purpose", "status"), [(Purpose.APPROVAL, ResultStatus.EXPIRED), (Purpose.RERUN, ResultStatus.UNKNOWN)])
def test_what_nobody_answers_in_time_is_closed(purpose: Purpose, status: ResultStatus) -> None:
    action = decide(busy(waiting=(pending(0, purpose=purpose),), now=5000))
    assert isinstance(action, Resolve)
    assert [closed.status for closed in action.closed] == [status]
    assert action.settle == (("prm_0", PromptOutcome.EXPIRED),)


@pytest.mark.parametrize("policy", list(TurnPolicy))
def test_a_later_word_of_the_requester_is_an_answer(policy: TurnPolicy) -> None:
    action = decide(busy(message(9, policy=policy), waiting=(pending(0),), asked_after={"prm_0": 8}))
    assert isinstance(action, Resolve)
    assert (seqs(action), action.settle) == ([9], (("prm_0", PromptOutcome.IGNORED),))


def test_a_queued_word_from_before_the_question_is_none() -> None:
    view = busy(message(8, policy=TurnPolicy.QUEUE), waiting=(pending(0),), asked_after={"prm_0": 8})
    assert decide(view) == Rest(timer_at=5000)


def test_words_of_others_wait() -> None:
    bobs = message(1, who=BOB)
    assert decide(busy(bobs, waiting=(pending(0),))) == Tell(messages=(bobs,))


def test_a_guest_is_refused_while_a_turn_is_held() -> None:
    assert seqs(decide(busy(message(1, who=BOB, denied="no"), waiting=(pending(0),), begun=True))) == [1]


def test_an_end_cancels_only_what_nobody_answered() -> None:
    inbox = (response(1, "prm_0"), cancel(2))
    action = decide(busy(*inbox, waiting=(pending(0), pending(1))))
    assert action == Stop(cancel=cancel(2), settle=("prm_1",))
    action = decide(busy(response(1, "prm_0"), waiting=(pending(0), pending(1)), exhausted="died", begun=True))
    assert action == Fail(code="attempts_exhausted", message="died", settle=("prm_1",))


def test_nobody_in_particular_does_not_steer() -> None:
    view = busy(message(1, who=NOBODY))
    assert view.state.turn is not None
    assert view.state.turn.requester == ALICE
    assert decide(view) == Think()
