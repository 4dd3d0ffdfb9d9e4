"""A request to sign in on its two cards: the person's own, and the one that all others see, which holds nothing of theirs.

What lives here: drawing, from the prompt's row alone. What does not: cards of other requests (test_cards.py), platforms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.cards import card, form_of, prompt_body, settled_words, status_card
from bot.principal import Principal
from bot.turn.signing import Account, Origin, sign_in_body
from channels.events import Standing
from durable_core import codec
from durable_core.model import Prompt, PromptOutcome
from tests.bot.asked import prompt, settled

ALICE = Principal("console:alice", "Alice", Standing.MEMBER)
BODY = sign_in_body(
    "prm_1",
    Account(connection="hub", title="GitHub", scopes=("repo", "admin"), reason="missing"),
    Origin(requester=ALICE, agent="support", session_id="ses_1", turn_id="turn_0", channel="console", address="a"),
    asked_for=("open_issue", "read_issue"),
    action={"call_id": "0.0.0", "tool": "open_issue", "input": {"title": "x"}},
    expires_at=None,
)
ASKED: Prompt = prompt("", kind="sign-in", row={"body": codec.encode(BODY), "expires_at": None})
SECRETS = ("octocat", "repo", "admin", "open_issue", "title", "prm_1", "http")


def test_the_person_s_own_names_the_account_what_it_may_and_for_what() -> None:
    drawn = card([ASKED])
    assert drawn.question == "Connect GitHub to go on"
    assert drawn.fields == (("Account", "GitHub"), ("It may", "repo, admin"), ("Tool", "open_issue, read_issue"))
    assert [(button.label, button.value, button.form) for button in drawn.buttons] == [
        ("Connect GitHub", "prm_1:connect", None),
        ("Cancel", "prm_1:cancel", None),
    ]
    assert form_of(ASKED, "connect") is None
    assert form_of(ASKED, "cancel") is None


def test_the_others_see_who_is_waited_for_and_nothing_else() -> None:
    drawn = status_card(ASKED)
    assert drawn.question == "Paused: waiting for Alice to connect GitHub."
    assert drawn.open
    assert not any(secret in str(drawn) for secret in SECRETS)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (PromptOutcome.APPROVED, "Alice connected GitHub."),
        (PromptOutcome.DENIED, "Alice did not connect GitHub."),
        (PromptOutcome.EXPIRED, "Nobody connected GitHub in time."),
        (PromptOutcome.IGNORED, "GitHub was not connected: Alice wrote on."),
        (PromptOutcome.CANCELLED, "GitHub was not connected: it is not needed any more."),
    ],
)
def test_how_it_ended_is_said_on_both(outcome: PromptOutcome, words: str) -> None:
    done = settled(ASKED, outcome, by="Alice", note={"account": "octocat", "text": ""})
    assert settled_words(done, prompt_body(done)) == words
    drawn = status_card(done)
    assert (drawn.question, drawn.buttons, drawn.fields) == (words, (), ())
    assert drawn.outcome is not None
    assert drawn.outcome.text == words
    assert not any(secret in str(drawn) for secret in SECRETS)
    own = card([done])
    assert own.buttons == ()
    assert own.outcome is not None
    assert own.outcome.text == words


@pytest.mark.parametrize(
    ("via", "quoted", "said"), [("button", "not mine", ""), ("api", "not mine", ""), ("connect", "", "not mine")]
)
def test_only_a_person_s_words_are_quoted(via: str, quoted: str, said: str) -> None:
    done = replace(settled(ASKED, PromptOutcome.DENIED, by="Alice", note={"text": "not mine"}), settled_via=via)
    outcome = card([done]).outcome
    assert outcome is not None
    assert (outcome.note, outcome.result) == (quoted, said)


def test_nothing_in_a_title_can_pass_for_the_card_s_own() -> None:
    body: dict[str, Any] = sign_in_body(
        "prm_1",
        Account(connection="hub", title="Git\u202ebuH", reason="missing"),
        Origin(requester=ALICE, agent="a", session_id="s", turn_id=None, channel=None, address=None),
        asked_for=(),
        action=None,
        expires_at=None,
    )
    assert "\u202e" not in str(body)
