"""What was read before a call, and from whom: for whoever decides whether it may run.

What lives here: lines of evidence from a history. What does not: whether they make a call wait (gates.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bot.display import reveal, show
from bot.history import AssistantItem, Item, NoteItem, ResultItem, ResultStatus, Trust, UserItem
from bot.tools import Tool
from bot.turn.state import Turn

MOST_LINES: Final = 50
_ARGUMENT: Final = 80
"""Characters of one argument of what was read; the call that is asked about is never cut."""


def evidence(history: Sequence[Item], turn: Turn, tools: Mapping[str, Tool] | None = None) -> tuple[str, ...]:
    """List what was read and said since the request, and everything that nobody vouches for, at any time."""
    since = history[_beginning(history, turn) :]
    outside = dict.fromkeys(
        f"From outside, not vouched for: {_source(item)}" for item in history if item.trust is Trust.UNTRUSTED
    )
    read = dict.fromkeys(_read(since, turn, tools or {}))
    lines = [*outside, *read]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"And {len(lines) - MOST_LINES + 1} more"]
    return tuple(lines)


def _read(since: Sequence[Item], turn: Turn, tools: Mapping[str, Tool]) -> Iterator[str]:
    inputs = {call.call_id: call.arguments for item in since if isinstance(item, AssistantItem) for call in item.calls}
    for item in since:
        if isinstance(item, ResultItem) and item.status is ResultStatus.COMPLETED:
            tool = tools.get(item.tool)
            given = inputs.get(item.call_id, {})
            shown = tool.shown(given) if tool is not None else {}
            told = ", ".join(f"{reveal(name)}={_short(show(value))}" for name, value in shown.items())
            yield f"Read since the request: {item.tool}({told}), from {reveal(item.origin)}"
        elif isinstance(item, UserItem) and item.principal != turn.requester.id and item.trust is not Trust.UNTRUSTED:
            yield f"Said since the request: a message of {reveal(item.author)}"
        elif isinstance(item, NoteItem) and item.trust in (Trust.MEMBER, Trust.TOOL):
            yield f"Read since the request: {reveal(item.origin)}"


def _beginning(history: Sequence[Item], turn: Turn) -> int:
    """Where the turn begins: after the last item of another; a reply without calls ends one."""
    for place in range(len(history) - 1, -1, -1):
        item = history[place]
        if isinstance(item, ResultItem) and not _mine(item.call_id, turn):
            return place + 1
        if isinstance(item, AssistantItem) and not any(_mine(call.call_id, turn) for call in item.calls):
            return place + 1
    return 0


def _mine(call_id: str, turn: Turn) -> bool:
    return call_id.partition(".")[0] == str(turn.number)


def _source(item: Item) -> str:
    if isinstance(item, UserItem):
        return f"a message of {reveal(item.author)} ({reveal(item.origin)})"
    return f"{item.tool} ({reveal(item.origin)})" if isinstance(item, ResultItem) else reveal(item.origin)


def _short(text: str) -> str:
    return text if len(text) <= _ARGUMENT else f"{text[: _ARGUMENT - 1]}…"
