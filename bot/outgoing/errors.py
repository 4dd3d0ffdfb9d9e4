"""Why a request was not made, or has no answer.

What lives here: the errors of the guarded client; each holds an origin, never a path, a query, a header or a body. What does
not: what an answer means.

OutgoingError
├── NotAllowed    the address is not one that may be asked; nothing was sent
├── Unreachable   no whole answer came; `sent` says whether the other side may have acted
└── TooLarge      the answer is longer than the caller takes
"""

from __future__ import annotations

from typing import ClassVar

from bot.errors import BotError


class OutgoingError(BotError):
    """Root of what the guarded client raises."""

    def __init__(self, origin: str, words: str) -> None:
        super().__init__(f"{origin or 'an address without a host'}: {words}")
        self.origin = origin


class NotAllowed(OutgoingError):
    """The address, or what it resolves to, is not one that may be asked. Nothing was sent."""

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(origin, f"not asked, {reason}")
        self.reason = reason


class Unreachable(OutgoingError):
    """There is no whole answer. `sent`: the request left, so the other side may have acted on it."""

    retryable: ClassVar[bool] = True

    def __init__(self, origin: str, reason: str, *, sent: bool) -> None:
        super().__init__(origin, f"no answer, {reason}")
        self.reason = reason
        self.sent = sent


class TooLarge(OutgoingError):
    """The answer is longer than `limit` bytes, counted after decompression; it was not read to its end."""

    def __init__(self, origin: str, limit: int) -> None:
        super().__init__(origin, f"the answer has more than {limit} bytes")
        self.limit = limit
