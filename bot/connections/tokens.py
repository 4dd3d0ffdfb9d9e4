"""Tokens that are good now: read from the vault, and renewed by one at a time, however many processes need one.

What lives here: when a token is renewed, by whom, and what is made of each way in which that ends. What does not: the requests to
a provider (bot/connections/protocol), who may have whose token (connections.py).

A refresh token that rotates is good for one use: two at once lose both, and all that came of them (RFC 9700 §4.14). So whoever
renews holds the entry's lease, reads the entry again under it, and writes the new pair before anybody uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from bot.connections.client import Access
from bot.connections.credentials import KIND, Credential, about_of, entry_name, opened, value_of
from bot.connections.errors import AccountUnreachable, NotConnected, Unauthorized
from durable_core.errors import CommitUnknown, Unavailable
from durable_core.ids import new_id
from durable_core.model import VaultEntry, VaultWrite
from durable_core.retry import retrying_unavailable

if TYPE_CHECKING:
    from bot.connections.connection import Need, OAuthConnection
    from bot.connections.protocol import Provider, TokenGrant
    from durable_core.store import Store

log = logging.getLogger("moorings.connections")

LEASE_MS: Final = 60_000
"""How long one may renew: two requests of 15 s, and the writes."""
AHEAD: Final = 0.2
"""The share of a token's life before its end in which it is renewed, of which a half is jitter …"""
AHEAD_MS: Final = 600_000
"""… and at most so long before."""
PATIENCE_MS: Final = 30_000
"""After how long a renewal that isn't urgent is tried again, where one has failed."""
_AGAIN: Final = frozenset({"invalid_grant", "interaction_required", "login_required", "consent_required", "access_denied"})
"""Refusals of a refresh that only the person can mend; others are the app's or the provider's own."""
_PASSING: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
_LOOKS: Final = 4


class State(Enum):
    """What a kept credential is good for."""

    FRESH = "fresh"
    AGING = "aging"
    """Good, and renewed by whoever comes first."""
    SPENT = "spent"
    """To be renewed before anything else."""
    DEAD = "dead"
    """Nothing can renew it."""


def state_of(found: Found, now: int, *, refused: int | None, renewable: bool) -> State:
    """Judge a credential; ``refused`` is the version that somebody was refused with, if any."""
    credential = found.credential
    if not credential.access_token or (refused is not None and found.version <= refused):
        return State.SPENT if renewable else State.DEAD
    if credential.expires_at is None or now < renew_at(credential, found.version):
        return State.FRESH
    if now < credential.expires_at:
        return State.AGING if renewable else State.FRESH
    return State.SPENT if renewable else State.DEAD


def renew_at(credential: Credential, version: int) -> int:
    """When a token is renewed: ahead of its end, each at another moment, so that tokens of one minute don't all end in one.

    The moment is the same for all processes; they share a lease anyway.
    """
    if credential.expires_at is None:
        raise ValueError("a token without an end is never renewed ahead of it")
    life = max(0, credential.expires_at - credential.obtained_at)
    most = min(AHEAD_MS, int(life * AHEAD))
    seed = f"{credential.subject}\0{credential.obtained_at}\0{version}".encode()
    share = int.from_bytes(hashlib.sha256(seed).digest()[:4]) / 2**32
    return credential.expires_at - int(most * (0.5 + share / 2))


@dataclass(frozen=True, slots=True)
class Found:
    """A credential as it stands."""

    credential: Credential
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to be renewed."""

    need: Need
    owner: str
    name: str
    refused: int | None

    @property
    def connection(self) -> OAuthConnection:
        return self.need.connection

    @property
    def by_itself(self) -> bool:
        """Whether a new token takes no refresh token, and nobody's consent."""
        return self.connection.grant == "client_credentials"

    def renewable(self, credential: Credential) -> bool:
        return self.by_itself or credential.refresh_token is not None


