"""History items: their JSON form and the pairing of calls and results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from bot.errors import BadHistory
from bot.history import (
    AssistantItem,
    Call,
    Item,
    NoteItem,
    ResultItem,
    ResultStatus,
    Trust,
    Usage,
    UserItem,
    from_json,
    last_user,
    to_json,
    validate_history,
)

TEXT = st.text(max_size=30)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(Call, TEXT, TEXT, arguments=st.dictionaries(TEXT, JSON, max_size=3), provider_id=TEXT, raw=st.none() | TEXT)
COUNT = st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNT, COUNT, cache_read_tokens=COUNT, cache_write_tokens=COUNT)
TRUSTS = st.sampled_from(Trust)
ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.builds(UserItem, TEXT, TEXT, principal=TEXT, origin=TEXT, trust=TRUSTS, at=COUNT),
    st.builds(AssistantItem, TEXT, st.lists(CALLS, max_size=3).map(tuple), model=TEXT, usage=USAGES),
    st.builds(ResultItem, TEXT, TEXT, status=st.sampled_from(ResultStatus), content=JSON, origin=TEXT, trust=TRUSTS),
    st.builds(NoteItem, TEXT, TEXT, trust=TRUSTS),
)


@given(ITEMS)
def test_an_item_comes_back_equal_through_json_text(item: Item) -> None:
    assert from_json(json.loads(json.dumps(to_json(item)))) == item


@given(st.dictionaries(st.sampled_from(["kind", "text", "calls", "status", "at"]), JSON))
def test_anything_else_is_refused_by_name(stored: dict[str, JsonValue]) -> None:
    with pytest.raises(BadHistory):
        from_json(stored)


def test_an_unknown_kind_and_a_missing_field_are_named() -> None:
    with pytest.raises(BadHistory, match="unknown kind 'picture'"):
        from_json({"kind": "picture"})
    with pytest.raises(BadHistory, match="text"):
        from_json({"kind": "note", "origin": "x", "trust": "system"})


def said(text: str = "hi") -> UserItem:
    return UserItem(text, "Alice", principal="console:alice", origin="console", trust=Trust.REQUESTER, at=1)


def asked(*ids: str) -> AssistantItem:
    return AssistantItem("", tuple(Call(call_id, "look", arguments={}) for call_id in ids))


def result(call_id: str, tool: str = "look") -> ResultItem:
    return ResultItem(call_id, tool, status=ResultStatus.COMPLETED, content="ok", origin="tool:look")


@pytest.mark.parametrize(
    "items",
    [
        [],
        [said()],
        [said(), asked("0.0.0"), result("0.0.0"), AssistantItem("done")],
        [said(), asked("a", "b"), result("b"), result("a"), said()],
    ],
)
def test_a_whole_history_holds(items: list[Item]) -> None:
    validate_history(items)


@pytest.mark.parametrize(
    ("items", "position"),
    [
        ([said(), asked("a")], 1),
        ([asked("a"), said(), result("a")], 1),
        ([asked("a", "b"), result("a"), AssistantItem("")], 2),
        ([result("a")], 0),
        ([asked("a"), result("a"), result("a")], 2),
        ([asked("a"), result("a", "other")], 1),
        ([asked("a", "a")], 0),
        ([asked("a"), result("a"), asked("a"), result("a")], 2),
    ],
)
def test_a_broken_history_names_the_place(items: list[Item], position: int) -> None:
    with pytest.raises(BadHistory) as caught:
        validate_history(items)
    assert caught.value.position == position


def test_the_last_user_item_is_found_behind_answers() -> None:
    assert last_user([said("one"), said("two"), AssistantItem("hm")]) == said("two")
    assert last_user([AssistantItem("hm")]) is None


def test_an_answer_has_the_trust_of_model_text() -> None:
    assert (AssistantItem("x", model="m").origin, AssistantItem("x").trust) == ("model:m", Trust.MODEL)
    assert Usage(2, 3).total == 5
