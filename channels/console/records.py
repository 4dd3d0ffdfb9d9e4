"""What the console platform hands out: threads, messages, events, and its refusal.

What lives here: frozen values. What does not: the file they are read from (`file.py`) or what is done with them (`platform.py`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from channels.errors import ChannelError
from channels.strict import Json


class ConsoleRefused(ChannelError):
    """The platform doesn't do it; `code` says why and no retry helps.

    Codes: unknown_thread, unknown_message, unknown_button, unknown_author, empty, too_long, not_text, client_id_reused,
    delivery_id_reused, not_the_bots, would_be_public, bad_message.
    """

    status: ClassVar[int] = 422
    public: ClassVar[str] = "The console refused this."

    def __init__(self, code: str) -> None:
        super().__init__(f"the console refused: {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread; times are ms since the epoch, `version` is the platform's when it last changed, `last_at` when it last spoke."""

    id: str
    title: str
    _: KW_ONLY
    channel: str
    shared_outside: bool
    created_at: int
    version: int
    last_at: int


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as the thread shows it now.

    `author` is a cast id or "bot"; `private_to` is the one cast id who may see it; `seq` counts within the thread;
    `version` is the platform's when it last changed; `notice` marks a remark of the system's;
    `card` is the JSON of a `Card`.
    """

    id: str
    thread_id: str
    _: KW_ONLY
    seq: int
    author: str
    text: str
    card: Json | None
    notice: bool
    at: int
    edited_at: int | None
    version: int
    private_to: str | None


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event on its way to the bot: `body` is what to sign and hand over, the same bytes on every attempt."""

    id: str
    body: bytes
    _: KW_ONLY
    at: int
    delivered: bool
    thread_id: str = ""


@dataclass(frozen=True, slots=True)
class PersonMessage:
    """What a person posted, and the event that tells the bot."""

    message: ShownMessage
    event: PendingEvent
