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
from bot.turn.copies import CardResult, Copy
from channels.events import Place
from durable_core import codec
from durable_core.model import PromptOutcome

SMALLEST_VALUE: Final = 64 * 1024
GRANT_MS: Final = 24 * 60 * 60 * 1000
"""How long a yes to `once` counts."""


NO_CALL: Final = Call("", "", arguments={})
"""In place of a call, where a turn waits for something that no call asked for."""


class Stage(StrEnum):
    """Where a call that could not run at once stands."""

    ASKED = "asked"
    """It waits for a person."""
    READY = "ready"
    """It was let run, and has not."""
    ASLEEP = "asleep"
    """It waits for a time."""
    AT_WORK = "at_work"
    """A run of its own does it."""


class Purpose(StrEnum):
    """What is waited for: may it run, may it run again, what is the answer, may the turn go on; or a time."""

    APPROVAL = "approval"
    RERUN = "rerun"
    QUESTION = "question"
    LIMIT = "session-limit"
    SLEEP = "sleep"
    WORKFLOW = "workflow"
    SIGN_IN = "sign-in"
    """May it use an account that is not connected yet."""


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
class ChildRequest:
    """What a run that works for a call asks people, as far as typed answers need it."""

    prompt_id: str
    asked_after: int
    """The last input that came before the turn heard of it."""
    options: tuple[tuple[str, str], ...] = ()
    """(id, label), in the order they are shown in."""
    speakers: tuple[str, ...] = ()
    """Principals whose own words answer it, where they may."""
    connection: str = ""
    """The connection whose account it asks for, if it is a request to sign in."""

    @property
    def kind(self) -> Purpose:
        """What it asks."""
        return Purpose.SIGN_IN if self.connection else Purpose.QUESTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The prompt that let a call run which then had to sign in: its cards still tell what comes of the call."""

    purpose: Purpose
    prompt_id: str
    copies: tuple[Copy, ...] = ()
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What a turn waits for, a call without a result mostly: for a person, a time, or a moment to run.

    What waits for something else yet has a stage of its own, and its own field that says for what.
    """

    call: Call
    purpose: Purpose
    stage: Stage
    prompt_id: str = ""
    """Empty where nobody is asked."""
    delivery_id: str | None = None
    """The posted card of one that was asked before there were `copies`."""
    consent: Consent | None = None
    begun: int = 0
    """How often the call was begun before this prompt."""
    binding: str = ""
    """What exactly is asked about, as a digest; empty of a call that an older version asked about."""
    means: Mapping[str, str] = field(default_factory=dict)
    """What the arguments came to when people were shown them, each as a digest."""
    copies: tuple[Copy, ...] = ()
    group: str | None = None
    """The first prompt of those that share its card."""
    until: int | None = None
    """When it wakes, if it is asleep."""
    since: int | None = None
    """When it fell asleep."""
    limit: str = ""
    """Which limit was reached, if it asks whether to go on."""
    child: str | None = None
    """The run that does it."""
    requests: tuple[ChildRequest, ...] = ()
    """What that run asks people."""
    stop_by: int | None = None
    """When it is waited for no longer, once it was told to stop."""
    stopped_for: int = 0
    """The message that it was told to stop for."""
    connection: str = ""
    """The connection whose account it waits for; others of the turn may wait for the same `prompt_id`."""
    scopes: tuple[str, ...] = ()
    """What that prompt asks the account for."""
    signed_in: tuple[str, ...] = ()
    """The connections that were asked for on behalf of this call: once each, so that there is no loop."""
    earlier: Earlier | None = None
    """What let it run before it had to sign in; `consent`, `binding` and `means` are of that."""
    private_to: str | None = None
    """Whose own account its run acted with: what it comes to is for them."""

    @property
    def stopping(self) -> bool:
        """Whether its run was told to stop, and has not ended yet."""
        return self.stop_by is not None

    @property
    def cards(self) -> tuple[Copy, ...]:
        """The posted cards."""
        return self.copies or ((Copy(delivery_id=self.delivery_id),) if self.delivery_id is not None else ())

    @property
    def card_of(self) -> str:
        """The prompt that the posted cards are filed under."""
        return self.group or self.prompt_id


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
    extra_calls: int = 0
    """Model calls that somebody allowed over the limit."""
    told: tuple[str, ...] = ()
    """Whom it was said to that their message waits."""
    card_results: tuple[CardResult, ...] = ()

    @property
    def turn_id(self) -> str:
        """Name the turn within its session."""
        return f"turn_{self.number}"

    @property
    def asked(self) -> tuple[Pending, ...]:
        """What waits for a person."""
        return tuple(pending for pending in self.pending if pending.stage is Stage.ASKED)

    @property
    def at_work(self) -> tuple[Pending, ...]:
        """The calls that runs of their own do."""
        return tuple(pending for pending in self.pending if pending.child is not None)

    @property
    def waits_for_people(self) -> bool:
        """Whether anything of it waits for a person."""
        return any(pending.stage is Stage.ASKED or pending.requests for pending in self.pending)

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls that have no result yet."""
        return tuple(pending.call for pending in self.pending if pending.call != NO_CALL)

    def place_of(self, copy: Copy) -> tuple[str | None, str | None]:
        """Say where a card was put."""
        return (copy.channel, copy.address) if copy.channel is not None else (self.channel, self.address)


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
    extra_tokens: int = 0
    """Input tokens that somebody allowed over the limit."""
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
    label: str = ""
    """The words of the option that was chosen, if one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A prompt's card can't be delivered where it was put."""

    seq: int
    submission_id: str
    delivery_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody wants the turn to stop; ``turn_id`` limits it to one turn."""

    seq: int
    submission_id: str
    turn_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FromChild:
    """A word from a run that works for a call: it asks, is answered, shows how far it is, or has ended."""

    seq: int
    submission_id: str
    run_id: str
    """The run itself: of words, also one that the call's run started."""
    call_id: str
    """The call that it works for."""
    kind: str
    """`asked`, `resolved`, `progress`, `account` (it acts with somebody's own) or `child` (it has ended)."""
    told: Mapping[str, JsonValue]


Input: TypeAlias = Message | Response | Cancel | Undelivered | FromChild

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
    owners: tuple[str, ...] = ()
    """Principals who may let a turn go on past `model_calls` and `input_tokens`, beside who asked."""
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
