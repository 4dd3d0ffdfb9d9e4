"""What a step changes, as one value: history, state, events, messages owed, prompts, outcomes.

What lives here: the values. What does not: how each action fills them (changes.py), how they are committed (bot/session/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from bot.history import Call, Item, ResultItem
from bot.model import ModelReply
from bot.turn.copies import Copy
from bot.turn.state import Consent, Earlier, Pending, Purpose, Stage, State
from durable_core.model import Admission, AnswerPolicy, Outcome, Phase, PromptOutcome, PromptUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event to be: its data, and fields that are read from the row that owns them."""

    type: str
    data: dict[str, JsonValue]
    refs: tuple[tuple[str, str], ...] = ()
    visible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message owed to the turn's address. ``body`` is what egress renders."""

    body: dict[str, JsonValue]
    delivery_id: str | None = None
    prompt_id: str | None = None
    edit_of: str | None = None
    channel: str | None = None
    """Another address than the turn's."""
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPrompt:
    """A prompt to open for a call."""

    prompt_id: str
    delivery_id: str | None
    call: Call
    purpose: Purpose
    body: dict[str, JsonValue]
    policy: AnswerPolicy
    expires_at: int | None
    begun: int = 0
    """How often the call was begun before."""
    quorum: int = 1
    answerers: tuple[str, ...] = ()
    """Who may answer, where the policy is LISTED."""
    asked: str = ""
    """Who is asked, in words; empty takes the body's `waiting_for`."""
    remind_at: int | None = None
    """Empty takes the body's `remind_ms`, from the moment it is asked."""
    group: str | None = None
    """The first prompt of those that share one card; the first names itself."""
    copies: tuple[Copy, ...] = ()
    """Where its card goes; those of a group have the same."""
    limit: str = ""
    """The limit that it is about."""
    binding: str = ""
    """What exactly is asked about, as a digest over the real arguments."""
    for_requester: bool = False
    """Nobody but who asked may answer, even where a worker decides so."""
    means: Mapping[str, str] = field(default_factory=dict)
    """What the arguments came to, as they were shown, each as a digest."""
    connection: str = ""
    """The connection whose account it asks for."""
    scopes: tuple[str, ...] = ()
    signed_in: tuple[str, ...] = ()
    """The connections that were asked for on behalf of the call, this one among them."""
    consent: Consent | None = None
    """The yes that the call has already; `binding` and `means` are of that."""
    earlier: Earlier | None = None
    """The prompt that this yes was given to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one submission ended; ``replied`` when this step's output holds the reply."""

    submission_id: str
    outcome: Outcome
    detail: dict[str, JsonValue] | None = None
    replied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Everything one step changes."""

    kind: str
    state: State
    items: tuple[Item, ...] = ()
    link_turn: str | None = None
    events: tuple[Draft, ...] = ()
    posts: tuple[Post, ...] = ()
    prompts: tuple[NewPrompt, ...] = ()
    settle: tuple[tuple[str, PromptOutcome], ...] = ()
    updates: tuple[PromptUpdate, ...] = ()
    consumed: tuple[int, ...] = ()
    outcomes: tuple[Ended, ...] = ()
    participants: tuple[str, ...] = ()
    starts: tuple[Admission, ...] = ()
    """The first inputs of runs that begin with it."""
    cancels: tuple[str, ...] = ()
    """Runs that are told to stop."""
    end: str | None = None

    @property
    def phase(self) -> Phase:
        """What readers see after the step."""
        return phase(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Calls whose runs begin with a step, and the first inputs of those runs."""

    pending: tuple[Pending, ...] = ()
    starts: tuple[Admission, ...] = ()


NO_FLOWS: Final = Flows()


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What the pending step had done before it was stopped: its reply and the calls' results so far."""

    reply: ModelReply | None = None
    calls: tuple[Call, ...] = ()
    results: Mapping[str, ResultItem] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    """Calls that began and have no result."""
    announced: bool = False
    """`step.started` was written for it."""


def phase(state: State) -> Phase:
    """Name what a reader of the session sees."""
    if state.turn is None:
        return Phase.IDLE
    waits = any(pending.stage in (Stage.ASKED, Stage.ASLEEP) or pending.requests for pending in state.turn.pending)
    return Phase.WAITING if waits else Phase.RUNNING
