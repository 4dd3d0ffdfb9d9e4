"""Entries of a run's one list of events.

What lives here: drafts and events. What does not: reading and following them (streams.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """An event to append; fields named in `refs` are read from the row that owns the content."""

    type: str
    body: bytes
    """Encoded object: the event's data, without what `refs` fill in."""
    refs: tuple[tuple[str, str], ...] = ()
    """(field, `table:row#pointer`): command:5#/text, step:2#/reply, record:2:1.0.0#/content, prompt:prm_…#/text."""
    visible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a run's list; `index` counts the visible ones without gaps."""

    seq: int
    index: int | None
    type: str
    body: bytes
    refs: tuple[tuple[str, str], ...]
    attempt: int
    at: int
