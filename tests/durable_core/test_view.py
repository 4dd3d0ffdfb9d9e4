"""The view for people: plain JSON, cut short, without secrets, of whatever is stored."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.codec import Storable, encode
from durable_core.view import HIDDEN, ViewLimits, shown, view


def test_every_type_becomes_plain_json() -> None:
    value: dict[str, Storable] = {
        "amount": Decimal("12.50"),
        "at": datetime(2027, 1, 2, tzinfo=UTC),
        "day": date(2027, 1, 2),
        "id": UUID(int=1),
        "raw": b"12345",
        "pair": (1, None),
        "big": 2**70,
        "huge": 10**5_000,
        "ok": True,
        "rate": 1.5,
    }
    assert view(encode(value)) == {
        "amount": "12.50",
        "at": "2027-01-02T00:00:00+00:00",
        "day": "2027-01-02",
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "5 bytes",
        "pair": [1, None],
        "big": "1180591620717411303424",
        "huge": "a number of 16,610 bits",
        "ok": True,
        "rate": 1.5,
    }


def test_what_is_long_is_cut_and_says_by_how_much() -> None:
    limits = ViewLimits(text=5, items=2, depth=2)
    assert shown("hello", limits=limits) == "hello"
    assert shown("hello world", limits=limits) == "hello… (11 characters)"
    assert shown([1, 2, 3, 4], limits=limits) == [1, 2, "… 2 more"]
    assert shown({"a": 1, "b": 2, "c": 3}, limits=limits) == {"a": 1, "b": 2, "…": "1 more"}
    assert shown([[[1, 2]]], limits=limits) == [["… 2 items"]]
    assert shown([[{"a": 1}]], limits=limits) == [["… 1 fields"]]
    assert shown([[[], {}]], limits=limits) == [[[], {}]]


@pytest.mark.parametrize(
    "name", ["token", "access_token", "accessToken", "API_KEY", "apiKey", "Authorization", "set-cookie", "password"]
)
def test_what_a_name_calls_secret_is_hidden(name: str) -> None:
    assert shown({"call": {name: "s3cret-value"}}) == {"call": {name: HIDDEN}}
    assert shown({name: None}) == {name: None}


@pytest.mark.parametrize("name", ["input_tokens", "outputTokens", "tokenizer", "passenger", "author", "cookie_policy", "key"])
def test_a_harmless_name_is_shown(name: str) -> None:
    assert shown({name: 3}) == {name: 3}


def test_texts_go_through_redact_before_they_are_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("secret-value", "***")

    assert shown({"said": "the secret-value is"}, redact=redact) == {"said": "the *** is"}
    assert "secret" not in str(shown("0123secret-value and more", limits=ViewLimits(text=10), redact=redact))


def test_what_can_not_be_read_says_why() -> None:
    assert view(b"") is None
    assert view(b"\x07") == {"unreadable": "stored value has the unknown format 0x07"}


TEXT: Any = st.text(alphabet=st.characters(codec="utf-8"))
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_is_always_json(value: Any) -> None:
    seen = view(encode(value), limits=ViewLimits(text=3, items=2, depth=2))
    assert json.loads(json.dumps(seen)) == seen