@dataclass(slots=True, kw_only=True)
class Tokens:
    """Gives tokens. One a process: those who need the same one at once wait for one renewal."""

    store: Store
    provider: Callable[[OAuthConnection], Provider]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _failed_at: dict[str, int] = field(default_factory=dict)

    async def access(self, need: Need, owner: str, refused: int | None = None) -> Access:
        """Return a token that is good now; told a version that was refused, one that is newer.

        A credential that nothing can renew is forgotten.

        Raises: Unauthorized, NotConnected (of the app's own account), AccountUnreachable.
        """
        wanted = _Wanted(need=need, owner=owner, name=entry_name(need.connection, owner), refused=refused)
        for _ in range(_LOOKS):
            found = await self._found(wanted)
            if found is None:
                raise _gone(wanted)
            state = await self._judged(found, wanted)
            if state is State.FRESH:
                return Access(token=found.credential.access_token, version=found.version)
            if state is State.DEAD:
                await self.forget(wanted.name, found.version)
                raise _gone(wanted)
            if state is State.AGING:
                await self._renew_meanwhile(wanted)
                return Access(token=found.credential.access_token, version=found.version)
            await asyncio.shield(self._flight(wanted, urgent=True))
        raise AccountUnreachable(need.name, "its tokens change faster than they can be read")

    async def forget(self, name: str, version: int) -> bool:
        """Delete an entry, if it is still at this version."""
        async for attempt in retrying_unavailable():
            with attempt:
                return await self.store.vault_write([VaultWrite(name=name, kind=KIND, value=None, expect=version)]) is not None
        raise AssertionError("a retry ends by a result or an error")

    async def settle(self) -> None:
        """Wait for what is being renewed: a token that came and isn't written is lost."""
        while self._running:
            await asyncio.wait(set(self._running.values()))

    async def _found(self, wanted: _Wanted) -> Found | None:
        entry = await self.store.vault(wanted.name)
        if entry is None and wanted.by_itself:
            nothing = Credential(access_token="", expires_at=0)
            await self.store.vault_write([_write(wanted, nothing, expect=0)])
            entry = await self.store.vault(wanted.name)
        return None if entry is None else _opened(entry)

    async def _judged(self, found: Found, wanted: _Wanted) -> State:
        scopes = set(wanted.need.scopes) - set(found.credential.scopes)
        if wanted.by_itself and scopes:
            return State.SPENT
        now = await self.store.now()
        return state_of(found, now, refused=wanted.refused, renewable=wanted.renewable(found.credential))

    def _flight(self, wanted: _Wanted, *, urgent: bool) -> asyncio.Task[None]:
        """Renew together with all who need the same; one who is cancelled meanwhile breaks nothing off for the others."""
        task = self._running.get(wanted.name)
        if task is None:
            task = asyncio.create_task(self._renew(wanted, urgent=urgent), name="moorings-refresh")
            self._running[wanted.name] = task
            task.add_done_callback(lambda done: self._ended(wanted.name, done))
        return task

    async def _renew_meanwhile(self, wanted: _Wanted) -> None:
        """Begin to renew a token that is good a while yet; where that failed a moment ago, not yet again."""
        now = await self.store.now()
        if wanted.name not in self._running and now >= self._failed_at.get(wanted.name, -PATIENCE_MS) + PATIENCE_MS:
            self._failed_at[wanted.name] = now  # until it has worked
            self._flight(wanted, urgent=False)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled() and task.exception() is None:  # looked at here: nobody may be left who waits
            self._failed_at.pop(name, None)

    async def _renew(self, wanted: _Wanted, *, urgent: bool) -> None:
        """Renew under the lease; returns once the entry has changed, or somebody else is at it and there is no hurry."""
        holder = new_id("ref")
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1], int(2 * LEASE_MS / 1000 / _PAUSES[-1])))
        for pause in pauses:
            entry = await self.store.vault_hold(wanted.name, holder, ms=LEASE_MS)
            if entry is None:
                return
            if entry.holder == holder:
                await self._renew_held(wanted, entry, holder)
                return
            if not urgent or await self._judged(_opened(entry), wanted) in {State.FRESH, State.AGING}:
                return
            await self.sleep(pause)
        raise AccountUnreachable(wanted.need.name, "another process has been renewing its token for too long")

    async def _renew_held(self, wanted: _Wanted, entry: VaultEntry, holder: str) -> None:
        found = _opened(entry)
        try:
            if await self._judged(found, wanted) in {State.FRESH, State.DEAD}:  # it was renewed, or given up, meanwhile
                return
            asked_at = await self.store.now()
            grant = await self._granted(wanted, found)
            if grant is None:
                await self._give_up(wanted, found, holder)
            elif not await self._write(wanted, _merged(wanted, found.credential, grant, asked_at), found.version, holder):
                await self._overtaken(wanted, grant)
        finally:
            with contextlib.suppress(Unavailable):  # then it ends by itself
                await self.store.vault_release(wanted.name, holder)

    async def _overtaken(self, wanted: _Wanted, grant: TokenGrant) -> None:
        """Leave what was written meanwhile; what came for an account that was disconnected is ended at the provider."""
        log.info("the renewal of a token of %s was overtaken by a sign-in or a disconnect", wanted.need.name)
        if await self.store.vault(wanted.name) is None:
            from bot.connections.protocol import ProtocolError  # noqa: PLC0415

            with contextlib.suppress(ProtocolError):
                token, hint = (
                    grant.refresh_token or grant.access_token,
                    "refresh_token" if grant.refresh_token else "access_token",
                )
                await self.provider(wanted.connection).revoke(token, hint)

    async def _give_up(self, wanted: _Wanted, found: Found, holder: str) -> None:
        """Forget what nothing renews; an access token that is good a while yet is kept so long."""
        usable = replace(found.credential, refresh_token=None)
        now = await self.store.now()
        left = state_of(Found(usable, found.version), now, refused=wanted.refused, renewable=False)
        await self._write(wanted, None if left is State.DEAD else usable, found.version, holder)

    async def _granted(self, wanted: _Wanted, found: Found) -> TokenGrant | None:
        """Ask the provider; None where it says that this refresh token is no good any more.

        Where no answer came, the provider may have taken the token and given a new one that nobody has. It is asked once more,
        under the same lease: it then says so, and the person is asked. Not to ask again would have everybody sign in after each
        outage of a provider.
        """
        from bot.connections.protocol import ProtocolError, ProviderDown, ProviderNonsense, ProviderRefused  # noqa: PLC0415

        name = wanted.need.name
        provider = self.provider(wanted.connection)
        reason = ""
        for _ in range(2):
            try:
                if not await issued_here(provider, found.credential):
                    log.warning("%s is served by another provider than the one that gave a token of it", name)
                    return None
                if wanted.by_itself:
                    return await provider.client_credentials(_union(wanted.need.scopes, found.credential.scopes))
                return await provider.refresh(found.credential.refresh_token or "", scopes=())
            except ProviderRefused as error:
                if error.error in _AGAIN and not wanted.by_itself:
                    log.info("%s does not renew a token any more: %s", name, error.error)
                    return None
                raise AccountUnreachable(name, f"it refused: {error.error}", retryable=error.error in _PASSING) from None
            except ProviderDown as error:
                reason = error.reason
                if not error.sent:
                    break
            except ProviderNonsense as error:
                reason = error.reason
            except ProtocolError as error:
                raise AccountUnreachable(name, str(error), retryable=False) from None
        raise AccountUnreachable(name, reason)

    async def _write(self, wanted: _Wanted, credential: Credential | None, version: int, holder: str) -> bool:
        """Write what came, as surely as can be: the provider has forgotten what was there before."""
        write = _write(wanted, credential, expect=version, holder=holder)
        async for attempt in retrying_unavailable():
            with attempt:
                try:
                    return await self.store.vault_write([write]) is not None
                except CommitUnknown as error:  # it may stand: then this version is over, and a second write changes nothing
                    raise Unavailable(str(error)) from error
        raise AssertionError("a retry ends by a result or an error")


