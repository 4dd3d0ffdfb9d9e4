"""The small rules of waiting: whose words answer, where cards go, what an older state means.

What lives here: pure functions, row by row. What does not: whole decisions (test_decide.py), random threads (test_machine.py).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from bot.history import Call
from bot.turn.actions import Answer, Interrupt, Relay, Resolve
from bot.turn.change import NewPrompt
from bot.turn.children import relayed
from bot.turn.copies import Copy
from bot.turn.decide import decide
from bot.turn.held import option_of, typed
from bot.turn.routes import put
from bot.turn.state import (
    NO_CALL,
    FromChild,
    Input,
    Pending,
    Purpose,
    Response,
    Stage,
    State,
    state_from_json,
    state_to_json,
)
from bot.turn.view import OnExpiry, OpenPrompt, View, open_prompt
from channels.cards import MAX_ITEMS
from channels.events import Place
from durable_core.model import AnswerPolicy
from tests.bot.people import ALICE, BOB, NOBODY
from tests.bot.turn.views import busy, message, pending, response, turn

OPTIONS = (("approve", "Approve"), ("deny", "Deny it"))


def opened(**more: object) -> OpenPrompt:
    return OpenPrompt(options=OPTIONS, **more)  # type: ignore[arg-type]


def new(place: int, *, purpose: Purpose = Purpose.APPROVAL, **body: object) -> NewPrompt:
    return NewPrompt(
        prompt_id=f"prm_{place}",
        delivery_id=f"dlv_{place}",
        call=Call(f"0.0.{place}", "refund", arguments={}),
        purpose=purpose,
        body=body,  # type: ignore[arg-type]
        policy=AnswerPolicy.REQUESTER,
        expires_at=9_000,
    )


def placed(*prompts: NewPrompt, kind: str = "channel") -> tuple[NewPrompt, ...]:
    numbers = count(1)
    here = replace(turn(), place=Place(kind))  # type: ignore[arg-type]
    return put(here, prompts, now=1_000, mint=lambda: f"new_{next(numbers)}")


# ── what is typed ──


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("approve", "approve"),
        ("  APPROVE\n", "approve"),
        ("1", "approve"),
        ("2", "deny"),
        ("deny   it", "deny"),
        ("approve!", None),
        ("I approve", None),
        ("0", None),
        ("3", None),
        ("01", None),
        ("", None),
    ],
)
def test_a_text_names_an_option_or_none(text: str, option: str | None) -> None:
    assert option_of(opened().options, text) == option


def test_a_text_that_names_two_options_names_none() -> None:
    prompt = OpenPrompt(options=(("a", "2"), ("b", "1")))
    assert option_of(prompt.options, "2") is None
    assert option_of(prompt.options, "a") == "a"


def two(*inbox: Input, now: int = 1_000, expires_at: int = 5_000) -> View:
    """Two requests in one place; the first is answered, or has run out."""
    waiting = (pending(0), pending(1))
    clicked = any(isinstance(one, Response) for one in inbox)
    first = {"prm_0": opened(expires_at=expires_at)}
    return busy(
        *inbox,
        waiting=waiting,
        now=now,
        open={**({} if clicked else first), "prm_1": opened(expires_at=9_000)},
        answered=first if clicked else {},
        asked_after={"prm_0": 1, "prm_1": 1},
    )


@pytest.mark.parametrize(
    "view",
    [two(message(5, "1"), response(6, "prm_0")), two(message(5, "1"), now=6_000)],
    ids=["answered since", "ran out since"],
)
def test_what_was_typed_for_a_request_that_is_gone_by_now_does_not_answer_the_next(view: View) -> None:
    action = decide(view)
    assert isinstance(action, Answer)
    assert (action.prompt_id, action.option_id) == ("prm_0", "approve")


def test_what_is_typed_after_the_first_is_answered_is_for_the_next() -> None:
    view = two(response(5, "prm_0"), message(6, "1"))
    assert isinstance(decide(view), Resolve)
    left = busy(message(6, "1"), waiting=(pending(1),), open={"prm_1": opened(expires_at=9_000)}, asked_after={"prm_1": 1})
    action = decide(left)
    assert isinstance(action, Answer)
    assert action.prompt_id == "prm_1"


def test_a_step_that_has_begun_is_ended_before_such_an_answer() -> None:
    assert isinstance(decide(replace(two(message(5, "1"), response(6, "prm_0")), begun=True)), Resolve)


@pytest.mark.parametrize(
    ("by", "answerers", "answers"),
    [(None, None, True), ([BOB.id], [BOB.id], False), ([ALICE.id], [ALICE.id], True), ({"group": "release"}, None, False)],
)
def test_words_of_the_requester_answer_a_run_only_where_it_asks_them(by: Any, answerers: Any, answers: bool) -> None:
    request = {"request_id": "prm_9", "requester": {"id": ALICE.id}, "by": by, "answerers": answerers, "allow_freeform": True}
    told = FromChild(
        seq=3, submission_id="sub_3", run_id="wfr_1", call_id=pending(0).call.call_id, kind="asked", told={"request": request}
    )
    at_work = replace(pending(0), stage=Stage.AT_WORK, purpose=Purpose.WORKFLOW, prompt_id="", delivery_id=None, child="wfr_1")
    state = relayed(busy(waiting=(at_work,)).state, turn(at_work), Relay(words=(told,))).state
    action = decide(View(state=state, inbox=(message(5, "stop it please"),), now=1_000))
    assert isinstance(action, Answer if answers else Interrupt)


@pytest.mark.parametrize(("seq", "answers"), [(7, False), (8, False), (9, True)])
def test_only_what_is_later_than_the_question_answers_it(seq: int, answers: bool) -> None:
    view = busy(open={"prm_0": opened()}, asked_after={"prm_0": 8})
    assert (typed(view, turn(), (pending(0),), message(seq, "approve")) is not None) is answers


def test_the_first_open_one_of_the_place_is_answered_and_no_other() -> None:
    first, second = pending(0), pending(1)
    view = busy(open={"prm_0": opened(), "prm_1": OpenPrompt(options=(("go", "Go"),))}, asked_after={"prm_0": 1, "prm_1": 1})
    text = message(9, "go")
    assert typed(view, turn(), (first, second), text) is None
    elsewhere = replace(first, copies=(Copy(delivery_id="d", channel="console", address="b"),))
    answer = typed(view, turn(), (elsewhere, second), text)
    assert answer == Answer(message=text, prompt_id="prm_1", option_id="go")


@pytest.mark.parametrize(("who", "answers"), [(ALICE, True), (BOB, False), (NOBODY, False)])
def test_own_words_answer_only_of_those_who_are_asked(who: object, answers: bool) -> None:
    view = busy(open={"prm_0": opened(speakers=(ALICE.id,))}, asked_after={"prm_0": 1})
    found = typed(view, turn(), (pending(0),), message(9, "well, maybe", who=who))  # type: ignore[arg-type]
    assert (found is not None and found.option_id == "") is answers


@pytest.mark.parametrize(
    ("policy", "answerers", "speakers"),
    [
        (AnswerPolicy.REQUESTER, (), ("a",)),
        (AnswerPolicy.LISTED, ("b", "c"), ("b", "c")),
        (AnswerPolicy.FUNCTION, (), ("a",)),
    ],
)
def test_who_may_answer_in_their_own_words(policy: AnswerPolicy, answerers: tuple[str, ...], speakers: tuple[str, ...]) -> None:
    body = {"requester": {"id": "a"}, "allow_freeform": True}
    read = open_prompt(body, expires_at=None, remind_at=None, policy=policy, answerers=answerers)
    assert read.speakers == speakers
    assert open_prompt({"requester": {"id": "a"}}, expires_at=None, remind_at=None, policy=policy).speakers == ()


def test_a_body_of_an_older_version_denies_and_has_no_levels() -> None:
    read = open_prompt({}, expires_at=5, remind_at=None, policy=AnswerPolicy.REQUESTER)
    assert (read.on_expiry, read.next_level, read.expires_at, read.remind_at) == (OnExpiry.DENY, None, 5, None)


def test_each_level_has_its_time_and_the_last_is_the_last() -> None:
    body = {"on_expiry": "escalate", "levels": [{"waiting_for": "B"}, {"waiting_for": "C"}], "level_ms": [10, 20]}
    read = open_prompt(body, expires_at=None, remind_at=None, policy=AnswerPolicy.LISTED)
    seen = []
    while (level := read.next_level) is not None:
        seen.append((level.waiting_for, read.next_ms))
        read = replace(read, level=read.level + 1)
    assert seen == [("B", 10), ("C", 20)]


# ── where cards go ──


def test_approvals_with_one_route_share_the_first_ones_card() -> None:
    one, question, two = placed(new(0), new(1, purpose=Purpose.QUESTION), new(2))
    assert (one.group, question.group, two.group) == ("prm_0", None, "prm_0")
    assert one.copies == two.copies == (Copy(delivery_id="dlv_0"),)
    assert question.copies == (Copy(delivery_id="dlv_1"),)
    assert one.body["group"] == two.body["group"] == {"leader": "prm_0", "size": 2}


@pytest.mark.parametrize(
    "other",
    [
        {"route": {"to": "address", "channel": "console", "address": "b"}},
        {"on_expiry": "cancel"},
        {"levels": [{"waiting_for": "B"}], "on_expiry": "escalate"},
    ],
)
def test_what_goes_elsewhere_or_ends_otherwise_has_its_own(other: dict[str, object]) -> None:
    one, two = placed(new(0), new(1, **other))  # type: ignore[arg-type]
    assert (one.group, two.group) == (None, None)


def test_a_route_to_the_place_itself_is_no_other_place() -> None:
    (one,) = placed(new(0, route={"to": "address", "channel": "console", "address": "a"}))
    assert one.copies == (Copy(delivery_id="dlv_0"),)


def test_in_a_direct_conversation_all_is_private() -> None:
    (one,) = placed(new(0, route={"to": "direct"}), kind="direct")
    assert one.copies == (Copy(delivery_id="dlv_0"),)


def test_where_those_who_are_asked_are_not_known_one_by_one_the_thread_has_it() -> None:
    prompt = replace(new(0, route={"to": "direct"}, waiting_for="Finance"), policy=AnswerPolicy.FUNCTION)
    (one,) = placed(prompt)
    assert one.copies == (Copy(delivery_id="dlv_0"),)


def test_people_of_another_channel_get_no_private_card_here() -> None:
    prompt = replace(new(0, route={"to": "direct"}), policy=AnswerPolicy.LISTED, answerers=("slack:U1", BOB.id))
    (one,) = placed(prompt)
    assert [copy.private_to for copy in one.copies] == [BOB.id]


def test_more_than_a_card_holds_are_on_several() -> None:
    prompts = placed(*(new(place) for place in range(MAX_ITEMS + 2)))
    leaders = [one.group for one in prompts]
    assert leaders == ["prm_0"] * MAX_ITEMS + [f"prm_{MAX_ITEMS}"] * 2
    assert len({one.copies for one in prompts}) == 2
    *_, alone = placed(*(new(place) for place in range(MAX_ITEMS + 1)))
    assert alone.group is None


@pytest.mark.parametrize(("remind_ms", "remind_at"), [(None, None), (0, None), (500, 1_500), (8_000, None), (9_000, None)])
def test_nobody_is_reminded_of_what_is_over_by_then(remind_ms: int | None, remind_at: int | None) -> None:
    (one,) = placed(new(0, remind_ms=remind_ms))
    assert one.remind_at == remind_at


# ── states ──


def test_a_state_reads_as_it_was_written() -> None:
    asleep = Pending(call=NO_CALL, purpose=Purpose.SLEEP, stage=Stage.ASLEEP, until=5, since=1)
    state = State(turn=replace(turn(pending(0), asleep), told=("b",), extra_calls=3), extra_tokens=7)
    assert state_from_json(state_to_json(state)) == state


def test_a_card_of_an_older_state_is_known() -> None:
    stored = state_to_json(State(turn=turn(pending(0))))
    waiting = stored["turn"]["pending"][0]  # type: ignore[index, call-overload]
    for name in ("copies", "group", "until", "since", "limit", "binding"):
        del waiting[name]  # type: ignore[union-attr, arg-type]
    for name in ("told", "extra_calls", "card_results"):
        del stored["turn"][name]  # type: ignore[union-attr, arg-type]
    del stored["extra_tokens"]
    read = state_from_json(stored).turn
    assert read is not None
    assert read.pending[0].cards == (Copy(delivery_id="dlv_0"),)
