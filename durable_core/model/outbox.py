"""What is owed to the outside, lane by lane.

What lives here: lanes, their items, and how a send went. What does not: sending (the layer above).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INTERNAL: Final = "run"
"""The channel of effects on another run; a lane of it is named by that run's id (CORE 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxDraft:
    """A message owed to an address: posted, or an edit of an earlier post of the same lane."""

    delivery_id: str
    channel: str
    address: str
    body: bytes
    prompt_id: str | None = None
    edit_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """One row of a lane, in order."""

    delivery_id: str
    run_id: str
    run_name: str
    body: bytes
    prompt_id: str | None
    edit_of: str | None
    edit_ref: str | None
    """The platform's reference of the post to edit; None when it was never posted."""
    attempts: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The right to send what one address is owed."""

    channel: str
    address: str
    epoch: int
    items: tuple[OutboxItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The platform took a delivery and named it."""

    delivery_id: str
    ref: str | None
    release: bool
    """Give the lane back in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The head of a lane waits until a time; the lane is given back."""

    delivery_id: str
    until: int
    error: str
    counted: bool = True
    """False for a wait that the platform asked for before it took anything: no attempt was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """The head of a lane can never be sent: a dead letter; edits that depend on it become posts."""

    delivery_id: str
    error: str
    release: bool
