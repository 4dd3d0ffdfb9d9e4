"""The values that cross the contract, and how they read from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Button,
    Card,
    CardItem,
    CardOutcome,
    ChannelError,
    Form,
    FormField,
    MalformedPayload,
    Outbound,
    Verified,
    WebhookRequest,
)
from channels.cards import MAX_BUTTON_VALUE
from channels.errors import DeliveryFailed, RateLimited
from channels.http import read_json

FULL = Outbound(
    "text",
    Card(
        "Sure?",
        "who",
        fields=(("a", "1"),),
        evidence=("mail",),
        buttons=(Button("Yes", "y", style="primary"),),
        expires_at=5,
        outcome=CardOutcome("denied", "Denied by Bob", at=6, result="none"),
    ),
    notice=True,
    private_to="alice",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@pytest.mark.parametrize("message", [FULL, Outbound("text"), Outbound(card=Card("Sure?"))])
def test_a_message_survives_json(message: Outbound) -> None:
    assert Outbound.from_json(message.to_json()) == message


@given(
    st.sampled_from(["text", "card", "private_to", "question", "fields", "buttons", "evidence", "expires_at", "outcome"]),
    json_values,
)
def test_a_strange_message_is_malformed_or_read(name: str, value: object) -> None:
    data: dict[str, Any] = FULL.to_json()
    (data if name in data else data["card"])[name] = value
    try:
        message = Outbound.from_json(data)
    except MalformedPayload:
        return
    assert Outbound.from_json(message.to_json()) == message


@pytest.mark.parametrize("value", ["", "x" * (MAX_BUTTON_VALUE + 1)])
def test_a_button_value_is_neither_empty_nor_cut(value: str) -> None:
    with pytest.raises(ValueError, match="1 to 255"):
        Button("Yes", value)


def test_headers_compare_without_case_and_keep_repeats() -> None:
    request = WebhookRequest("POST", "/", headers=[("X-A", "1"), ("x-a", "2")])
    assert request.header("x-A") == "1"
    assert request.header_values("X-a") == ("1", "2")
    assert WebhookRequest("POST", "/", headers={"X-A": "1"}).header("x-b") is None


def test_a_verified_request_names_its_proof() -> None:
    with pytest.raises(ValueError, match="proof"):
        Verified(WebhookRequest("POST", "/"), "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"NaN",
        b'{"a":Infinity}',
        b'{"a":1,"a":2}',
        b"\xff",
        b'"\\ud800"',
        b'{"\\ud800":1}',
        b"[" * 100_000,
        b"9" * 10_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_strict_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedPayload):
        read_json(body)


@given(st.binary(max_size=200))
def test_reading_json_never_crashes(body: bytes) -> None:
    try:
        read_json(body)
    except MalformedPayload:
        return


def test_errors_say_whether_to_retry() -> None:
    assert DeliveryFailed("down", permanent=False).retryable
    assert not DeliveryFailed("gone", permanent=True).retryable
    assert RateLimited(3).retryable
    assert not ChannelError().retryable


# Cards

FORM = Form("Why?", "prm:deny", submit="Deny", fields=(FormField("note", "Note", value="x", multiline=True, required=True),))
WHOLE = Card(
    "2 calls wait",
    items=(
        CardItem("Run?", buttons=(Button("Yes", "y", description="at once"), Button("No, because", "n", form=FORM))),
        CardItem("Send?", outcome=CardOutcome("approved", "Approved", at=1, note="ok", changes=(("to", "bob"),))),
    ),
    buttons=(Button("Approve all", "prm:*approve"),),
    display="select",
    freeform=True,
    progress="1 of 2 approved",
)


def test_a_card_of_several_questions_survives_json() -> None:
    assert Card.from_json(WHOLE.to_json()) == WHOLE
    assert CardItem.from_json(WHOLE.items[0].to_json()) == WHOLE.items[0]


def test_what_a_plain_channel_offers_are_the_options_by_the_number_of_their_question() -> None:
    assert [(one.label, one.value) for one in WHOLE.choices] == [("1. Yes: at once", "y"), ("Approve all", "prm:*approve")]
    assert WHOLE.bare.choices == ()
    assert [item.buttons for item in WHOLE.bare.items] == [(), ()]
    assert [one.label for one in WHOLE.items[0].forms] == ["No, because"]
    assert replace(WHOLE, outcome=CardOutcome("mixed", "settled", at=1)).options == ()


PARTS: list[tuple[str | int, ...]] = [
    ("items", 0, "question"),
    ("items", 0, "buttons", 1, "form", "fields", 0, "value"),
    ("items", 0, "buttons", 1, "form", "fields", 0, "required"),
    ("items", 0, "buttons", 1, "form", "value"),
    ("items", 1, "outcome", "changes"),
    ("items", 1, "outcome", "kind"),
    ("display",),
    ("freeform",),
    ("items",),
]


@pytest.mark.parametrize("path", PARTS, ids=lambda path: ".".join(map(str, path)))
def test_a_part_that_is_missing_strange_or_unknown_is_malformed(path: tuple[str | int, ...]) -> None:
    for change in ("gone", "strange", "unknown"):
        data: Any = WHOLE.to_json()
        node = data
        for name in path[:-1]:
            node = node[name]
        if change == "gone":
            del node[path[-1]]
        elif change == "strange":
            node[path[-1]] = 7
        else:
            node["more"] = 1
        with pytest.raises(MalformedPayload):
            Card.from_json(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FormField("", "Note"),
        lambda: FormField("n" * 201, "Note"),
        lambda: FormField("note", "Note", value="x" * 3_001),
        lambda: Form("T", "v", submit="S", fields=()),
        lambda: Form("T", "", submit="S", fields=FORM.fields),
        lambda: Form("T", "v", submit="S", fields=FORM.fields * 2),
        lambda: Form("T", "v", submit="S", fields=tuple(FormField(f"{number}", "x") for number in range(21))),
        lambda: Card("?", items=(CardItem("?"),) * 51),
        lambda: Card("?", buttons=(Button("x", "v"),) * 201),
    ],
)
def test_more_than_a_platform_takes_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"at most|1 to|one name"):
        make()
