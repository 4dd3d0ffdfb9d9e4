"""A process's connections: who is signed in to what, what a call is lent, and what becomes of what a sign-in brought.

What lives here: checks, lending, keeping, dropping, disconnecting. What does not: refreshing (tokens.py), bot/signins.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from bot.connections.client import Access
from bot.connections.connection import APP, Need, OAuthConnection
from bot.connections.credentials import KIND, Credential, Listed, about_of, entry_name, listed, opened, value_of
from bot.connections.errors import AccountUnreachable, NotConnected, PrincipalRequired, Reason, Unauthorized, UnknownAccount
from bot.connections.lent import Lent
from bot.connections.tokens import LEASE_MS, Tokens, issued_here
from durable_core.ids import new_id
from durable_core.model import VaultWrite

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bot.connections.protocol import Account, Provider, TokenGrant
    from bot.outgoing import Outgoing
    from bot.principal import Principal
    from durable_core.store import Store

log = logging.getLogger("moorings.connections")


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
    title: str = ""


class Connections:
    """The connections of a bot, on its store. One a runtime; `close` it before the store."""

    def __init__(
        self,
        connections: Mapping[str, OAuthConnection],
        *,
        store: Store,
        outgoing: Callable[[], Outgoing],
        public_url: str | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.by_name = dict(connections)
        self.store = store
        self._outgoing = outgoing
        self.public_url = public_url
        self.tokens = Tokens(store=store, provider=self.provider, sleep=sleep)
        self._providers: dict[str, Provider] = {}

    @property
    def outgoing(self) -> Outgoing:
        """The way out; made when it is first used, since it takes long to import."""
        return self._outgoing()

    def provider(self, connection: OAuthConnection) -> Provider:
        """Return the provider of a connection: one a process, with what it found out about it."""
        if connection.name not in self._providers:
            from bot.connections.protocol import Provider  # noqa: PLC0415 - an HTTP client, only where one is used
            from bot.connections.registrations import VaultRegistrations  # noqa: PLC0415 - same

            self._providers[connection.name] = Provider(
                connection,
                self.outgoing,
                public_url=self.public_url or "",
                registrations=VaultRegistrations(self.store),
            )
        return self._providers[connection.name]

    def owner_of(self, connection: OAuthConnection, requester: Principal) -> str:
        """Name whose account it is: who asks, or the app. Empty where nobody in particular asks."""
        return APP if connection.owner == "app" else requester.id

    async def check(self, needs: Sequence[Need], requester: Principal) -> Check:
        """Say whether a call may begin as a person, or what has to happen first, of the first need that lacks something."""
        for need in needs:
            found = await self._check(need, requester)
            if not isinstance(found, Ready):
                return found
        return Ready()

    async def connected_since(self, need: Need, requester: Principal, since: int) -> bool:
        """Tell whether a person has signed in, at a moment or after it, to all that is needed."""
        if not isinstance(await self._check(need, requester), Ready):
            return False
        kept = await self.credential(need.connection, self.owner_of(need.connection, requester))
        return kept is not None and kept.signed_in_at >= since

    async def _check(self, need: Need, requester: Principal) -> Check:
        connection = need.connection
        owner = self.owner_of(connection, requester)
        if not owner:
            return Barred("principal_required", str(PrincipalRequired(connection.title)))
        kept = await self.credential(connection, owner)
        automatic = connection.grant == "client_credentials"
        if kept is None and not automatic:
            return self._needs(need, "missing", kept)
        if kept is not None and not automatic and connection.lacking(need.scopes, kept.scopes):
            return self._needs(need, "scopes", kept)
        try:
            await self.tokens.access(need, owner)
        except (Unauthorized, NotConnected):
            return self._needs(need, "refused", kept)
        except AccountUnreachable as error:  # the body meets it where it asks, and may not even have to
            log.info("%s", error)
        return Ready()

    def _needs(self, need: Need, reason: Reason, kept: Credential | None) -> Check:
        if need.connection.owner == "app":
            return Barred("app_not_connected", str(NotConnected(need.name)))
        before = kept.scopes if kept is not None else ()
        return NeedsSignIn(need, reason, tuple(dict.fromkeys((*need.scopes, *before))))

    def lend(self, needs: Sequence[Need], requester: Principal, *, loop: asyncio.AbstractEventLoop | None = None) -> Lent:
        """Return what a body that runs as a person is given; nothing is read before it asks."""

        async def access(need: Need, refused: int | None) -> Access:
            return await self.access(need, requester, refused)

        async def refuse(need: Need, version: int) -> None:
            await self.drop(need.connection, self.owner_of(need.connection, requester), version)

        return Lent(
            needs=tuple(needs),
            public_url=self.public_url,
            access=access,
            refuse=refuse,
            leave=partial(self.leave, requester),
            outgoing=self.outgoing,
            loop=loop or asyncio.get_running_loop(),
        )

    async def access(self, need: Need, requester: Principal, refused: int | None = None) -> Access:
        """Return a token that is good now; told the version that was refused, one that is newer.

        Raises: Unauthorized, NotConnected, PrincipalRequired, AccountUnreachable.
        """
        owner = self.owner_of(need.connection, requester)
        if not owner:
            raise PrincipalRequired(need.connection.title)
        return await self.tokens.access(need, owner, refused)

    async def token(self, need: Need, requester: Principal, *, force: bool = False) -> str:
        """As `access`, the token alone; ``force`` has it renewed whatever it says of itself."""
        access = await self.access(need, requester)
        return (await self.access(need, requester, access.version) if force else access).token

    async def credential(self, connection: OAuthConnection, owner: str) -> Credential | None:
        """Return what is kept of an owner's account."""
        entry = await self.store.vault(entry_name(connection, owner))
        return None if entry is None else opened(entry.value)

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
        """Keep what a sign-in brought in place of what there was; returns its version. ``scopes`` is what was asked for, if more.

        ``also`` is written in the same transaction: the attempt that says "connected" and what was brought stand together, or
        neither does; then None is returned.
        """
        now = await self.store.now()
        credential = Credential(
            access_token=grant.access_token,
            refresh_token=grant.refresh_token,
            expires_at=None if grant.expires_in is None else now + grant.expires_in * 1000,
            scopes=tuple(grant.scopes if grant.scopes is not None else scopes or connection.scopes),
            subject=account.subject if account is not None else "",
            account=(account.name or account.email or account.subject) if account is not None else "",
            issuer=await self._issuer(connection),
            obtained_at=now,
            signed_in_at=now,
        )
        write = VaultWrite(
            name=entry_name(connection, owner),
            kind=KIND,
            owner=owner,
            value=value_of(credential),
            about=about_of(credential, connection),
        )
        versions = await self.store.vault_write([write, *also])
        return None if versions is None else versions[0]

    async def _issuer(self, connection: OAuthConnection) -> str:
        """Name who gave it, for lists; a grant isn't lost for want of this."""
        from bot.connections.protocol import ProtocolError  # noqa: PLC0415 - an HTTP client, only where one is used

        try:
            return (await self.provider(connection).endpoints()).issuer or ""
        except ProtocolError:
            return connection.issuer or ""

    async def drop(self, connection: OAuthConnection, owner: str, version: int) -> bool:
        """Forget a credential that was refused, if it is still the one that was used."""
        return await self.tokens.forget(entry_name(connection, owner), version)

    async def disconnect(self, connection: OAuthConnection, owner: str) -> Disconnected:
        """Revoke an owner's credential at its provider as far as that can be done, and forget it in any case."""
        name = entry_name(connection, owner)
        holder = new_id("ref")
        entry = await self.store.vault_hold(name, holder, ms=LEASE_MS)  # so that nobody renews it meanwhile
        revoked = await self._revoke(connection, opened(entry.value)) if entry is not None else None
        # what it had under another client or provider is of no use to anybody
        older = [line.name for line in await self.listed(owner=owner) if line.connection == connection.name]
        gone = dict.fromkeys([*([name] if entry is not None else []), *older])
        if gone:
            await self.store.vault_write([VaultWrite(name=name, kind=KIND, value=None) for name in gone])
        return Disconnected(found=bool(gone), revoked=revoked, title=connection.title)

    async def leave(self, requester: Principal, account: str) -> Disconnected:
        """Disconnect a person's account, by its connection's name or by what people call it. Raises: UnknownAccount."""
        wanted = account.strip().casefold()
        theirs = [connection for connection in self.by_name.values() if connection.owner == "user"]
        found = [connection for connection in theirs if connection.name.casefold() == wanted]
        found += [connection for connection in theirs if connection.title.casefold() == wanted]
        if not found:
            raise UnknownAccount(account, tuple(connection.title for connection in theirs))
        if requester.anonymous:
            raise PrincipalRequired(found[0].title)
        return await self.disconnect(found[0], self.owner_of(found[0], requester))

    async def _revoke(self, connection: OAuthConnection, credential: Credential) -> bool | None:
        """Tell the provider: the refresh token first, with which all that came of it goes (RFC 7009 §2.1)."""
        from bot.connections.protocol import ProtocolError  # noqa: PLC0415 - an HTTP client, only where one is used

        provider = self.provider(connection)
        tokens = [(credential.refresh_token, "refresh_token"), (credential.access_token, "access_token")]
        offered, failed = False, False
        for token, hint in tokens:
            if not token:
                continue
            try:
                offered |= await issued_here(provider, credential) and await provider.revoke(token, hint)
            except ProtocolError as error:
                failed = True
                log.warning("%s was forgotten here, but its %s could not be revoked there: %s", connection.name, hint, error)
        return False if failed else offered or None

    async def listed(self, *, owner: str | None = None, limit: int = 1_000) -> list[Listed]:
        """List what is kept, without opening anything."""
        found = await self.store.vault_list(kind=KIND, owner=owner, limit=limit)
        return [listed(line) for line in found]

    async def close(self) -> None:
        """Wait for what is being renewed."""
        await self.tokens.settle()
