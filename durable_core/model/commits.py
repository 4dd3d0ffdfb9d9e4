"""Everything that finishing a step changes, in one value.

What lives here: a step's commit and its parts. What does not: building it (the turn engine above).
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_core.model.admission import Admission, Extra
from durable_core.model.events import EventDraft
from durable_core.model.outbox import OutboxDraft
from durable_core.model.runs import Command, Signals
from durable_core.model.statuses import AnswerPolicy, Outcome, Phase, PromptOutcome


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
    quorum: int = 1
    answerers: tuple[str, ...] = ()
    asked: str = ""
    remind_at: int | None = None
    group: str | None = None
    """The first prompt of those that share one card: their copies are edited together. The first names itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUpdate:
    """Other times for a prompt that is still open; with `level`, it is handed to others. Each posted copy is edited."""

    prompt_id: str
    expires_at: int | None
    remind_at: int | None
    level: int | None = None
    asked: str | None = None
    """Who is asked from now on, in words; None leaves it."""
    answerers: tuple[str, ...] | None = None


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
class Move:
    """A run goes over to another deployment; its lifetime begins anew (CORE 11)."""

    deployment: str
    lifetime_ms: int | None
    """None for one without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommit:
    """Everything that finishing a step changes, in one transaction."""

    run_id: str
    epoch: int
    step_n: int
    """Must equal the run's `step_no`, or the claim is stale."""
    step: StepDraft
    before: StepDraft | None = None
    """A step that was finished just before, with nothing between the two: it is `step_n`, and `step` the one after it."""
    seen: int
    """Highest command seq this worker knows of; more than that wakes the run again."""
    consumed: tuple[int, ...] = ()
    turn_id: str | None = None
    """The turn the run is in after the commit; also linked to what was consumed."""
    link_turn: str | None = None
    """The turn that consumed inputs belong to, when it differs from `turn_id` (a turn that ends here); empty for none."""
    outcomes: tuple[SubmissionOutcome, ...] = ()
    events: tuple[EventDraft, ...] = ()
    outbox: tuple[OutboxDraft, ...] = ()
    prompts: tuple[PromptDraft, ...] = ()
    settle: tuple[PromptSettlement, ...] = ()
    updates: tuple[PromptUpdate, ...] = ()
    """One that names a prompt which is settled by now refuses the commit with `PromptTaken`."""
    addresses: tuple[tuple[str, str], ...] = ()
    """(channel, address) pairs that the run owns from now on, until it ends."""
    starts: tuple[Admission, ...] = ()
    """First inputs of new runs (`ToNew`), made with the commit; one whose (source, key) is known changes nothing."""
    move: Move | None = None
    phase: Phase = Phase.RUNNING
    timer_at: int | None = None
    """When a released run wants to be looked at again, besides its deadline."""
    release: bool = False
    redactions: int | None = None
    """How many redactions the step has seen; when there are more, it is refused. None for steps that copy no content."""
    end: str | None = None
    """A reason ends the run: addresses are freed, unconsumed input is aborted, open prompts are cancelled."""
    extra: tuple[Extra, ...] = ()

    @property
    def last_n(self) -> int:
        """The number of `step`: what is consumed is consumed by it."""
        return self.step_n if self.before is None else self.step_n + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the worker knows after a commit."""

    step_no: int
    signals: Signals
    commands: tuple[Command, ...]
    """Came in since `seen`; empty when the run was released."""
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOpen:
    """What was open in a run when its end was worded: the events of the end tell of this turn and of these prompts."""

    turn_id: str | None
    prompts: frozenset[str]
