"""The rules of waiting for an account, row by row: what an answer, a time, a word or a lost card leads to.

What lives here: pure decisions. What does not: random threads (test_signing_machine.py), whole turns (tests/bot/session).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from bot.history import Call, ResultStatus
from bot.turn.actions import Answer, Remind, Reroute, Resolve, Rest, Stop
from bot.turn.change import NewPrompt
from bot.turn.copies import Copy
from bot.turn.decide import decide
from bot.turn.parts import asked, requests, requests_resolved
from bot.turn.posts import on_cards
from bot.turn.routes import put
from bot.turn.signing import Account, Origin, sign_in_body
from bot.turn.state import (
    Consent,
    Earlier,
    Pending,
    Purpose,
    Response,
    Stage,
    State,
    Undelivered,
    state_from_json,
    state_to_json,
)
from bot.turn.view import View, open_prompt
from channels.events import Place
from durable_core.model import AnswerPolicy, PromptOutcome
from tests.bot.people import ALICE, BOB
from tests.bot.turn.views import busy, cancel, message, response, turn

CUT_OFF = "It was cut off while it ran, and was not run again. Whether it took effect is not known."
CARDS = (Copy(delivery_id="status", status=True), Copy(delivery_id="private", private_to=ALICE.id))


def body(reason: Any = "missing", scopes: tuple[str, ...] = ("repo",)) -> dict[str, Any]:
    return sign_in_body(
        "prm_1",
        Account(connection="hub", title="GitHub", scopes=scopes, reason=reason),
        Origin(requester=ALICE, agent="support", session_id="ses_1", turn_id="turn_0", channel="console", address="a"),
        asked_for=("open_issue",),
        action={"call_id": "0.0.0", "tool": "open_issue", "input": {}},
        expires_at=5_000,
        remind_ms=700,
    )


def waits(place: int = 0, **more: Any) -> Pending:
    cards = {"copies": CARDS} if place == 0 else {}
    return Pending(
        call=Call(f"0.0.{place}", "open_issue", arguments={}),
        purpose=Purpose.SIGN_IN,
        stage=Stage.ASKED,
        prompt_id="prm_1",
        connection="hub",
        scopes=("repo",),
        signed_in=("hub",),
        **{**cards, **more},
    )


def view(*inbox: Any, waiting: tuple[Pending, ...] = (waits(0), waits(1)), now: int = 1000) -> View:
    open_ = {"prm_1": open_prompt(body(), expires_at=5_000, remind_at=2_000, policy=AnswerPolicy.REQUESTER)}
    return busy(*inbox, waiting=waiting, now=now, open=open_, asked_after={"prm_1": 0})


def texts(action: Any) -> list[str]:
    return [str(closed.content) for closed in action.closed]


def test_one_answer_releases_all_that_wait_for_it() -> None:
    action = decide(view(response(1, "prm_1")))
    assert isinstance(action, Resolve)
    assert [(one.call.call_id, one.stage, one.since) for one in action.run] == [
        ("0.0.0", Stage.READY, 1),
        ("0.0.1", Stage.READY, 1),
    ]
    assert len(action.consumed) == 1


def test_a_yes_from_before_is_kept_and_no_other_is_made_of_the_answer() -> None:
    consent = Consent(principal=BOB.id, name="Bob", at=1, edits={"a": 1}, binding="b")
    before = Earlier(purpose=Purpose.APPROVAL, prompt_id="prm_0", copies=(Copy(delivery_id="card"),), group="prm_0")
    action = decide(view(response(1, "prm_1"), waiting=(waits(consent=consent, earlier=before, binding="x"), waits(1))))
    assert isinstance(action, Resolve)
    assert [one.consent for one in action.run] == [consent, None]
    shown = on_cards(action.run[0])
    assert (shown.prompt_id, shown.group, shown.cards) == ("prm_0", "prm_0", before.copies)
    assert on_cards(action.run[1]).cards == ()


@pytest.mark.parametrize(
    ("outcome", "label", "note", "text"),
    [
        (PromptOutcome.DENIED, "Cancel", "", "Alice did not connect GitHub. The call did not run."),
        (PromptOutcome.DENIED, "Cancel", "no", 'Alice did not connect GitHub. Their note: "no" The call did not run.'),
        (PromptOutcome.DENIED, "", "It said no", "Alice did not connect GitHub. It said no. The call did not run."),
    ],
)
def test_a_no_closes_all_of_them(outcome: PromptOutcome, label: str, note: str, text: str) -> None:
    consent = Consent(principal=ALICE.id, name="Alice", at=1, note=note)
    said = Response(seq=1, submission_id="s", prompt_id="prm_1", outcome=outcome, consent=consent, label=label)
    action = decide(view(said))
    assert texts(action) == [text, text]
    assert {one.status for one in action.closed} == {ResultStatus.REJECTED}  # type: ignore[union-attr]


def test_too_late_it_is_settled_once_for_all_of_them() -> None:
    action = decide(view(now=5_000))
    assert isinstance(action, Resolve)
    assert action.settle == (("prm_1", PromptOutcome.EXPIRED),)
    assert texts(action) == ["Nobody connected GitHub in time. The call did not run."] * 2


def test_it_is_reminded_of_once() -> None:
    action = decide(view(now=2_000))
    assert isinstance(action, Remind)
    assert [one.call.call_id for one in action.prompts] == ["0.0.0"]


def test_words_of_the_person_s_own_end_it_once() -> None:
    action = decide(view(message(1, "something else")))
    assert isinstance(action, Resolve)
    assert action.settle == (("prm_1", PromptOutcome.IGNORED),)
    assert texts(action) == ["The person wrote a new message instead of connecting GitHub. The call did not run."] * 2


@pytest.mark.parametrize("text", ["connect", "connect github", " CONNECT ", "1", "cancel", "2"])
def test_the_name_of_an_option_is_no_word(text: str) -> None:
    action = decide(view(message(1, text)))
    assert isinstance(action, Answer)
    assert action.option_id in {"connect", "cancel"}


@pytest.mark.parametrize("text", ["connected", "approve", "declined", "yes", "3"])
def test_nothing_that_is_typed_says_connected(text: str) -> None:
    assert isinstance(decide(view(message(1, text))), Resolve)
    assert isinstance(decide(view(message(1, text, who=BOB))), Rest | type(decide(view(message(1, "hi", who=BOB)))))
    assert "connected" not in {id_ for id_, _ in view().open["prm_1"].options}


def test_cancel_withdraws_it_once() -> None:
    action = decide(view(cancel(1)))
    assert isinstance(action, Stop)
    assert action.settle == ("prm_1",)


def lost(delivery_id: str) -> Undelivered:
    return Undelivered(seq=1, submission_id="s", delivery_id=delivery_id, error="gone")


def test_a_private_card_that_is_lost_ends_all_of_them() -> None:
    action = decide(view(lost("private")))
    assert isinstance(action, Resolve)
    assert (action.settle, action.undelivered) == ((("prm_1", PromptOutcome.CANCELLED),), (lost("private"),))
    assert texts(action) == ["Alice could not be asked privately to connect GitHub: gone. The call did not run."] * 2


def test_a_status_that_is_lost_ends_nothing() -> None:
    action = decide(view(lost("status")))
    assert isinstance(action, Reroute)
    assert (action.to, action.failed) == (None, CARDS[0])


@pytest.mark.parametrize(("plain", "kind"), [(False, Reroute), (True, Resolve)])
def test_in_a_conversation_of_theirs_alone_it_is_tried_as_text_first(plain: bool, kind: type) -> None:
    card = Copy(delivery_id="card", plain=plain)
    action = decide(view(lost("card"), waiting=(waits(copies=(card,)),)))
    assert isinstance(action, kind)
    assert not isinstance(action, Reroute) or action.to == "text"


@pytest.mark.parametrize(
    ("begun", "before", "status", "text"),
    [
        (0, None, ResultStatus.EXPIRED, "Nobody connected GitHub in time. The call did not run."),
        (1, None, ResultStatus.EXPIRED, "Nobody connected GitHub in time. It was begun, and was not run again."),
        (1, Purpose.APPROVAL, ResultStatus.EXPIRED, "Nobody connected GitHub in time. It was begun, and was not run again."),
        (
            1,
            Purpose.RERUN,
            ResultStatus.UNKNOWN,
            f"Nobody connected GitHub in time. {CUT_OFF}",
        ),
    ],
)
def test_what_a_call_did_before_is_told(begun: int, before: Purpose | None, status: ResultStatus, text: str) -> None:
    earlier = None if before is None else Earlier(purpose=before, prompt_id="prm_0")
    action = decide(view(waiting=(waits(begun=begun, earlier=earlier),), now=5_000))
    assert isinstance(action, Resolve)
    assert [(one.status, one.content) for one in action.closed] == [(status, text)]


# ── what is put, and told ──


def new(**more: Any) -> NewPrompt:
    return NewPrompt(
        prompt_id="prm_1",
        delivery_id="dlv",
        call=Call("0.0.0", "open_issue", arguments={}),
        purpose=Purpose.SIGN_IN,
        body=body(),
        policy=AnswerPolicy.REQUESTER,
        expires_at=5_000,
        connection="hub",
        scopes=("repo",),
        signed_in=("hub",),
        **more,
    )


def test_the_person_alone_gets_the_card_and_the_others_a_status() -> None:
    ids = (f"dlv_{n}" for n in count())
    (prompt,) = put(turn(), (new(),), now=0, mint=lambda: next(ids))
    assert prompt.copies == (Copy(delivery_id="dlv_0", status=True), Copy(delivery_id="dlv", private_to=ALICE.id))
    assert prompt.remind_at == 700
    (alone,) = put(replace(turn(), place=Place("direct")), (new(),), now=0, mint=lambda: next(ids))
    assert alone.copies == (Copy(delivery_id="dlv"),)
    (nowhere,) = put(replace(turn(), channel=None, address=None), (new(),), now=0, mint=lambda: next(ids))
    assert nowhere.copies == ()


def test_two_sign_ins_share_no_card() -> None:
    ids = (f"dlv_{n}" for n in count())
    both = put(turn(), (new(), replace(new(), prompt_id="prm_2")), now=0, mint=lambda: next(ids))
    assert [one.group for one in both] == [None, None]


def test_readers_are_told_whose_account_is_waited_for_and_by_which_calls() -> None:
    drafts = requests(turn(), (new(),), (waits(1), replace(waits(2), prompt_id="other")))
    assert [draft.type for draft in drafts] == ["input.requested", "authorization.required"]
    assert drafts[1].data == {
        "turn_id": "turn_0",
        "call_ids": ["0.0.0", "0.0.1"],
        "request_id": "prm_1",
        "name": "hub",
        "title": "GitHub",
        "scopes": ["repo"],
        "principal": ALICE.id,
    }
    told = requests_resolved(turn(waits()), [("prm_1", PromptOutcome.EXPIRED)])
    assert [(draft.type, draft.data.get("outcome")) for draft in told] == [
        ("authorization.completed", "timed-out"),
        ("input.resolved", None),
    ]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("missing", "Connect GitHub to go on"),
        ("refused", "Connect GitHub again to go on"),
        ("scopes", "Allow more on GitHub to go on"),
    ],
)
def test_the_card_says_why(reason: str, text: str) -> None:
    assert body(reason)["text"] == text


def test_without_scopes_there_is_no_row_of_them() -> None:
    assert [name for name, _ in body(scopes=())["fields"]] == ["Account", "Tool"]


def test_a_turn_that_waits_is_read_as_it_was_written() -> None:
    consent = Consent(principal=BOB.id, name="Bob", at=1)
    before = Earlier(purpose=Purpose.APPROVAL, prompt_id="prm_0", copies=(Copy(delivery_id="c"),))
    state = State(turns=1, turn=turn(waits(consent=consent, earlier=before), asked(new(consent=consent, earlier=before))))
    assert state_from_json(state_to_json(state)) == state
