"""Operations: what a body asks of the outside, what the log says back, as values.

What lives here: entries, operations, questions, answers, hooks. What does not: who runs or replays them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Literal, NoReturn, TypeAlias

from durable_core.codec import check_key, check_name
from durable_core.registry import StepOptions, Workflow

OnExpiry: TypeAlias = Literal["deny", "cancel", "escalate"]

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"


class EntryKind(StrEnum):
    """What one row of a workflow's log is."""

    STEP = "step"
    FAILED = "failed"
    TIMER = "timer"
    ANSWER = "answer"
    SIGNAL = "signal"
    CHILD = "child"
    WEBHOOK = "webhook"
    CANCEL = "cancel"
    ASKED = "asked"
    END = "end"


class OpKind(StrEnum):
    """What a body can ask for."""

    STEP = "step"
    TIMER = "timer"
    ASK = "ask"
    SIGNAL = "signal"
    CHILD = "child"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the log, decoded.

    `value` of a failed step or child is `{"type", "message", "attempts", "code"}`; of an answer the fields of `Answer`;
    of a webhook `{"token", "url"}`. `marks` are the patches that were first asked for in the commit that wrote the entry.
    """

    n: int
    kind: EntryKind
    op: str = ""
    ok: bool = True
    value: Any = None
    at: int = 0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One button of a question."""

    id: str
    label: str
    description: str = field(default="", kw_only=True)
    style: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.id or not self.label:
            raise ValueError("an option needs an id and a label")
        check_name(self.id, "the id of an option")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """A question to a person; `by` is who may answer, and `about` what it is besides, as the layer above understands them."""

    text: str
    options: tuple[Option, ...] = ()
    allow_freeform: bool = False
    expires: timedelta | None = None
    on_expiry: OnExpiry = "deny"
    by: Any = None
    about: Any = None
    remind_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person said, or why nobody did."""

    option_id: str | None = None
    text: str | None = None
    by: str | None = None
    name: str | None = None
    expired: bool = False
    cancelled: bool = False

    def __bool__(self) -> NoReturn:
        """Refuse: a No is an answer too."""
        raise TypeError(
            "an Answer is neither true nor false; compare answer.option_id, or look at answer.expired and answer.cancelled"
        )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Answer:
        """Return it from what the log keeps; fields it doesn't know are left out."""
        return cls(
            option_id=stored.get("option_id"),
            text=stored.get("text"),
            by=stored.get("by"),
            name=stored.get("name"),
            expired=bool(stored.get("expired", False)),
            cancelled=bool(stored.get("cancelled", False)),
        )


@dataclass(frozen=True, slots=True)
class Hook:
    """A name that signals come in by; what came before the body waits is kept, in order.

    `ctx.wait_for(hook)` gives the next payload, `async for payload in hook` one after another.
    """

    name: str

    def __post_init__(self) -> None:
        if not check_key(self.name, "the name of a hook"):
            raise ValueError("a hook needs a name")
        if self.name.startswith("webhook:") and type(self) is Hook:
            raise ValueError("names that begin with `webhook:` belong to ctx.webhook()")

    def __aiter__(self) -> Payloads:
        return Payloads(self)


@dataclass(frozen=True, slots=True)
class Webhook(Hook):
    """A hook that a POST to `url` comes in by; `url` is None where the app has no public address."""

    token: str = field(default="", repr=False)
    url: str | None = field(default=None, repr=False)


class Payloads:
    """The payloads of one hook, without an end; it may be left and begun anew at any time."""

    __slots__ = ("_hook",)

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def __aiter__(self) -> Payloads:
        return self

    def __anext__(self) -> Awaitable[Any]:
        wait = getattr(asyncio.get_running_loop(), "next_signal", None)
        if wait is None:
            raise RuntimeError("a hook can be waited for in a workflow's body only")
        awaited: Awaitable[Any] = wait(self._hook)
        return awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """A child workflow to start; `detached` ones outlive their parent."""

    workflow: Workflow
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    run_id: str
    key: str | None = None
    detached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing a body asked for; only the fields of its kind are set.

    `id` is `kind:name#occurrence`, timers by their delay in milliseconds; a signal's is `signal:<hook>` without an
    occurrence, since its payloads come in the order of the log, whoever waits.
    """

    id: str
    kind: OpKind
    name: str
    fn: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: StepOptions | None = None
    due_at: int | None = None
    question: AskOptions | None = None
    hook: Hook | None = None
    child: ChildStart | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised; `cancelled` says that it let its cancellation through."""

    error: BaseException

    @property
    def cancelled(self) -> bool:
        """Whether it is the end of a cancellation."""
        return isinstance(self.error, asyncio.CancelledError)


def own_copy(value: Any) -> Any:
    """Return a value whose lists, dicts, sets and tuples are copies; all else in it stays the same object.

    What a body hands out is not changed by it later, nor changed under it by a step: a replay would not show that.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([own_copy(one) for one in value])
    if kind is dict:
        return {key: own_copy(one) for key, one in value.items()}
    return kind(value) if kind is set else value


def child_run_id(parent: str, key: str) -> str:
    """Return the run id of a child: always the same for one parent and one operation (or key), different for any other."""
    match = re.fullmatch(r"([a-z]{2,8})_([0-7][0-9a-hjkmnp-tv-z]{25})", parent)
    prefix, time = (match[1], match[2][:10]) if match else ("run", "0" * 10)
    bits = int.from_bytes(sha256(f"{parent}\0{key}".encode()).digest()[:10], "big")
    return f"{prefix}_{time}" + "".join(_CROCKFORD[bits >> shift & 31] for shift in range(75, -1, -5))
