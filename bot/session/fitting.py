"""What one step adds, made to fit into one stored value.

What lives here: which result gives way when all together are too large. What does not: the limit of a single value, which is held
where the value comes in (a reply, a message, a tool's result).
"""

from __future__ import annotations

from dataclasses import replace

from bot.history import Item, ResultItem
from bot.turn.change import Change
from durable_core import codec


def without_largest(change: Change) -> Change | None:
    """Return a change whose largest result has given way to a word about it; None where no result is left to give way.

    The result stays in its record and in the events; the history, which is sent to the model each time, does without it.
    """
    sizes = {
        place: codec.size_of(item.content)
        for place, item in enumerate(change.items)
        if isinstance(item, ResultItem) and item.content != _TEXT
    }
    if not sizes:
        return None
    largest = max(sizes, key=lambda place: sizes[place])
    items = [_word(item) if place == largest else item for place, item in enumerate(change.items)]
    return replace(change, items=tuple(items))


_TEXT = "It ended as this says, but what it returned was too large to keep together with the other results. Ask for less at once."


def _word(item: Item) -> Item:
    return replace(item, content=_TEXT) if isinstance(item, ResultItem) else item
