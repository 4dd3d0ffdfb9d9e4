"""Errors of the channels package, one tree.

What lives here: every exception a channel raises on purpose. What does not: what a person may or may not do.

ChannelError
├── InvalidSignature   the request does not prove who sent it (401)
├── MalformedPayload   a proven request that can't be read (400)
├── PayloadTooLarge    a body over the limit (413)
├── BadAddress         an address the codec doesn't read or can't write (400)
├── DeliveryFailed     the platform did not take a message; `permanent` says whether to try again
└── RateLimited        the platform asks to wait `retry_after` seconds
"""

from __future__ import annotations

from typing import ClassVar


class ChannelError(Exception):
    """Root of everything a channel raises on purpose.

    `str(error)` is the developer's text; `public` is what may be told to a caller. `status` is the HTTP status
    that answers a request which ended in this error.
    """

    status: ClassVar[int] = 500
    public: ClassVar[str] = "The request could not be taken."
    retryable: bool = False


class InvalidSignature(ChannelError):
    """A request that doesn't prove who sent it; nothing of it was parsed."""

    status: ClassVar[int] = 401
    public: ClassVar[str] = "The signature is not valid."

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid signature: {reason}")
        self.reason = reason


class MalformedPayload(ChannelError):
    """A payload that can't be read."""

    status: ClassVar[int] = 400
    public: ClassVar[str] = "The payload can't be read."

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed payload: {reason}")
        self.reason = reason


class PayloadTooLarge(ChannelError):
    """A body over the limit; sizes in bytes."""

    status: ClassVar[int] = 413
    public: ClassVar[str] = "The payload is too large."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a body of {size} bytes is over the limit of {limit}")
        self.size = size
        self.limit = limit


class BadAddress(ChannelError):
    """An address that the codec doesn't read, or parts it can't write."""

    status: ClassVar[int] = 400
    public: ClassVar[str] = "The address is not valid."

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"bad address {address[:80]!r}: {reason}")
        self.address = address
        self.reason = reason


class DeliveryFailed(ChannelError):
    """The platform didn't take a message; `code` is the platform's word for why.

    `permanent` means that no retry will help: the delivery becomes a dead letter.
    """

    def __init__(self, code: str, permanent: bool) -> None:  # noqa: FBT001 - reads as written at every call
        super().__init__(f"delivery failed: {code} ({'permanent' if permanent else 'may be retried'})")
        self.code = code
        self.permanent = permanent
        self.retryable = not permanent


class RateLimited(ChannelError):
    """The platform asks to wait; the wait, in seconds, blocks the whole lane."""

    status: ClassVar[int] = 429
    retryable: bool = True

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"rate limited: wait {retry_after:g} s")
        self.retry_after = retry_after
