"""Prompts as cards: what is asked, by which buttons and forms it is answered, and how it ended, from the rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.buttons import Pressed, all_value, button_value, form_value, read_button
from bot.cards import card, form_of, settled_words
from channels.cards import Card
from durable_core.model import Prompt, PromptOutcome
from tests.bot.asked import AT, option, prompt, settled, vote

EDIT = [
    {"name": "amount", "label": "amount", "value": '"140.00"', "multiline": False},
    {"name": "days", "label": "days", "value": "3", "multiline": False},
    {"name": "reason", "label": "reason", "value": '"line one\\nline two"', "multiline": True},
]
REFUND = prompt("Refund 140 for ch_1?", note=True, edit=EDIT)


def of_group(text: str, number: int, **row: Any) -> Prompt:
    return prompt(text, f"prm_{number}", row={"group": "prm_1", "call_id": f"0.0.{number}", **row})


def labels(drawn: Card) -> list[str]:
    return [button.label for button in drawn.buttons]


# ── open ──


def test_an_old_prompt_has_its_options_and_nothing_more() -> None:
    drawn = card([prompt("Refund 140 for ch_1?")])
    assert labels(drawn) == ["Approve", "Deny"]
    assert [button.value for button in drawn.buttons] == ["prm_1:approve", "prm_1:deny"]
    assert (drawn.items, drawn.progress, drawn.display, drawn.freeform) == ((), "", "buttons", False)
    assert Card.from_json(drawn.to_json()) == drawn


def test_what_may_be_changed_is_a_form_with_what_stands_there() -> None:
    drawn = card([REFUND])
    assert labels(drawn) == ["Approve", "Change first", "Deny", "Deny with a note"]
    form = form_of(REFUND, "approve")
    assert form is not None
    assert (form.value, form.submit) == ("prm_1:approve", "Approve with changes")
    assert [(field.name, field.value, field.multiline) for field in form.fields] == [
        ("edit.amount", "140.00", False),
        ("edit.days", "3", False),
        ("edit.reason", "line one\nline two", True),
    ]
    denial = form_of(REFUND, "deny")
    assert denial is not None
    assert [(field.name, field.required) for field in denial.fields] == [("note", False)]
    assert form_of(REFUND, "text") is None


def test_what_is_masked_or_too_long_for_a_form_is_not_in_it() -> None:
    long = {"name": "body", "label": "body", "value": f'"{"x" * 3_001}"', "multiline": True}
    asked = prompt("Send?", edit=[*EDIT, long], masked=["amount"])
    form = form_of(asked, "approve")
    assert form is not None
    assert [field.name for field in form.fields] == ["edit.days", "edit.reason"]
    assert labels(card([prompt("Send?", edit=[long])])) == ["Approve", "Deny"]


def test_many_options_are_a_list_with_their_descriptions_and_words_of_ones_own() -> None:
    options = [option(f"r{number}", f"Region {number}", description="near") for number in range(6)]
    asked = prompt("Which?", kind="question", options=options, allow_freeform=True, action=None)
    drawn = card([asked])
    assert (drawn.display, drawn.freeform) == ("select", True)
    assert [button.description for button in drawn.options] == ["near"] * 6
    form = form_of(asked, "text")
    assert form is not None
    assert (form.value, [(field.name, field.required) for field in form.fields]) == ("prm_1:", [("text", True)])
    assert card([prompt("Which?", options=options[:5])]).display == "buttons"
    assert card([prompt("Which?", options=options[:2], display="select")]).display == "select"


def test_options_that_no_card_holds_are_told_of() -> None:
    options = [option(f"r{number}", f"Region {number}") for number in range(300)]
    drawn = card([prompt("Which?", options=[*options, option("x" * 300, "Far")], detail="Alice may answer.")])
    assert len(drawn.buttons) == 197
    assert drawn.detail == "Alice may answer. 104 more options are not shown here."
    assert Card.from_json(drawn.to_json()) == drawn


def test_progress_names_who_has_approved() -> None:
    asked = replace(REFUND, quorum=2)
    assert card([asked]).progress == "0 of 2 approved"
    assert card([replace(asked, votes=(vote("Alice"),))]).progress == "1 of 2 approved: Alice"


def test_one_that_was_handed_on_says_who_may_answer_now() -> None:
    assert card([replace(REFUND, level=1, asked="The board")]).detail == (
        "The board may answer, as nobody did in time. It runs once, as Alice."
    )
    own = prompt("Refund?", detail="Ask nicely.", row={"level": 1, "asked": "The board"})
    assert card([own]).detail == "The board may answer, as nobody did in time. Ask nicely."


# ── several ──


def test_prompts_that_share_a_card_are_its_items_with_buttons_for_all() -> None:
    three = [of_group(f"Deploy {number}?", number) for number in (1, 2, 3)]
    drawn = card(three)
    assert drawn.question == "3 calls wait for an answer"
    assert [item.question for item in drawn.items] == ["Deploy 1?", "Deploy 2?", "Deploy 3?"]
    assert [button.value for button in drawn.buttons] == ["prm_1:*approve", "prm_1:*deny"]
    assert drawn.outcome is None
    one_left = card([settled(three[0], PromptOutcome.APPROVED), settled(three[1], PromptOutcome.DENIED), three[2]])
    assert one_left.question == "1 of 3 calls still waits for an answer"
    assert one_left.buttons == ()
    assert [item.open for item in one_left.items] == [False, False, True]


def test_a_card_whose_items_are_all_settled_says_what_became_of_them() -> None:
    two = [of_group("Deploy 1?", 1), of_group("Deploy 2?", 2)]
    drawn = card([settled(two[0], PromptOutcome.APPROVED), settled(two[1], PromptOutcome.APPROVED, at=AT + 5)])
    assert drawn.outcome is not None
    assert (drawn.outcome.kind, drawn.outcome.text, drawn.outcome.at) == ("approved", "Approved by Farah", AT + 5)
    mixed = card([settled(two[0], PromptOutcome.APPROVED), settled(two[1], PromptOutcome.EXPIRED)])
    assert mixed.outcome is not None
    assert (mixed.outcome.kind, mixed.outcome.text) == ("mixed", "1 approved, 1 expired")
    assert mixed.question == "2 calls, all of them settled"


def test_questions_and_reruns_are_never_answered_all_at_once() -> None:
    two = [of_group("Run again?", 1, kind="rerun"), of_group("Deploy?", 2)]
    assert card(two).buttons == ()


def test_what_came_of_each_call_stands_at_its_item() -> None:
    two = [settled(of_group(f"Deploy {number}?", number), PromptOutcome.APPROVED) for number in (1, 2)]
    drawn = card(two, results={"prm_2": "done"})
    assert [item.outcome.result for item in drawn.items if item.outcome] == ["", "done"]


# ── settled ──

WORDS: list[tuple[Prompt, str, str]] = [
    (settled(REFUND, PromptOutcome.APPROVED), "approved", "Approved by Farah"),
    (settled(REFUND, PromptOutcome.APPROVED, note={"edits": {"amount": "20"}}), "approved", "Approved by Farah with changes"),
    (
        settled(replace(REFUND, quorum=2, votes=(vote("Alice"), vote("Farah"))), PromptOutcome.APPROVED),
        "approved",
        "Approved by Alice and Farah",
    ),
    (settled(REFUND, PromptOutcome.DENIED, note={"text": "too dear"}), "denied", "Denied by Farah"),
    (settled(REFUND, PromptOutcome.EXPIRED), "expired", "Nobody answered in time. It did not run."),
    (settled(prompt("Which?", action=None), PromptOutcome.EXPIRED), "expired", "Nobody answered in time."),
    (settled(REFUND, PromptOutcome.CANCELLED), "cancelled", "No longer needed: the turn was stopped."),
    (settled(REFUND, PromptOutcome.IGNORED), "ignored", "No longer needed: Alice wrote on."),
    (settled(REFUND, PromptOutcome.APPROVED, by="Olga", note={"reason": "fire"}), "overridden", "Approved by Olga by override"),
    (settled(REFUND, PromptOutcome.DENIED, by="Olga", note={"reason": "fire"}), "overridden", "Denied by Olga by override"),
    (
        settled(prompt("Which?", options=[option("a", "Near")]), PromptOutcome.ANSWERED, option_id="a"),
        "answered",
        "Answered by Farah: Near",
    ),
    (settled(prompt("Which?", options=[]), PromptOutcome.ANSWERED, note={"text": "Near"}), "answered", "Answered by Farah"),
    (settled(prompt("?", kind="rerun"), PromptOutcome.APPROVED), "approved", "Farah chose to run it again"),
    (settled(prompt("?", kind="rerun"), PromptOutcome.DENIED), "denied", "Farah chose not to run it again"),
]


@pytest.mark.parametrize(("asked", "kind", "words"), WORDS, ids=[words for _, _, words in WORDS])
def test_every_end_is_said_and_asks_nothing_more(asked: Prompt, kind: str, words: str) -> None:
    drawn = card([asked])
    assert drawn.outcome is not None
    assert (drawn.outcome.kind, drawn.outcome.text) == (kind, words)
    assert (drawn.buttons, drawn.freeform, drawn.expires_at, drawn.progress) == ((), False, None, "")
    assert form_of(asked, "approve") is None or asked.outcome is not None


def test_a_note_is_quoted_and_changes_are_listed_with_nothing_unseen() -> None:
    denied = card([settled(REFUND, PromptOutcome.DENIED, note={"text": "no\u202e"})]).outcome
    assert denied is not None
    assert denied.note == "no\\u202e"
    changed = card([settled(REFUND, PromptOutcome.APPROVED, note={"edits": {"amount": "20", "tags": ["a", "b"]}})]).outcome
    assert changed is not None
    assert changed.changes == (("amount", "20"), ("tags", '["a", "b"]'))


def test_who_is_unknown_is_somebody() -> None:
    nameless = replace(settled(REFUND, PromptOutcome.APPROVED), settled_by=None, settled_name=None)
    assert settled_words(nameless, {"options": [], "requester": {"name": "Alice"}}) == "Approved by somebody"


# ── values of buttons ──


def test_a_buttons_value_is_read_as_it_was_written() -> None:
    assert read_button(button_value("prm_1", "approve")) == Pressed("prm_1", "approve")
    assert read_button(button_value("prm_1", "")) == Pressed("prm_1", "")
    for option_id in ("*", "*approve", "?", "?text", "=", "==", "a:b"):
        assert read_button(button_value("prm_1", option_id)) == Pressed("prm_1", option_id), (
            "an author's own id is no mark of ours"
        )
    assert read_button(all_value("prm_1", "deny")) == Pressed("prm_1", "deny", for_all=True)
    assert read_button(form_value("prm_1", "text")) == Pressed("prm_1", "text", opens_form=True)


@pytest.mark.parametrize("value", ["", ":", ":approve", "prm_1", "prm_1:*", "prm_1:?"])
def test_a_value_that_is_not_ours_is_none(value: str) -> None:
    assert read_button(value) is None
