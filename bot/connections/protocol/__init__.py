"""OAuth 2 and OpenID Connect as a client, without a database and without a browser.

What lives here: what is asked of a provider and what its answers are worth. What does not: connections as an author writes
them, where tokens are kept, whether a state or a code was used before.
"""

from bot.connections.accounts import AccountSource
from bot.connections.protocol.errors import NoClient, ProtocolError, ProviderDown, ProviderNonsense, ProviderRefused
from bot.connections.protocol.ports import ConnectionLike, Registration, Registrations
from bot.connections.protocol.provider import Provider
from bot.connections.protocol.values import Account, Client, ClientAuth, DeviceStart, Endpoints, Pending, TokenGrant

__all__ = [
    "Account",
    "AccountSource",
    "Client",
    "ClientAuth",
    "ConnectionLike",
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
