"""Questions to people, and the answers.

What lives here: prompts, answers, interactions, verdicts. What does not: cards and channels (the layers above).
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_core.model.events import EventDraft
from durable_core.model.outbox import OutboxDraft
from durable_core.model.statuses import AnswerPolicy, AnswerStatus, PromptOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's answer to a prompt that counts; a person has one."""

    principal: str
    name: str
    option_id: str
    via: str
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
    quorum: int = 1
    """How many different people have to approve; one who denies ends it."""
    answerers: tuple[str, ...] = ()
    """Who may answer, where the policy is LISTED."""
    asked: str = ""
    """Who was asked, in words."""
    remind_at: int | None = None
    level: int = 0
    """How often it was handed to others, since nobody had answered in time."""
    group: str | None = None
    """The first prompt of those that share one card; None for one with a card of its own."""
    votes: tuple[Vote, ...] = ()


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
    refused: str | None = None
    """Why it is refused whatever the prompt says: taken down, settles nothing."""
    tell: OutboxDraft | None = None
    """Owed to the one who answered when the answer settles nothing; once, where several answers name one delivery."""
    events: tuple[EventDraft, ...] = ()
    """Appended when the answer settles the prompt."""
    counted: tuple[EventDraft, ...] = ()
    """When the answer counts and more are needed, the one for its place among the votes is appended, or the last."""
    where: str = ""
    """From where it came, for the audit: a channel and an address, or the name of an interface."""
    judge: bool = False
    """A worker evaluates it even where the policy is data: it changes what would run."""
    override: bool = False
    """Given by a right of its own, whatever the policy and the quorum say; the note holds the reason."""
    aside: bool = False
    """Asks for something beside the answer, such as a link, which `tell` brings; settles nothing and counts nothing. Refused like
    an answer where its giver may not answer or the prompt is over."""
    most: int | None = None
    """How many answers that change nothing are taken of one person to one prompt within a minute; None any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReceipt:
    """What became of an answer, and the prompt as it stands: who settled it and how, or who is waited for."""

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
    level: int | None = None
    """The prompt's level that it is about; a prompt that was handed on since asks others."""
    reason: str | None = None
    name: str | None = None
    """The answerer's name where the worker found it out."""
    tell: OutboxDraft | None = None
    """Owed to the one who answered when the answer settles nothing."""
    events: tuple[EventDraft, ...] = ()
    counted: tuple[EventDraft, ...] = ()
    """As in `PromptAnswer`."""
    lapsed: tuple[str, ...] = ()
    """Whose earlier votes don't count any more, since they may not answer by now; votes that it doesn't name stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One link of the chain that says who was asked, who answered, how and when; it outlives the content.

    An operator's word about a claimed key is one, too: of the kind `claim`, it has the claim in place of the prompt, the
    operation that began in place of who was asked, and in `shown` the key as it is stored.

    `shown` is the SHA-256 of the prompt's stored body, in hex: what the person saw. `hash` covers all other fields and `prev`,
    the hash of the entry before.
    """

    n: int
    at: int
    act: str
    """`settled`, `counted`, `refused`, `overridden`, `moved` (handed to others), `lapsed` (a vote went, since its giver may not
    answer any more), `aside` (somebody who may answer asked for something beside it); of a claimed key `done` or `released`."""
    run_id: str
    prompt_id: str
    kind: str
    requester: str
    asked: str
    asked_at: int
    shown: str
    principal: str | None
    """Who answered; None where nobody did."""
    via: str
    where: str
    option_id: str | None
    outcome: str | None
    reason: str | None
    prev: str
    hash: str
