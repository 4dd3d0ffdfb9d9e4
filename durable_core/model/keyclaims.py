"""Claimed keys: what must be done once for an upstream that knows no keys, who began it and what came of it.

What lives here: who asks, and how a key stands. What does not: claims of runs (runs.py), what authors see (`claiming.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClaimState(StrEnum):
    """How a key stands for whoever asks."""

    CLAIMED = "claimed"
    """The caller is the first: it may go ahead."""
    DONE = "done"
    """It was done before, by whomever."""
    PENDING = "pending"
    """Somebody began and nobody has said that it is done: nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    """An operation of a held run that asks about a key; `claim_id` names its claim, or the one that it means."""

    run_id: str
    epoch: int
    key: str
    claim_id: str
    operation_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedKey:
    """A key that somebody claimed: by which run, in which attempt of what, since when."""

    state: ClaimState
    claim_id: str
    run_id: str
    operation_id: str
    attempt: int
    at: int
    done_at: int | None = None
    value: bytes | None = None
    value_gone: bool = False
    """It is done, and its value went with the content of the run that gave it."""
