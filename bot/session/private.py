"""What was fetched with somebody's own account, kept out of what others are shown.

What lives here: a history as the turn of one person may see it. What does not: which results are private (calls.py), who reads
events (bot/sessions.py), what was posted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bot.history import Item, ResultItem, UserItem

_FOUND: Final = frozenset({"result", "text"})
"""What of an event holds words of a service that was asked with somebody's account."""


def seen_by(history: Sequence[Item], principal: str) -> tuple[Item, ...]:
    """Return a history for a model that works for somebody: results of others' own accounts are left out of it.

    What was posted of them is there, as what the model answered.
    """
    return tuple(
        replace(item, content=hidden(_name(history, item.private_to)))
        if isinstance(item, ResultItem) and item.private_to is not None and item.private_to != principal
        else item
        for item in history
    )


def shown_to(data: Mapping[str, Any], reader: str) -> Mapping[str, Any]:
    """Return an event's data for a reader; ``private_to`` in it says whose its result is, or what was told on the way to it."""
    owner = data.get("private_to")
    if owner is None or owner["id"] == reader:
        return data
    return {name: hidden(str(owner["name"])) if name in _FOUND else value for name, value in data.items()}


def hidden(name: str) -> str:
    """What is said in place of a result."""
    return f"[fetched with {name or 'somebody'}'s account; not shown here]"


def _name(history: Iterable[Item], principal: str) -> str:
    """The name that somebody wrote under last."""
    names = [item.author for item in history if isinstance(item, UserItem) and item.principal == principal]
    return names[-1] if names else ""
