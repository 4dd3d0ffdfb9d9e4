"""Ids are unguessable, sortable, and an event id gives its position back or is refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.errors import BadEventId
from durable_core.ids import event_id, new_id, parse_event_id, request_id

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
RUN = "ses_01hzy3q8x4k9m2n5p7r0s1t3v6"
SEQS = st.integers(0, 16**10 - 1)


def test_a_new_id_is_its_prefix_and_a_lower_case_ulid() -> None:
    assert re.fullmatch(rf"ses_[0-7][{CROCKFORD}]{{25}}", new_id("ses"))


def test_new_ids_carry_the_time_they_were_made() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id("ses").removeprefix("ses_")
    after = time.time_ns() // 1_000_000
    at = 0
    for character in made[:10]:
        at = at * 32 + CROCKFORD.index(character)
    assert before <= at <= after


def test_new_ids_do_not_repeat() -> None:
    assert len({new_id("sub") for _ in range(2000)}) == 2000


@pytest.mark.parametrize("prefix", ["", "s", "Ses", "a_b", "ses\n", "x" * 9, "é" * 3])
def test_a_prefix_that_would_not_parse_back_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        new_id(prefix)


def test_a_request_id_is_160_bits_and_safe_in_a_url() -> None:
    assert re.fullmatch(r"prm_[a-z2-7]{32}", request_id())
    assert len({request_id() for _ in range(2000)}) == 2000


@given(SEQS)
def test_an_event_id_gives_its_run_and_position_back(seq: int) -> None:
    assert parse_event_id(event_id(RUN, seq)) == (RUN.removeprefix("ses_"), seq)


@given(SEQS, SEQS)
def test_event_ids_of_a_run_sort_by_position(one: int, other: int) -> None:
    assert (event_id(RUN, one) < event_id(RUN, other)) == (one < other)


@pytest.mark.parametrize(("run_id", "seq"), [(RUN, -1), (RUN, 16**10), ("ses_1", 0), (RUN + "\n", 0), (RUN.upper(), 0), ("", 0)])
def test_an_event_id_is_not_made_from_what_it_could_not_carry(run_id: str, seq: int) -> None:
    with pytest.raises(BadEventId):
        event_id(run_id, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt_",
        RUN,
        event_id(RUN, 255).upper(),
        event_id(RUN, 255).replace("ff", "FF"),
        event_id(RUN, 1) + "\n",
        " " + event_id(RUN, 1),
        event_id(RUN, 1) + "0",
        event_id(RUN, 1)[:-1],
        event_id(RUN, 1).replace("01hz", "81hz"),  # over 128 bits
        event_id(RUN, 1).replace("v6", "u6"),  # not in the alphabet
        event_id(RUN, 1)[:-1] + "\u0661",  # a digit, though not an ASCII one
        event_id(RUN, 1)[:-2] + "_1",  # int() would take it
    ],
)
def test_what_is_not_exactly_an_event_id_is_refused(text: str) -> None:
    with pytest.raises(BadEventId) as caught:
        parse_event_id(text)
    assert caught.value.text == text


@given(st.one_of(st.text(), st.from_regex(r"evt_[0-9a-z]{24,27}_[0-9a-f]{9,11}", fullmatch=True)))
def test_whatever_is_read_is_written_the_same_way(text: str) -> None:
    try:
        run, seq = parse_event_id(text)
    except BadEventId:
        return
    assert event_id(f"ses_{run}", seq) == text
