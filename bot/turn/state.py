"""A session's state between steps, small and without history; and what its inbox holds, as values.

What lives here: values and their JSON form. What does not: rules (decide.py), what a step changes (changes.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from pydantic import JsonValue, TypeAdapter

from bot.history import Call
from bot.principal import Principal
from channels.events import Place
from durable_core import codec
from durable_core.model import PromptOutcome

SMALLEST_VALUE: Final = 64 * 1024
GRANT_MS: Final = 24 * 60 * 60 * 1000
"""How long a yes to `once` counts."""


class Stage(StrEnum):
    """Where a call that could not run at once stands."""

    ASKED = "asked"
    READY = "ready"


class Purpose(StrEnum):
    """What a call's prompt asks: may it run, or may it run again."""

    APPROVAL = "approval"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Who let a call run, when, and with what note."""

    principal: str
    name: str
    at: int
    note: str = ""
    edits: dict[str, JsonValue] | None = None
    """Arguments that they changed before they approved."""
    binding: str = ""
    """What the changed call was when they did, as a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call without a result: it waits for a person, or was released and has not run."""

    call: Call
    purpose: Purpose
    stage: Stage
    prompt_id: str
    delivery_id: str | None = None
    """The posted card, where there is one."""
    consent: Consent | None = None
    begun: int = 0
    """How often the call was begun before this prompt."""
    binding: str = ""
    """What exactly is asked about, as a digest; empty of a call that an older version asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn under way: one message and all it triggers."""

    number: int
    requester: Principal
    place: Place
    channel: str | None
    address: str | None
    """Where the answer goes; None for a session that is only read."""
    submissions: tuple[str, ...]
    step_index: int = 0
    """The next model or tool step of this turn."""
    model_calls: int = 0
    pending: tuple[Pending, ...] = ()

    @property
    def turn_id(self) -> str:
        """Name the turn within its session."""
        return f"turn_{self.number}"

    @property
    def asked(self) -> tuple[Pending, ...]:
        """The calls that wait for a person."""
        return tuple(pending for pending in self.pending if pending.stage is Stage.ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A yes that counts for later calls too: what it covers, as a digest, and until when."""

    key: str
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All a session knows besides its history."""

    turns: int = 0
    messages: int = 0
    sequence: int = 0
    """Model calls so far; the number of the next one."""
    input_tokens: int = 0
    turn: Turn | None = None
    grants: tuple[Grant, ...] = ()


def with_grants(state: State, given: Iterable[Grant], taken: Collection[str]) -> State:
    """Add grants and take some away; those that had ended when the newest was given are dropped."""
    new = {grant.key: grant for grant in sorted(given, key=lambda grant: grant.until)}
    gone = {*taken, *new}
    since = max((grant.until for grant in new.values()), default=None)
    kept = [grant for grant in state.grants if grant.key not in gone and (since is None or grant.until > since - GRANT_MS)]
    return replace(state, grants=(*kept, *(grant for grant in new.values() if grant.key not in taken)))


# ── what the inbox holds ─────────────────────────────────────────────────────────────────────────


class TurnPolicy(StrEnum):
    """What a message does while a turn runs."""

    STEER = "steer"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBody:
    """A message as it is stored in the inbox."""

    text: str
    author: Principal
    place: Place
    channel: str | None = None
    address: str | None = None
    turn_policy: TurnPolicy = TurnPolicy.STEER


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that nobody has consumed. ``denied`` is why its author may not speak here.

    ``unjudged``: who its author is could not be looked up; it waits until that is known.
    """

    seq: int
    submission_id: str
    body: MessageBody
    at: int
    denied: str | None = None
    unjudged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A prompt was settled by somebody's answer."""

    seq: int
    submission_id: str
    prompt_id: str
    outcome: PromptOutcome
    consent: Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody wants the turn to stop; ``turn_id`` limits it to one turn."""

    seq: int
    submission_id: str
    turn_id: str | None = None


Input: TypeAlias = Message | Response | Cancel

_STATE: Final = TypeAdapter(State)
_BODY: Final = TypeAdapter(MessageBody)


def state_to_json(state: State) -> dict[str, JsonValue]:
    """Turn a state into plain JSON."""
    plain: dict[str, JsonValue] = _STATE.dump_python(state, mode="json")
    return plain


def state_from_json(stored: Mapping[str, JsonValue]) -> State:
    """Read a state from its plain JSON."""
    return _STATE.validate_python(stored)


def body_to_json(body: MessageBody) -> dict[str, JsonValue]:
    """Turn a message into the JSON that the inbox stores."""
    plain: dict[str, JsonValue] = _BODY.dump_python(body, mode="json")
    return plain


def body_from_json(stored: Mapping[str, JsonValue]) -> MessageBody:
    """Read a message from the inbox's JSON."""
    return _BODY.validate_python(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a session and of its turns."""

    model_calls: int = 50
    input_tokens: int = 2_000_000
    folded_messages: int = 50
    value_bytes: int = codec.LIMIT
    """Largest model reply; a message may be a sixteenth of it. What is larger is refused, and nothing waits for it."""

    @property
    def message_bytes(self) -> int:
        """Largest message: as many as are folded into one turn fit into one stored step."""
        return self.value_bytes // 16

    def problems(self) -> list[str]:
        """Say what can't be meant."""
        low, high = SMALLEST_VALUE, codec.LIMIT
        fits = low <= self.value_bytes <= high
        return [] if fits else [f"Limits(value_bytes=…) must be from {low} to {high}, not {self.value_bytes}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a decision looks at."""

    state: State
    inbox: tuple[Input, ...]
    expiries: Mapping[str, int | None] = field(default_factory=dict)
    """Open prompts and when they expire."""
    asked_after: Mapping[str, int] = field(default_factory=dict)
    """Open prompts and the last input that came before each: what a person said earlier is no answer to it."""
    now: int
    exhausted: str | None = None
    """Why the pending step may not be tried again."""
    replied: bool = False
    """The pending step has recorded its model reply."""
    begun: bool = False
    """The pending step was begun, in this attempt or in one before: readers know of it, or it has records."""
    deadline_at: int | None = None
    retry_at: int | None = None
    limits: Limits = field(default_factory=Limits)
