"""Where what a provider gives the app for good is kept.

What lives here: the port of registrations. What does not: the vault behind it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from bot.connections.protocol.values import ClientAuth


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
