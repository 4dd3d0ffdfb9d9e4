"""What can go wrong with an account of somebody's. None of these holds a token, a path or a query.

What lives here: errors that an author's code may see or raise. What does not: errors of the protocol (bot/connections/protocol).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from bot.errors import BotError

if TYPE_CHECKING:
    from bot.connections.connection import Need, OAuthConnection

Reason: TypeAlias = Literal["missing", "refused", "scopes"]
"""Why somebody has to sign in: they never did, what they gave isn't taken any more, or it doesn't go far enough."""


class Unauthorized(BotError):
    """An account's token is not taken; a tool may raise it too. Who asked is then asked to sign in again, once a call.

    ``connection`` is the name. ``reason`` is ``scopes`` where the account is fine, but may not do this.
    """

    def __init__(self, connection: OAuthConnection | Need | str, *, reason: Reason = "refused") -> None:
        name = named(connection)
        super().__init__(f"{name} does not take the token of this account ({reason})")
        self.connection = name
        self.reason: Reason = reason


class HostNotBound(BotError):
    """A connection's client was asked to send the token somewhere that the connection doesn't name; nothing was sent."""

    def __init__(self, connection: str, host: str) -> None:
        super().__init__(f"connection {connection!r} is not bound to {host}; name it in hosts= if the token may go there")
        self.connection = connection
        self.host = host


class NotDeclared(BotError):
    """A body asks for a connection that its tool doesn't declare."""

    def __init__(self, connection: str, declared: tuple[str, ...]) -> None:
        known = ", ".join(declared) or "none"
        super().__init__(f"connection {connection!r} is not declared here, {known} is; add it to connections=[…]")
        self.connection = connection
        self.declared = declared


class TokenNotExposed(BotError):
    """A body asks for the token itself, which the connection doesn't give out."""

    def __init__(self, connection: str) -> None:
        super().__init__(
            f"connection {connection!r} keeps its token; use ctx.http(…), or declare it with expose_token=True and see to it "
            "that the token is not written anywhere"
        )
        self.connection = connection


class AccountUnreachable(BotError):
    """The provider could not be asked for a token: it is down, or refuses the app itself. Nobody has to sign in again."""

    def __init__(self, connection: str, reason: str, *, retryable: bool = True) -> None:
        super().__init__(f"{connection} could not be asked for a token: {reason}")
        self.connection = connection
        self.reason = reason
        self.retryable = retryable  # type: ignore[misc]  # the case decides, not the type


class RequestFailed(BotError):
    """A request with an account failed before there was an answer. ``sent`` says whether it may have had an effect."""

    retryable: ClassVar[bool] = True

    def __init__(self, connection: str, reason: str, *, sent: bool) -> None:
        super().__init__(f"{connection} could not be reached: {reason}")
        self.connection = connection
        self.reason = reason
        self.sent = sent


class StatusRefused(BotError):
    """``raise_for_status`` found a status of 400 or more."""

    def __init__(self, connection: str, status: int) -> None:
        super().__init__(f"{connection} answered with status {status}")
        self.connection = connection
        self.status = status
        self.retryable = status in {429, 502, 503, 504}  # type: ignore[misc]  # the case decides, not the type


class NotConnected(BotError):
    """The app's own account isn't connected; an operator connects it."""

    def __init__(self, connection: str) -> None:
        super().__init__(
            f"the app's own account at {connection} is not connected; run: moorings connections connect {connection}"
        )
        self.connection = connection


class UnknownAccount(BotError):
    """Somebody named an account that people don't sign in to here."""

    def __init__(self, account: str, known: tuple[str, ...]) -> None:
        super().__init__(f"people sign in to no {account!r} here; there is: {', '.join(known) or 'none'}")
        self.account = account
        self.known = known


class PrincipalRequired(BotError):
    """A connection of a person's was asked for where no person asked."""

    def __init__(self, connection: str) -> None:
        super().__init__(f"{connection} works with the account of whoever asks, and nobody in particular did")
        self.connection = connection


def named(connection: OAuthConnection | Need | str) -> str:
    """Return the name of a connection, however it was given."""
    return connection if isinstance(connection, str) else str(connection.name)
