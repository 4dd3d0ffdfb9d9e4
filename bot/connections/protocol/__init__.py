"""OAuth 2 and OpenID Connect as a client, without a database and without a browser.

What lives here: what is asked of a provider and what its answers are worth. What does not: connections as an author writes
them, where tokens are kept, whether a state or a code was used before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.connections.accounts import AccountSource
from bot.connections.protocol.errors import NoClient, ProtocolError, ProviderDown, ProviderNonsense, ProviderRefused
from bot.connections.protocol.ports import Registration, Registrations
from bot.connections.protocol.values import Account, Client, ClientAuth, DeviceStart, Endpoints, Pending, TokenGrant

if TYPE_CHECKING:
    from bot.connections.protocol.provider import Provider

__all__ = [
    "Account",
    "AccountSource",
    "Client",
    "ClientAuth",
    "DeviceStart",
    "Endpoints",
    "NoClient",
    "Pending",
    "ProtocolError",
    "Provider",
    "ProviderDown",
    "ProviderNonsense",
    "ProviderRefused",
    "Registration",
    "Registrations",
    "TokenGrant",
]


def __getattr__(name: str) -> Any:
    """Load `Provider` when it is first used: it brings the libraries, and values are imported by what starts quickly."""
    if name == "Provider":
        from bot.connections.protocol.provider import Provider  # noqa: PLC0415 - see above

        return Provider
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
