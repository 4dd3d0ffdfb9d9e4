"""Grants in a session's state: given, taken, ended; and none of it lost or kept too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.turn.state import GRANT_MS, Grant, State, state_from_json, state_to_json, with_grants

NOW = 10 * GRANT_MS


def grant(key: str, at: int = NOW) -> Grant:
    return Grant(key=key, until=at + GRANT_MS)


@pytest.mark.parametrize(
    ("held", "given_", "taken", "left"),
    [
        ([], [grant("a")], [], [grant("a")]),
        ([grant("a", NOW - 5)], [grant("a")], [], [grant("a")]),
        ([], [grant("a"), grant("a", NOW - 5)], [], [grant("a")]),
        ([grant("a")], [], ["a"], []),
        ([grant("a")], [], ["b"], [grant("a")]),
        ([], [grant("a")], ["a"], []),
        ([grant("a")], [grant("b")], ["a"], [grant("b")]),
        ([grant("old", NOW - GRANT_MS)], [grant("b")], [], [grant("b")]),
        ([grant("old", NOW - GRANT_MS + 1)], [grant("b")], [], [grant("old", NOW - GRANT_MS + 1), grant("b")]),
    ],
)
def test_what_is_left(held: list[Grant], given_: list[Grant], taken: list[str], left: list[Grant]) -> None:
    assert list(with_grants(State(grants=tuple(held)), given_, taken).grants) == left


grants = st.lists(st.builds(grant, st.sampled_from("abc"), st.integers(NOW - 2 * GRANT_MS, NOW)), max_size=4)


@given(grants, grants, st.lists(st.sampled_from("abc"), max_size=2))
def test_a_no_always_takes_and_nothing_that_counts_is_lost(held: list[Grant], given_: list[Grant], taken: list[str]) -> None:
    before = State(grants=tuple(held))
    after = with_grants(before, given_, taken)
    assert not {one.key for one in after.grants} & set(taken)
    assert set(after.grants) <= {*held, *given_}
    counting = {one.key for one in (*held, *given_) if one.until > NOW + GRANT_MS - 1}
    assert counting - set(taken) <= {one.key for one in after.grants}
    assert state_from_json(state_to_json(after)) == after


def test_a_state_of_before_has_none() -> None:
    stored = state_to_json(State())
    del stored["grants"]
    assert state_from_json(stored) == State()
