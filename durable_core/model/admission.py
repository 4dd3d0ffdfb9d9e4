"""One accepted input on its way into an inbox, and where it stands.

What lives here: admissions, receipts, submissions. What does not: what the input leads to (commits.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from durable_core.model.statuses import CommandKind, Outcome, Phase, RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A statement of a layer above that joins the transaction; named parameters, portable SQL."""

    sql: str
    parameters: dict[str, str | int | bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """The run an admission creates when no open one owns its address."""

    run_id: str
    name: str
    """Which author's object advances it (an agent's name)."""
    creator: str
    header: bytes
    """Encoded settings that stay as they are for the run's life."""
    deployment: str
    lifetime_ms: int | None
    kind: RunKind = RunKind.SESSION
    keep_ms: int | None = None
    """How long content is kept once the run has ended; None keeps it."""
    wake_at: int | None = None
    """Not before this time does its first command wake it; None wakes it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAddress:
    """Whoever owns the address; `new` is created when nobody does, None means never create."""

    channel: str
    address: str
    new: NewRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToRun:
    """One run by its id; never creates."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToNew:
    """A new run without an address."""

    new: NewRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One accepted input on its way into an inbox."""

    source: str
    """Where `key` is unique: a channel's name or `api:<principal>`."""
    key: str
    digest: bytes
    """SHA-256 of the payload, kept in a keyed form; another one under the same key is a conflict or a merge."""
    on_conflict: Literal["refuse", "merge"]
    submission_id: str
    target: ToAddress | ToRun | ToNew
    kind: CommandKind | None
    """None admits no command: the run is only created."""
    body: bytes = b""
    principal: str = ""
    turn_id: str | None = None
    """For a cancel: only this turn."""
    extra: tuple[Extra, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was accepted, the same for each redelivery."""

    submission_id: str
    run_id: str
    seq: int
    created: bool = False
    deduplicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Where one accepted input stands."""

    submission_id: str
    run_id: str
    source: str
    kind: str
    seq: int
    consumed: bool
    turn_id: str | None
    outcome: Outcome | None
    detail: bytes | None
    """Encoded: why it failed or what came of it."""
    reply_step: int | None
    """The step whose output holds the reply."""
    at: int
    done_at: int | None
    run_phase: Phase
    run_turn_id: str | None
