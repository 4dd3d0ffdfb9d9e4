"""Who it is: which proof a sign-in asks for, and whether the chat platform's own sign-in names the right person.

What lives here: choosing, and the platform's answer judged. What does not: the code and its tries (signins.py), the provider's
e-mail address (exchange.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bot.connections.connection import OAuthConnection
from bot.connections.protocol import Provider, TokenGrant
from bot.outgoing import Outgoing
from bot.people import as_author
from bot.principal import Principal, principal_id
from bot.signins.attempt import Attempt, Proof
from bot.signins.drawn import named
from channels.contract import Channel, Identifies, KnowsEmail, Linkable
from channels.errors import ChannelError
from channels.events import Author, Standing
from channels.identity import IdentityProvider

log = logging.getLogger("moorings.signins")

LOOK_UP_SECONDS: Final = 5.0
IDENTITY_PATH: Final = "/connect/identity"
NAME: Final = "identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What the app's channels know of people."""

    channels: Mapping[str, Channel]
    outgoing: Callable[[], Outgoing]
    public_url: Callable[[], str]
    providers: dict[tuple[str, str], Provider] = field(default_factory=dict)

    async def choose(self, who: Principal, connection: OAuthConnection, address: str, *, faults: frozenset[str]) -> Proof:
        """Choose the strongest proof there is for a person; what failed for reasons that stay isn't asked for again."""
        identity = self._identity(who.channel, address)
        if identity is not None and self._comes_back(identity) and "identity" not in faults:
            return Proof.PLATFORM
        if connection.verifies_email and "email" not in faults and await self.email_of(who, address):
            return Proof.EMAIL
        return Proof.CODE

    async def knows_email(self, principal: str, person: str, address: str) -> bool:
        """Whether the chat platform vouches for an e-mail address of somebody now."""
        who = Principal(principal, person, Standing.UNKNOWN, channel=channel_of(principal))
        return bool(await self.email_of(who, address))

    async def email_of(self, who: Principal, address: str) -> str:
        """Return the e-mail address that the chat platform vouches for, "" where it tells none now."""
        channel: object = self.channels.get(who.channel)
        if not isinstance(channel, KnowsEmail) or who.anonymous or not address:
            return ""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await channel.email_of(address, as_author(who)) or ""
        except (ChannelError, TimeoutError, OSError) as error:
            log.info("%s tells no e-mail address now: %s", who.channel, type(error).__name__)
            return ""

    async def thread_url(self, channel: str, address: str) -> str:
        """Return the way back to a conversation, "" where there is none."""
        place: object = self.channels.get(channel)
        if not isinstance(place, Linkable) or not address:
            return ""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                url = await place.link_to(address) or ""
        except (ChannelError, TimeoutError, OSError) as error:
            log.info("%s gives no link to a conversation: %s", channel, type(error).__name__)
            return ""
        return url if url.startswith(("https://", "http://")) else ""

    # ── the platform's sign-in ──

    @property
    def redirect_uri(self) -> str:
        """Where a chat platform sends people back to."""
        return f"{self.public_url()}{IDENTITY_PATH}"

    async def platform_url(self, attempt: Attempt, *, state: str, verifier: str, nonce: str) -> str:
        """Build the address of the platform's sign-in. Raises: ProtocolError."""
        provider, identity = self._provider(attempt)
        return await provider.authorize_url(
            state=state, verifier=verifier, redirect_uri=self.redirect_uri, scopes=identity.scopes, nonce=nonce
        )

    async def is_person(self, attempt: Attempt, params: Mapping[str, str]) -> bool:
        """Whether whoever came back from the platform's sign-in is the person. Raises: ProtocolError."""
        provider, _ = self._provider(attempt)
        code = await provider.check_callback(params)
        grant = await provider.exchange(code, verifier=attempt.verifier, redirect_uri=self.redirect_uri, nonce=attempt.nonce)
        return self._names(attempt, grant)

    def _names(self, attempt: Attempt, grant: TokenGrant) -> bool:
        channel: object = self.channels.get(channel_of(attempt.principal))
        if not isinstance(channel, Identifies) or not grant.id_claims:
            return False
        wanted = as_author(Principal(attempt.principal, attempt.person, Standing.UNKNOWN))
        found = channel.author_of(grant.id_claims, wanted.tenancy or None)
        if found is None:
            return False
        author = Author(found[1], "", standing=Standing.UNKNOWN, tenancy=found[0])
        return principal_id(channel_of(attempt.principal), author) == attempt.principal

    def _comes_back(self, identity: IdentityProvider) -> bool:
        """Whether a platform sends people back to where the app is: one on https sends nobody to a plain-http address."""
        return self.public_url().startswith("https://") or identity.authorize_url.startswith("http://")

    def _identity(self, name: str, address: str) -> IdentityProvider | None:
        channel: object = self.channels.get(name)
        return channel.identity(address or None) if isinstance(channel, Identifies) else None

    def _provider(self, attempt: Attempt) -> tuple[Provider, IdentityProvider]:
        name = channel_of(attempt.principal)
        identity = self._identity(name, attempt.address)
        if identity is None:
            raise LookupError(f"{name} has no sign-in of its own any more")
        key = (name, repr(sorted(identity.extra.items())))
        if key not in self.providers:
            self.providers[key] = Provider(
                _connection(name, identity), self.outgoing(), public_url=self.public_url(), pkce=identity.pkce
            )
        return self.providers[key], identity


def channel_of(principal: str) -> str:
    """Name the channel that a person is known on."""
    return principal.partition(":")[0]


def _connection(name: str, identity: IdentityProvider) -> OAuthConnection:
    return OAuthConnection(
        NAME,
        title=named(name),
        issuer=identity.issuer,
        authorize_url=identity.authorize_url,
        token_url=identity.token_url,
        userinfo_url=identity.userinfo_url,
        jwks_url=identity.jwks_url,
        client_id=identity.client_id,
        client_secret=identity.client_secret or None,
        scopes=identity.scopes,
        extra=identity.extra,
    )
