"""Claimed keys: what must be done once for an upstream that knows no keys, who began it and what came of it.

What lives here: who asks, how a key stands, what an operator says of it. What does not: claims of runs (runs.py), what authors
see (`claiming.py`).
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


class KeyFate(StrEnum):
    """What came of what an operator said of a claim."""

    SETTLED = "settled"
    BUSY = "busy"
    """Somebody is at work on the claim's run, maybe on this very effect: nothing was changed."""
    DONE = "done"
    """It was done before; that stays as it was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettlement:
    """What an operator says of a pending claim: that it is done, or, without `done`, that the key may be claimed anew."""

    claim_id: str
    done: bool
    by: str
    via: str
    reason: str
    value: bytes | None = None
    """What whoever asks for the key is told; None where nothing can be kept, since the run's content is gone."""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettled:
    """What came of it, and the claim as it stood before."""

    fate: KeyFate
    claim: ClaimedKey
