"""Stored values of a session by kind, read as this code writes them.

What lives here: the kinds, their upcasters, strict and lenient reading. What does not: the window (versions.py of the core), the
shape of each value (history.py, turn/state.py, cards.py and who else writes one).

A worker reads strictly: what a newer version wrote raises `Stranded`, and the session waits for code that reads it. Who only
shows a value reads leniently: what can't be brought up is shown as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias, cast

from durable_core import codec
from durable_core.versions import Stored, Upcast, Upcasters

Item: TypeAlias = dict[str, Any]


class Kind(StrEnum):
    """What a stored value is; events and the rows they refer to have the same names in streams."""

    HEADER = "header"
    COMMAND = "command"
    STEP = "step"
    STEP_INPUT = "step.input"
    RECORD = "record"
    PROMPT = "prompt"
    NOTE = "note"
    OUTBOX = "outbox"
    EVENT = "event"
    ANSWER = "answer"


UPCASTERS = Upcasters()
"""From each format to the next, for the kinds that changed. Add here what a new format changes, with samples of it."""


def read(kind: Kind, body: bytes, *, run_id: str) -> Stored:
    """Read a value to act on it.

    Raises:
        Stranded: a newer version wrote it.
    """
    value = cast("Stored", codec.decode(body))
    return UPCASTERS.read(kind, value, written=codec.written_by(body), run_id=run_id)


def show(kind: Kind, body: bytes) -> Stored:
    """Read a value to show it."""
    return UPCASTERS.show(kind, cast("Stored", codec.decode(body)), written=codec.written_by(body))


def each_item(change: Callable[[Item], Item]) -> Upcast:
    """Make an upcaster of steps from one of history items."""
    return lambda step: {**step, "items": [change(item) for item in step["items"]]}


def the_state(change: Callable[[Stored], Stored]) -> Upcast:
    """Make an upcaster of steps from one of the session's state."""
    return lambda step: {**step, "state": change(step["state"])}