async def issued_here(provider: Provider, credential: Credential) -> bool:
    """Tell whether a credential is of the provider that is asked now.

    An MCP server names who signs people in to it, and may name another one any day: that one is shown no token of the first.
    """
    issuer = (await provider.endpoints()).issuer
    return not credential.issuer or credential.issuer == issuer


def _gone(wanted: _Wanted) -> Exception:
    return NotConnected(wanted.need.name) if wanted.connection.owner == "app" else Unauthorized(wanted.connection)


def _opened(entry: VaultEntry) -> Found:
    return Found(opened(entry.value), entry.version)


def _write(wanted: _Wanted, credential: Credential | None, *, expect: int, holder: str | None = None) -> VaultWrite:
    return VaultWrite(
        name=wanted.name,
        kind=KIND,
        owner=wanted.owner,
        value=None if credential is None else value_of(credential),
        about=b"" if credential is None else about_of(credential, wanted.connection),
        expect=expect,
        holder=holder,
    )


def _merged(wanted: _Wanted, before: Credential, grant: TokenGrant, asked_at: int) -> Credential:
    """What stands after a renewal: whatever the answer leaves out is as it was (RFC 6749 §6)."""
    unsaid = _union(wanted.need.scopes, before.scopes) if wanted.by_itself else before.scopes
    return replace(
        before,
        access_token=grant.access_token,
        refresh_token=grant.refresh_token or before.refresh_token,
        expires_at=None if grant.expires_in is None else asked_at + grant.expires_in * 1000,
        scopes=unsaid if grant.scopes is None or wanted.by_itself else grant.scopes,
        obtained_at=asked_at,
        signed_in_at=before.signed_in_at or asked_at,
    )


def _union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
