"""Where the cards of prompts were put, and what is told on one of several calls.

What lives here: values. What does not: what a turn waits for (state.py), which copies there are (routes.py), sending.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One posted card of a prompt."""

    delivery_id: str
    channel: str | None = None
    """Where it was put; None for the turn's own place."""
    address: str | None = None
    private_to: str | None = None
    """The principal who alone sees it."""
    plain: bool = False
    """It was put as plain text."""
    status: bool = False
    """It tells everybody who is waited for, and nothing else: nobody can answer there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardResult:
    """What came of one of several calls that share a card."""

    group: str
    prompt_id: str
    status: str
    text: str
