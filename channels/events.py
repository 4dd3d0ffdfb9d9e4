"""What a channel tells the bot: messages, clicks, and what it left aside.

What lives here: the values that `Channel.parse` returns. What does not: who may do what, sessions, or storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, Literal

from channels.http import WebhookResponse

MAX_CLICK_FIELDS: Final = 20
MAX_CLICK_FIELD: Final = 3_000


class Standing(StrEnum):
    """What the platform says somebody is, seen from the place that installed the bot."""

    MEMBER = "member"
    GUEST = "guest"
    OUTSIDER = "outsider"
    BOT = "bot"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote or clicked, as the platform proved it; `id` is unique within `tenancy`, `name` is only for show."""

    id: str
    name: str
    _: KW_ONLY
    standing: Standing
    tenancy: str = ""
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where it happened; `shared_outside` means that people from other organisations can read along."""

    kind: Literal["channel", "direct", "api"]
    shared_outside: bool = False
    _: KW_ONLY
    title: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A person's words. `key` is the platform's identity of the event: a redelivery has the same key."""

    address: str
    author: Author
    _: KW_ONLY
    text: str
    key: str
    place: Place
    mention: bool = True


@dataclass(frozen=True, slots=True)
class Click:
    """A pressed button, a chosen option, or a form that was sent. `value` is what it was shown with, opaque to the channel.

    `fields` are what was filled in, by the names of the form: at most 20 of at most 3,000 characters. `trigger` lets a channel
    with forms open one in answer, for as long as the platform allows (`channels.contract.Forms`). `key` as in `Message`.
    """

    address: str
    author: Author
    _: KW_ONLY
    value: str
    key: str
    place: Place
    fields: Mapping[str, str] = field(default_factory=dict)
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something that was proven and read but is not for the bot; the reason is logged, never silent."""

    reason: str


Event = Message | Click | Ignored


@dataclass(frozen=True, slots=True)
class Ingress:
    """What one request held. `response` is given where the platform wants a certain answer (challenges)."""

    events: tuple[Event, ...]
    response: WebhookResponse | None = None
