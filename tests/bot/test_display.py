"""Values as a person reads them: nothing hidden, nothing cut."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.display import quoted, reveal, show, within
from channels.slack.markdown import mrkdwn


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("日本 ünïcode", "日本 ünïcode"),
        (True, "true"),
        (None, "null"),
        (20, "20"),
        (1.5, "1.5"),
        (float("inf"), "Infinity"),
        (Decimal("1E+3"), "1000"),
        (Decimal("20.00"), "20.00"),
        (Decimal("1E+999999"), "1E+999999"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (Colour.RED, "red"),
        ({"a": [1, "é", None]}, '{"a": [1, "é", null]}'),
        (b"\xff\x00", "_wA="),
        ("a\tb\r\nc", "a\\tb\\r\\nc"),
        ("no\xa0break", "no\\u00a0break"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\ufe0f"),
        ("x\ufe0f", "x\\ufe0f"),
        ("\ud800", "\\ud800"),
        (" " * 16, " " * 16),
        (" " * 17, "[17 spaces]"),
        ("\u3164", "\\u3164"),
    ],
)
def test_a_value_is_shown_plainly(value: object, shown: str) -> None:
    assert show(value) == shown


def test_lines_may_stay_where_the_card_has_a_block_for_them() -> None:
    assert show("a\nb\u202e", lines=True) == "a\nb\\u202e"


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u3164\uffa0\u2800")))
def test_visible_text_is_left_alone_however_long(text: str) -> None:
    assert reveal(text) == text


@given(st.text())
def test_revealing_twice_changes_nothing(text: str) -> None:
    assert reveal(reveal(text)) == reveal(text)


def test_words_that_begin_a_sentence_stand_within_one_too() -> None:
    assert within("Whoever is on call") == "whoever is on call"
    assert within("A team lead") == "a team lead"
    assert [within(name) for name in ("Finance", "Anna", "", "The-Boss")] == ["Finance", "Anna", "", "The-Boss"]


@pytest.mark.parametrize(
    "written",
    [
        "[click](https://evil.example)",
        "https://evil.example/a?b=c",
        "HTTP://evil.example",
        "<https://evil.example>",
        "<https://evil.example|click>",
        "www.evil.example",
        "WWW.evil.example",
        "alice@evil.example",
        "`code` and ![image](https://evil.example/i.png)",
        "\\[click](https://evil.example)",
        "[click]: https://evil.example",
        "two\nlines https://evil.example",
    ],
)
def test_what_is_quoted_is_no_link_for_any_reader(written: str) -> None:
    shown = mrkdwn(quoted(written))
    assert not re.search(r"<[^>]*>|(?<!\u2060)://|www\.|(?<=\w)@(?=\w)|`(?!\u2060)", shown, re.IGNORECASE), shown
    assert not re.search(r"(?<!\\)[\[\]<>`]|(?<!\\):(?=//)|(?<=www)\.|(?<=\w)@(?=\w)", quoted(written), re.IGNORECASE)


def test_a_link_beside_what_is_quoted_stays_one() -> None:
    shown = mrkdwn(f"{quoted('see https://evil.example')}: [open it](https://ours.example/a_b)")
    assert re.findall(r"<([^>]*)>", shown) == ["https://ours.example/a_b|open it"]
