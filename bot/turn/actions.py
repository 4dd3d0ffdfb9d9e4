"""What a session may do next, as values.

What lives here: one value an action. What does not: which one is chosen (decide.py), what it changes (changes.py, waits.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic import JsonValue

from bot.history import ResultStatus
from bot.turn.copies import Copy
from bot.turn.state import Cancel, FromChild, Message, Pending, Response, Undelivered
from durable_core.model import PromptOutcome

FRAMEWORK: Final = "framework"
"""Where a result comes from that no tool gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing to do until input comes, or until a time."""

    timer_at: int | None = None
    again: bool = False
    """A step that has begun waits to be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Messages of people who may not speak here."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """Input that is about nothing any more: answers of a turn that ended, cancels without a turn."""

    inputs: tuple[Response | Cancel | Undelivered | FromChild, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Start a turn with these messages of one person."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """Ask the model, then run the calls it asks for that need nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLimit:
    """Ask whether the turn may go on past a limit."""

    code: str
    reached: str
    """What it used up, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A waiting call that ends without a run of its body."""

    pending: Pending
    status: ResultStatus
    content: JsonValue
    origin: str = FRAMEWORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A limit that somebody moved, and by how much."""

    code: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Run what was released, close what was refused, answered, ran out or woke, take in what steers."""

    run: tuple[Pending, ...] = ()
    closed: tuple[Closed, ...] = ()
    settle: tuple[tuple[str, PromptOutcome], ...] = ()
    steer: tuple[Message, ...] = ()
    consumed: tuple[Response, ...] = ()
    raised: Raised | None = None
    ended: tuple[FromChild, ...] = ()
    """The ends of runs, which closed calls."""
    undelivered: tuple[Undelivered, ...] = ()
    """The cards that could not be delivered, which closed calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Cancel the turn, and the prompts that nobody has answered."""

    cancel: Cancel | None = None
    """Who asked for it; None where a prompt's end did."""
    settle: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    consumed: tuple[Response, ...] = ()
    code: str = "cancelled"
    words: str = "The turn was cancelled."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """End the turn as failed, and cancel the prompts that nobody has answered."""

    code: str
    message: str
    settle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the session."""

    reason: str


# ── while a turn is held ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Give a message as the answer to a prompt; without an option its own words are the answer."""

    message: Message
    prompt_id: str
    option_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remind:
    """Say once more who is waited for."""

    prompts: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalate:
    """Hand prompts that nobody answered in time to who is next."""

    prompts: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    """Put a card that can't be delivered elsewhere, or plainer; `copy` is None where nothing is left to try."""

    signal: Undelivered
    prompts: tuple[Pending, ...]
    """Those that the card shows."""
    failed: Copy
    to: str | None
    """`thread` or `text`; None where nothing is left, or where another copy is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Say to people whose messages wait that they do."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Tell readers what runs that work for calls ask, and how far they are."""

    words: tuple[FromChild, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Tell runs to stop, since the person wrote on; their ends are waited for."""

    calls: tuple[Pending, ...]
    message: Message


Ending: TypeAlias = Stop | Fail
Waiting: TypeAlias = Answer | Remind | Escalate | Reroute | Tell | Relay | Interrupt
Action: TypeAlias = Rest | Refuse | Dismiss | Open | Think | AskLimit | Resolve | Ending | End | Waiting
