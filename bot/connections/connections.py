"""A process's connections: who is signed in to what, what a call is lent, and what becomes of what a sign-in brought.

What lives here: checks, lending, keeping, dropping, disconnecting. What does not: refreshing (tokens.py), bot/signins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from bot.connections.client import Access
from bot.connections.connection import Need, OAuthConnection
from bot.connections.credentials import Credential, Listed
from bot.connections.errors import Reason
from bot.connections.lent import Lent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.connections.protocol import Account, Provider, TokenGrant
    from bot.outgoing import Outgoing
    from bot.principal import Principal
    from durable_core.model import VaultWrite
    from durable_core.store import Store


@dataclass(frozen=True, slots=True)
class Ready:
    """Everybody whom the call needs is signed in."""


@dataclass(frozen=True, slots=True)
class NeedsSignIn:
    """Who asked has to sign in first. ``scopes`` is what to ask the provider for: what is needed, and what they gave before."""

    need: Need
    reason: Reason
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Barred:
    """Nobody can sign in for this call. ``reason`` is for the model, and says what would help."""

    code: Literal["principal_required", "app_not_connected"]
    reason: str


Check: TypeAlias = Ready | NeedsSignIn | Barred


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """What a disconnect found. ``revoked`` is None where the provider has no way to revoke, or nothing was kept."""

    found: bool
    revoked: bool | None


class Connections:
    """The connections of a bot, on its store. One a runtime."""

    def __init__(
        self,
        connections: Mapping[str, OAuthConnection],
        *,
        store: Store,
        outgoing: Outgoing,
        public_url: str | None,
    ) -> None:
        self.by_name = dict(connections)
        self.store = store
        self.outgoing = outgoing
        self.public_url = public_url

    def provider(self, connection: OAuthConnection) -> Provider:
        """Return the provider of a connection: one a process, with what it found out about it."""
        raise NotImplementedError

    def owner_of(self, connection: OAuthConnection, requester: Principal) -> str:
        """Name whose account it is: who asks, or the app. Empty where nobody in particular asks."""
        raise NotImplementedError

    async def check(self, needs: Sequence[Need], requester: Principal) -> Check:
        """Say whether a call may begin as a person, or what has to happen first, of the first need that lacks something."""
        raise NotImplementedError

    def lend(self, needs: Sequence[Need], requester: Principal) -> Lent:
        """Return what a body that runs as a person is given; nothing is read before it asks."""
        raise NotImplementedError

    async def access(self, need: Need, requester: Principal, refused: int | None = None) -> Access:
        """Return a token that is good now; told the version that was refused, one that is newer.

        Raises: Unauthorized, NotConnected, PrincipalRequired, AccountUnreachable.
        """
        raise NotImplementedError

    async def token(self, need: Need, requester: Principal, *, force: bool = False) -> str:
        """As `access`, the token alone; ``force`` has it refreshed whatever it says of itself."""
        raise NotImplementedError

    async def credential(self, connection: OAuthConnection, owner: str) -> Credential | None:
        """Return what is kept of an owner's account."""
        raise NotImplementedError

    async def keep(
        self,
        connection: OAuthConnection,
        owner: str,
        grant: TokenGrant,
        account: Account | None,
        *,
        scopes: Sequence[str] = (),
        also: Sequence[VaultWrite] = (),
    ) -> int | None:
        """Keep what a sign-in brought in place of what there was; returns its version. ``scopes`` is what was asked for.

        ``also`` is written in the same transaction: the attempt that says "connected" and what was brought stand together, or
        neither does; then None is returned.
        """
        raise NotImplementedError

    async def drop(self, connection: OAuthConnection, owner: str, version: int) -> bool:
        """Forget a credential that was refused, if it is still the one that was used."""
        raise NotImplementedError

    async def disconnect(self, connection: OAuthConnection, owner: str) -> Disconnected:
        """Revoke an owner's credential at its provider as far as that can be done, and forget it in any case."""
        raise NotImplementedError

    async def listed(self, *, owner: str | None = None, limit: int = 1_000) -> list[Listed]:
        """List what is kept, without opening anything."""
        raise NotImplementedError
