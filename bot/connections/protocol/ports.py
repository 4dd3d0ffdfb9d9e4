"""What a provider is made from, and where what it gives for good is kept.

What lives here: the shape of a connection as far as the protocol reads it, and the port of registrations. What does not: the
connection an author writes, and the vault behind the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from bot.connections.accounts import AccountSource
from bot.connections.protocol.values import ClientAuth


class ConnectionLike(Protocol):
    """A connection, as far as the protocol reads it. An address that begins with `/` is on the app's own public URL."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def client_id(self) -> Any: ...  # a text, or something whose `reveal()` gives one; empty where the app registers itself
    @property
    def client_secret(self) -> Any: ...  # a text, something whose `reveal()` gives one, or None
    @property
    def client_auth(self) -> str | None: ...  # a `ClientAuth`, or None: what the provider advertises, else Basic
    @property
    def issuer(self) -> str | None: ...
    @property
    def authorize_url(self) -> str | None: ...
    @property
    def token_url(self) -> str | None: ...
    @property
    def userinfo_url(self) -> str | None: ...
    @property
    def revoke_url(self) -> str | None: ...
    @property
    def device_url(self) -> str | None: ...
    @property
    def jwks_url(self) -> str | None: ...
    @property
    def extra(self) -> Mapping[str, str]: ...  # more parameters of the authorize address
    @property
    def scope_separator(self) -> str: ...
    @property
    def account(self) -> AccountSource | None: ...
    @property
    def resource(self) -> str | None: ...  # an MCP server's address (RFC 8707)


@dataclass(frozen=True, slots=True)
class Registration:
    """A client that a provider made for the app (RFC 7591). It belongs to that issuer and that redirect address."""

    issuer: str
    client_id: str
    secret: str | None = field(default=None, repr=False)
    _: KW_ONLY
    redirect_uri: str
    auth: ClientAuth = ClientAuth.NONE
    expires_at: int | None = None
    """When the secret ends, in seconds since the epoch; None: never."""


class Registrations(Protocol):
    """Where registrations are kept, one for an issuer and a redirect address, for all replicas."""

    async def find(self, issuer: str, redirect_uri: str) -> Registration | None:
        """Return the registration that stands."""
        ...

    async def keep(self, registration: Registration) -> Registration:
        """Keep it where none stands; returns the one that stands then, which may be another replica's."""
        ...

    async def drop(self, registration: Registration) -> None:
        """Forget it where it still stands: the provider knows it no more."""
        ...
