"""What a provider is made from, and where what it gives for good is kept.

What lives here: the shape of a connection as far as the protocol reads it, and the port of registrations. What does not: the
connection an author writes, and the vault behind the port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from bot.connections.protocol.values import ClientAuth


@dataclass(frozen=True, slots=True)
class AccountSource:
    """How to read who somebody is, where it is not OpenID's userinfo.

    Fields are paths into the answer (`data.viewer.id`); a name has several, and the first that is there counts. With `body` the
    address is asked by POST with that JSON (GraphQL). `email_verified`: a path, or True where the provider vouches for every
    address it tells.
    """

    subject: Sequence[str] = ("sub",)
    _: KW_ONLY
    name: Sequence[str] = ("name", "preferred_username")
    email: Sequence[str] = ("email",)
    email_verified: str | bool = "email_verified"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class ConnectionLike(Protocol):
    """A connection, as far as the protocol reads it. An address that begins with `/` is on the app's own public URL."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def client_id(self) -> str: ...
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
