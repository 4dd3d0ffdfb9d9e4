"""A run as readers and its worker see it.

What lives here: runs, inbox entries, records, steps, claims. What does not: what a commit changes (commits.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_core.model.prompts import Prompt
from durable_core.model.statuses import CommandKind, Phase, RecordKind, RunKind, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as a reader sees it."""

    run_id: str
    kind: RunKind
    name: str
    status: RunStatus
    phase: Phase
    creator: str
    header: bytes
    turn_id: str | None
    step_no: int
    attempt: int
    event_count: int
    """Visible events so far; the next visible index."""
    spec_version: int
    deployment: str
    created_at: int
    deadline_at: int | None
    ended_at: int | None
    end_reason: str | None
    stranded: str | None
    """Why the code that had it last can't go on with it; None for a run that goes on."""
    purged_at: int | None
    """When its content was deleted."""
    redactions: int = 0
    """How often bodies of it were replaced; one who knows a fold of another number has to fold it anew."""
    wake_at: int | None = None
    """When it is to be looked at; None while somebody holds it, or nothing is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One inbox entry."""

    seq: int
    kind: CommandKind
    body: bytes
    submission_id: str
    principal: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What an unfinished step already has: the model's reply, a tool's start or result."""

    key: str
    kind: RecordKind
    input_hash: str
    body: bytes
    attempt: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One finished step: what it was given and what it added."""

    n: int
    kind: str
    name: str
    attempt: int
    spec_version: int
    deployment: str
    input: bytes
    output: bytes
    started_at: int
    completed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What a fenced write tells the worker back: has something come in, is a cancel waiting."""

    inbox_seq: int
    cancel_pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to advance a run, with all that its pending step already has."""

    run_id: str
    epoch: int
    owner: str
    kind: RunKind
    name: str
    creator: str
    header: bytes
    spec_version: int
    deployment: str
    step_no: int
    """The step to run next; steps below are complete."""
    attempt: int
    charged: int
    crashes: int
    interrupted: bool
    """The attempt before ended without a release: killed or its lease ran out."""
    last_error: str | None
    retry_at: int | None
    """Back-off of the pending step; input may wake the run earlier."""
    step_started_at: int | None
    now: int
    created_at: int
    deadline_at: int | None
    phase: Phase
    turn_id: str | None
    signals: Signals
    commands: tuple[Command, ...]
    """All that nobody has consumed, in order."""
    prompts: tuple[Prompt, ...]
    """Open ones, and settled ones whose response is among `commands`."""
    records: tuple[Record, ...]
    redactions: int = 0
    """As `Run.redactions`."""
