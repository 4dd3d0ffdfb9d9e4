"""The address codec: one spelling, whatever the parts hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import BadAddress
from channels.address import MAX_ADDRESS, AddressCodec

SLACK = AddressCodec("slack", 1, ("enterprise?", "team", "channel", "thread"))


def test_an_address_reads_as_written() -> None:
    assert SLACK.encode("", "T1", "C1", "171.5") == "slack:v1::T1:C1:171.5"
    assert SLACK.decode("slack:v1::T1:C1:171.5") == ("", "T1", "C1", "171.5")


def test_a_separator_in_a_part_is_escaped() -> None:
    address = SLACK.encode("E", "T:1", "C%3A", "a/b")
    assert address == "slack:v1:E:T%3A1:C%253A:a%2Fb"
    assert SLACK.decode(address) == ("E", "T:1", "C%3A", "a/b")


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "slack",
        "slack:v1",
        "slack:v1:",
        "slack:v1:::C1:1",  # an empty team
        "slack:v1:E:T:C",
        "slack:v1:E:T:C:1:2",
        "slack:v2:E:T:C:1",
        "slack:v01:E:T:C:1",
        "slack:1:E:T:C:1",
        "Slack:v1:E:T:C:1",
        "mail:v1:E:T:C:1",
        "slack:v1:E:T:C:%31",  # a needless escape
        "slack:v1:E:T:C:%3a1",  # lower-case hex
        "slack:v1:E:T:C:%",
        "slack:v1:E:T:C:%zz",
        "slack:v1:E:T:C:%ff",
        "slack:v1:E:T:C:%ED%A0%80",
        "slack:v1:E:T:C:a b",
        "slack:v1:E:T:C:\u00e9",
        "slack:v1:E:T:C:\ud800",
        "slack:v1:E:T:C:1\n",
        "slack:v1:E:T:C:" + "x" * MAX_ADDRESS,
    ],
)
def test_any_other_spelling_is_refused(address: str) -> None:
    with pytest.raises(BadAddress):
        SLACK.decode(address)


@pytest.mark.parametrize(
    "parts", [(), ("E", "T", "C"), ("E", "", "C", "1"), ("E", "T", "C", "\ud800"), ("E", "T", "C", "x" * 600)]
)
def test_parts_that_no_address_holds_are_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(BadAddress):
        SLACK.encode(*parts)


@given(st.tuples(*[st.text(min_size=1, max_size=12)] * 4))
def test_every_text_round_trips(parts: tuple[str, ...]) -> None:
    address = SLACK.encode(*parts)
    assert SLACK.decode(address) == parts
    assert address.isascii()


@given(st.one_of(st.text(max_size=600), st.text(":%v1ETCslack25aF", max_size=40).map(lambda tail: f"slack:v1:{tail}")))
def test_what_is_read_is_written_the_same(address: str) -> None:
    try:
        parts = SLACK.decode(address)
    except BadAddress:
        return
    assert SLACK.encode(*parts) == address
