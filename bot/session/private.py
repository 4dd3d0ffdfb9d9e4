"""What was fetched with somebody's own account, kept out of what others are shown.

What lives here: a history as the turn of one person may see it. What does not: which results are private (calls.py), who reads
events (bot/sessions.py), what was posted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from bot.history import AssistantItem, Item, ResultItem, UserItem
from bot.turn.state import Turn

_FOUND: Final = frozenset({"result", "text", "message", "delta"})
"""What of an event holds words of a service that was asked with somebody's account, or words made of them."""


def seen_by(history: Sequence[Item], principal: str) -> tuple[Item, ...]:
    """Return a history for a model that works for somebody: results of others' own accounts are left out of it.

    So is what the model made of them on its way: what it said beside later calls of that turn, which nobody heard, what it gave
    to those, and what they found with it. What was posted is there, as what the model answered at the end.
    """
    owners: dict[str, str] = {}
    derived: dict[str, str] = {}
    seen: list[Item] = []
    for item in history:
        shown = item
        match item:
            case ResultItem(call_id=call_id, private_to=owner):
                owner = owner or derived.get(call_id)
                if owner is not None and owner != principal:
                    owners.setdefault(_turn(call_id), owner)
                    shown = replace(item, content=hidden(_name(history, owner)))
            case AssistantItem(calls=(first, *_)) if (owner := owners.get(_turn(first.call_id))) is not None:
                derived |= {call.call_id: owner for call in item.calls}
                bare = tuple(replace(call, arguments={}, raw=None) for call in item.calls)
                shown = replace(item, text=hidden(_name(history, owner)) if item.text else "", calls=bare)
        seen.append(shown)
    return tuple(seen)


def shown_to(data: Mapping[str, Any], reader: str) -> Mapping[str, Any]:
    """Return an event's data for a reader; ``private_to`` in it says whose its result is, or what was told on the way to it."""
    owner = data.get("private_to")
    if owner is None or owner["id"] == reader:
        return data
    shown = {name: hidden(str(owner["name"])) if name in _FOUND else value for name, value in data.items()}
    if isinstance(actions := data.get("actions"), list):
        shown["actions"] = [{**action, "input": {}} for action in actions]
    return shown


def private_of(history: Iterable[Item], turn: Turn) -> dict[str, JsonValue]:
    """Return what marks an event of a turn that has read, in an earlier step, what only its requester may; else nothing.

    What the model says, asks for and finds from then on may be made of it. What is said aloud in the conversation isn't marked.
    """
    number = str(turn.number)
    if not any(isinstance(item, ResultItem) and item.private_to and _turn(item.call_id) == number for item in history):
        return {}
    return {"private_to": {"id": turn.requester.id, "name": turn.requester.name}}


def hidden(name: str) -> str:
    """What is said in place of a result."""
    return f"[fetched with {name or 'somebody'}'s account; not shown here]"


def _turn(call_id: str) -> str:
    """Name the turn that a call is of."""
    return call_id.partition(".")[0]


def _name(history: Iterable[Item], principal: str) -> str:
    """The name that somebody wrote under last."""
    names = [item.author for item in history if isinstance(item, UserItem) and item.principal == principal]
    return names[-1] if names else ""
