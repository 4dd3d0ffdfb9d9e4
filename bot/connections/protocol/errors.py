"""What a provider did instead of answering.

What lives here: the errors of the protocol; none holds a URL, a header, a body, a code or a token. What does not: what a
person is told.

ProtocolError
├── ProviderDown      no usable answer now; `sent` says whether the request may have been acted on
├── ProviderRefused   an OAuth error: `error` is the standard's word
├── ProviderNonsense  an answer that means nothing, or one that can't be trusted; nothing of it is kept
└── NoClient          the app is not known to the provider and has no way to make itself known
"""

from __future__ import annotations

from typing import ClassVar

from bot.errors import BotError


class ProtocolError(BotError):
    """Root of what speaking to a provider raises."""


class ProviderDown(ProtocolError):
    """No usable answer now. `sent`: the request may have been acted on, so a code or a refresh token may be used up."""

    retryable: ClassVar[bool] = True

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class ProviderRefused(ProtocolError):
    """The provider says no.

    `error` is a word of RFC 6749, 8628 or OpenID Connect (`invalid_grant`, `access_denied` …); the dialects of well-known
    providers are translated. Their own words stand in `description`: printable, short, with what looks like a secret taken
    out; they are somebody else's text, so the error's own text leaves them out.
    """

    def __init__(self, error: str, description: str = "") -> None:
        super().__init__(f"the provider refused: {error}")
        self.error = error
        self.description = description


class ProviderNonsense(ProtocolError):
    """The answer means nothing or can't be trusted. `reason` is ours and quotes nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoClient(ProtocolError):
    """The connection has no client_id, and the provider offers no way to get one."""

    def __init__(self, connection: str) -> None:
        super().__init__(
            f"connection {connection!r} has no client_id, and its provider takes neither a client metadata document nor a "
            "registration: register the app there and set client_id"
        )
        self.connection = connection
