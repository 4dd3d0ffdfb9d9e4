"""Values that cross the store's edge: what is admitted, claimed, committed, settled and sent.

What lives here: frozen data. What does not: SQL (`stores/`), deciding what to do next (the turn engine above).
Times are milliseconds since the epoch, bodies are encoded bytes (`codec.encode`), ids are strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

CURRENT_SPEC = 1
"""The format this code writes; `run.spec_version` says which one wrote a run."""
MIN_READABLE_SPEC = 1
"""The oldest format this code reads."""

MAX_CHARGED = 4
"""Charged attempts a step gets before it fails (CORE 15)."""
ALONE_AFTER_CRASHES = 2
"""A run that crashed its worker this often is claimed alone."""


class RunStatus(StrEnum):
    """Whether a run still takes input."""

    OPEN = "open"
    ENDED = "ended"


class Phase(StrEnum):
    """What a reader of the run sees: nothing to do, at work, or waiting for a person."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"


class CommandKind(StrEnum):
    """What an inbox entry asks for."""

    MESSAGE = "message"
    RESPONSE = "response"
    CANCEL = "cancel"


class Outcome(StrEnum):
    """How accepted work ended; exactly one for each submission."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class PromptOutcome(StrEnum):
    """How a prompt ended; exactly one for each prompt."""

    ANSWERED = "answered"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    IGNORED = "ignored"


class AnswerStatus(StrEnum):
    """What became of one answer to a prompt."""

    SETTLED = "settled"
    ALREADY_SETTLED = "already_settled"
    REFUSED = "refused"
    PENDING = "pending"


class AnswerPolicy(StrEnum):
    """Who may answer: data that settles in the admission, or a function that a worker evaluates (CORE 8)."""

    REQUESTER = "requester"
    FUNCTION = "function"


class RecordKind(StrEnum):
    """What an in-step record holds."""

    REPLY = "reply"
    STARTED = "started"
    RESULT = "result"


# ── admission ────────────────────────────────────────────────────────────────────────────────────


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
    """Keyed hash of the payload; another digest under the same key is a conflict or a merge."""
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


# ── runs, claims, steps ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as a reader sees it."""

    run_id: str
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
class Prompt:
    """A question to a person, open until `outcome` is set."""

    prompt_id: str
    run_id: str
    kind: str
    step_n: int
    call_id: str | None
    body: bytes
    requester: str
    policy: AnswerPolicy
    created_seq: int
    created_at: int
    expires_at: int | None
    outcome: PromptOutcome | None = None
    option_id: str | None = None
    settled_by: str | None = None
    settled_name: str | None = None
    settled_via: str | None = None
    settled_at: int | None = None
    note: bytes | None = None


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
class PromptDraft:
    """A prompt that a commit opens; the id was minted for this commit."""

    prompt_id: str
    kind: str
    call_id: str | None
    body: bytes
    requester: str
    policy: AnswerPolicy
    expires_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettlement:
    """A prompt that a commit ends without an answer; each posted copy is edited."""

    prompt_id: str
    outcome: PromptOutcome
    by: str | None = None
    name: str | None = None
    via: str = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOutcome:
    """How a consumed input ended."""

    submission_id: str
    outcome: Outcome
    detail: bytes | None = None
    reply_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDraft:
    """A finished step to write."""

    kind: str
    name: str
    input: bytes
    output: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommit:
    """Everything that finishing a step changes, in one transaction."""

    run_id: str
    epoch: int
    step_n: int
    """Must equal the run's `step_no`, or the claim is stale."""
    step: StepDraft
    seen: int
    """Highest command seq this worker knows of; more than that wakes the run again."""
    consumed: tuple[int, ...] = ()
    turn_id: str | None = None
    """The turn the run is in after the commit; also linked to what was consumed."""
    link_turn: str | None = None
    """The turn that consumed inputs belong to, when it differs from `turn_id` (a turn that ends here)."""
    outcomes: tuple[SubmissionOutcome, ...] = ()
    events: tuple[EventDraft, ...] = ()
    outbox: tuple[OutboxDraft, ...] = ()
    prompts: tuple[PromptDraft, ...] = ()
    settle: tuple[PromptSettlement, ...] = ()
    phase: Phase = Phase.RUNNING
    timer_at: int | None = None
    """When a released run wants to be looked at again, besides its deadline."""
    release: bool = False
    end: str | None = None
    """A reason ends the run: addresses are freed, unconsumed input is aborted, open prompts are cancelled."""
    extra: tuple[Extra, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the worker knows after a commit."""

    step_no: int
    signals: Signals
    commands: tuple[Command, ...]
    """Came in since `seen`; empty when the run was released."""
    now: int


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAnswer:
    """Somebody's answer to one prompt."""

    source: str
    key: str
    digest: bytes
    submission_id: str
    prompt_id: str
    run_id: str | None
    """When given, the prompt must belong to this run."""
    option_id: str
    outcome: PromptOutcome
    note: bytes | None
    principal: str
    name: str
    via: str
    body: bytes
    """Encoded principal and place, for a policy that a worker evaluates."""
    events: tuple[EventDraft, ...] = ()
    """Appended when the answer settles the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReceipt:
    """What became of an answer; for a settled prompt who settled it and how."""

    status: AnswerStatus
    submission_id: str
    run_id: str
    reason: str | None = None
    prompt: Prompt | None = None
    deduplicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """An answer that waits for a worker to evaluate who may give it."""

    interaction_id: str
    """Equals the submission id."""
    epoch: int
    attempts: int
    prompt: Prompt
    run_name: str
    answer: PromptAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A worker's decision about an interaction."""

    interaction_id: str
    epoch: int
    allowed: bool
    reason: str | None = None
    events: tuple[EventDraft, ...] = ()


# ── outbox ───────────────────────────────────────────────────────────────────────────────────────


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """The head of a lane can never be sent: a dead letter; edits that depend on it become posts."""

    delivery_id: str
    error: str
    release: bool


# ── workers ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One start of one worker process, and what it can read."""

    owner: str
    deployment: str
    min_readable: int = MIN_READABLE_SPEC
    current: int = CURRENT_SPEC
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker has room for."""

    owner: str
    lease_ms: int
    limit: int
    alone: bool = False
    """Nothing else runs here: a run that crashed its workers may be taken, by itself."""
    min_readable: int = MIN_READABLE_SPEC
    current: int = CURRENT_SPEC


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """When a worker has to look again: earliest times, None when nothing is scheduled."""

    run_at: int | None
    lane_at: int | None
    interaction_at: int | None
    now: int
    owners: tuple[str, ...] = field(default=())
    """Incarnations that hold runs, lanes or interactions."""
