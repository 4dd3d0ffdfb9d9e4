"""What a decision looks at: state, inbox, open prompts, time.

What lives here: the view, and open prompts as far as rules need them. What does not: rules, loading (bot/session/live.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from bot.turn.state import Input, Limits, State
from durable_core.model import AnswerPolicy, PromptUpdate

DAY_MS: Final = 24 * 60 * 60 * 1000
LEVEL_MS: Final = 3 * DAY_MS
"""How long those who are asked next have, where the prompt doesn't say."""


class OnExpiry(StrEnum):
    """What becomes of a prompt that nobody answered in time."""

    DENY = "deny"
    CANCEL = "cancel"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Who is asked next, and where."""

    waiting_for: str
    channel: str | None = None
    address: str | None = None
    answerers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPrompt:
    """An open prompt as far as rules need it: whom it asks, until when, and what may be typed."""

    text: str = ""
    waiting_for: str = ""
    expires_at: int | None = None
    remind_at: int | None = None
    remind_ms: int | None = None
    on_expiry: OnExpiry = OnExpiry.DENY
    level: int = 0
    levels: tuple[Level, ...] = ()
    level_ms: tuple[int, ...] = ()
    """How long each level has."""
    options: tuple[tuple[str, str], ...] = ()
    """(id, label), in the order they are shown in."""
    speakers: tuple[str, ...] = ()
    """Principals whose own words answer it, where they may."""
    mentions: tuple[str, ...] = ()
    """Principals who are waited for, where they are known one by one."""
    title: str = ""
    """What people call the account that it asks for."""

    @property
    def next_number(self) -> int | None:
        """Which level is next when it expires; one at which nobody may answer is passed over."""
        left = range(self.level, len(self.levels)) if self.on_expiry is OnExpiry.ESCALATE else ()
        return next((number for number in left if self.levels[number].answerers != ()), None)

    @property
    def next_level(self) -> Level | None:
        """Who is asked when it expires, if there is somebody left."""
        return None if self.next_number is None else self.levels[self.next_number]

    @property
    def next_ms(self) -> int:
        """How long those have who are asked next."""
        number = self.level if self.next_number is None else self.next_number
        known = self.level_ms[number : number + 1] or self.level_ms[-1:]
        return known[0] if known and known[0] > 0 else LEVEL_MS

    def label(self, option_id: str) -> str:
        """The words of an option, as they are shown."""
        return next((label for id_, label in self.options if id_ == option_id), "")


def open_prompt(
    body: Mapping[str, Any],
    *,
    expires_at: int | None,
    remind_at: int | None,
    policy: AnswerPolicy,
    answerers: Sequence[str] = (),
    asked: str = "",
    level: int = 0,
) -> OpenPrompt:
    """Read an open prompt from its body and what its row holds beside it."""
    levels = tuple(_level(stored) for stored in body.get("levels") or ())
    requester = str((body.get("requester") or {}).get("id", ""))
    known = tuple(answerers) if policy is AnswerPolicy.LISTED else (requester,) if policy is AnswerPolicy.REQUESTER else ()
    free = bool(body.get("allow_freeform"))
    return OpenPrompt(
        text=str(body.get("text", "")),
        waiting_for=asked or str(body.get("waiting_for", "")),
        expires_at=expires_at,
        remind_at=remind_at,
        remind_ms=body.get("remind_ms"),
        on_expiry=OnExpiry(ends) if (ends := body.get("on_expiry")) in set(OnExpiry) else OnExpiry.DENY,
        level=level,
        levels=levels,
        level_ms=_times(body.get("level_ms")),
        options=tuple((str(option["id"]), str(option["label"])) for option in body.get("options") or ()),
        speakers=tuple(who for who in known or (requester,) if who) if free else (),
        mentions=tuple(who for who in known if who),
        title=str(body.get("title", "")),
    )


def moved(prompt: OpenPrompt, update: PromptUpdate) -> OpenPrompt:
    """A prompt after its times or those it asks were changed."""
    return replace(
        prompt,
        expires_at=update.expires_at,
        remind_at=update.remind_at,
        level=prompt.level if update.level is None else update.level,
        waiting_for=prompt.waiting_for if update.asked is None else update.asked,
        mentions=prompt.mentions if update.answerers is None else update.answerers,
    )


def _times(stored: Any) -> tuple[int, ...]:
    return tuple(int(ms) for ms in stored) if isinstance(stored, list) else (int(stored),) if stored else ()


def _level(stored: Mapping[str, Any]) -> Level:
    answerers = stored.get("answerers")
    return Level(
        waiting_for=str(stored.get("waiting_for", "")),
        channel=stored.get("channel"),
        address=stored.get("address"),
        answerers=None if answerers is None else tuple(str(one) for one in answerers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A message that was taken for an answer, which the pending step has begun to give."""

    seq: int
    prompt_id: str
    option_id: str
    """Empty for the message's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a decision looks at."""

    state: State
    inbox: tuple[Input, ...]
    open: Mapping[str, OpenPrompt] = field(default_factory=dict)
    answered: Mapping[str, OpenPrompt] = field(default_factory=dict)
    """Prompts whose answers wait in the inbox, as they were while they were open."""
    asked_after: Mapping[str, int] = field(default_factory=dict)
    """Prompts and the last input that came before each: what a person said earlier is no answer to it."""
    now: int
    exhausted: str | None = None
    """Why the pending step may not be tried again."""
    replied: bool = False
    """The pending step has recorded its model reply."""
    answering: Answering | None = None
    begun: bool = False
    """The pending step was begun, in this attempt or in one before: readers know of it, or it has records."""
    deadline_at: int | None = None
    retry_at: int | None = None
    limits: Limits = field(default_factory=Limits)
