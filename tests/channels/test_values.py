"""The values that cross the contract, and how they read from outside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Button, Card, CardOutcome, ChannelError, MalformedPayload, Outbound, Verified, WebhookRequest
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
