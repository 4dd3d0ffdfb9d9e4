"""From a code in hand to an account that is kept: spent once, judged, then stored together with the attempt that says so.

What lives here: the one exchange of an attempt and what can go wrong with it. What does not: callbacks (signins.py), telling the
conversation (settle.py), the protocol itself (bot/connections/protocol/).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from bot.connections.connection import OAuthConnection
from bot.connections.connections import Connections
from bot.connections.protocol import (
    Account,
    NoClient,
    ProtocolError,
    Provider,
    ProviderDown,
    ProviderNonsense,
    ProviderRefused,
    TokenGrant,
)
from bot.principal import Principal
from bot.signins.attempt import Attempt, Proof, Stage
from bot.signins.keeping import Attempts, Kept
from bot.signins.proofs import Proofs, channel_of
from channels.events import Standing
from durable_core.failpoints import hit

log = logging.getLogger("moorings.signins")

AGAIN: Final = "Nothing was connected. Press Connect in the conversation again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Spends the codes of attempts."""

    attempts: Attempts
    connections: Connections
    proofs: Proofs

    async def drive(self, kept: Kept) -> Kept:
        """Take an attempt that came back with a code to its end; whoever comes second sees where the first has got to."""
        attempt = kept.attempt
        connection = self.connections.by_name.get(attempt.connection)
        taken = await self.attempts.move(kept, replace(attempt, stage=Stage.EXCHANGING, code=""))
        if taken is None:
            return await self.attempts.find(attempt.attempt_id) or kept
        if connection is None or connection.identity != attempt.provider:
            gone = "The app that asked doesn't know this account any more. Nothing was connected."
            return await self._end(taken, failed(taken.attempt, "gone", gone))
        return await self.keep(taken, connection, code=attempt.code)

    async def keep(self, taken: Kept, connection: OAuthConnection, *, code: str) -> Kept:
        """Redeem the code and keep what it brings. The attempt is at `exchanging`, taken by this call alone."""
        attempt, provider = taken.attempt, self.connections.provider(connection)
        hit("connect.before_exchange")
        try:
            grant = await provider.exchange(
                code,
                verifier=attempt.verifier,
                redirect_uri=attempt.redirect_uri,
                nonce=attempt.nonce if "openid" in attempt.scopes else None,
            )
        except ProtocolError as error:
            return await self._end(taken, told(attempt, connection, error))
        hit("connect.after_exchange")
        return await self.granted(taken, connection, grant)

    async def granted(self, taken: Kept, connection: OAuthConnection, grant: TokenGrant) -> Kept:
        """Judge a grant in hand, and keep it together with the attempt's end."""
        provider = self.connections.provider(connection)
        account, before = await self._account(provider, grant), await self._before(taken.attempt, connection)
        judged = await self._judged(taken.attempt, connection, grant, account)
        if judged.stage is Stage.FAILED:
            if before is None:  # some providers end everything that the app was ever granted, the older tokens too
                await _give_back(provider, grant)
            return await self._end(taken, judged)
        done = replace(judged, stage=Stage.CONNECTED, account=_shown(account), note=_note(connection, grant, account, before))
        write = await self.attempts.moving(taken, done)
        kept = await self.connections.keep(
            connection, taken.attempt.owner, grant, account, scopes=taken.attempt.scopes, also=(write,)
        )
        hit("connect.after_store")
        found = await self.attempts.find(taken.attempt.attempt_id) or taken
        if kept is None and found.attempt.stage is not Stage.CONNECTED:  # it took so long that it was given up meanwhile
            log.warning("sign-in %s: what it brought came too late and is given back", taken.attempt.attempt_id)
            await _give_back(provider, grant)
        else:
            log.info("sign-in %s: connected", taken.attempt.attempt_id)
        return found

    async def give_back(self, connection: OAuthConnection, grant: TokenGrant) -> None:
        """Revoke what isn't kept, as far as that can be done."""
        await _give_back(self.connections.provider(connection), grant)

    def title(self, attempt: Attempt) -> str:
        """Name the account as people do."""
        connection = self.connections.by_name.get(attempt.connection)
        return attempt.connection if connection is None else connection.title

    async def _end(self, taken: Kept, attempt: Attempt) -> Kept:
        log.warning("sign-in %s: failed (%s)", attempt.attempt_id, attempt.fault)
        return await self.attempts.move(taken, attempt) or await self.attempts.find(attempt.attempt_id) or taken

    async def _account(self, provider: Provider, grant: TokenGrant) -> Account | None:
        """Ask whose account it is; one that can't be named now is still one that was granted."""
        try:
            return await provider.account(grant)
        except ProtocolError as error:
            log.info("whose account it is was not told: %s", type(error).__name__)
            return None

    async def _before(self, attempt: Attempt, connection: OAuthConnection) -> str | None:
        """Return the account that was connected before, by its name; None where there was none."""
        credential = await self.connections.credential(connection, attempt.owner)
        return None if credential is None else credential.account

    async def _judged(self, attempt: Attempt, connection: OAuthConnection, grant: TokenGrant, account: Account | None) -> Attempt:
        missing = connection.lacking(attempt.scopes, grant.scopes) if grant.scopes is not None else ()
        if missing:
            lacks = (
                f"{connection.title} did not allow all that is needed: {', '.join(missing)} is missing. Nothing was connected."
            )
            return failed(attempt, "scopes", lacks)
        if attempt.proof is Proof.EMAIL and not await self._is_theirs(attempt, account):
            device = connection.grant == "device"
            then = "it has to be the account with that address." if device else "the next link asks for a code."
            other = (
                f"The account at {connection.title} has no verified e-mail address that is {attempt.person}'s here, so it "
                f"isn't certain whose it is. {AGAIN[:-1]}: {then}"
            )
            return failed(attempt, "email", other)
        return attempt

    async def _is_theirs(self, attempt: Attempt, account: Account | None) -> bool:
        if account is None or not account.email or not account.email_verified:
            return False
        who = Principal(attempt.principal, attempt.person, Standing.UNKNOWN, channel=channel_of(attempt.principal))
        known = await self.proofs.email_of(who, attempt.address)
        return bool(known) and _folded(known) == _folded(account.email)


def failed(attempt: Attempt, fault: str, reason: str) -> Attempt:
    """Return an attempt that has failed; what it held is let go."""
    return replace(attempt, stage=Stage.FAILED, fault=fault, reason=reason, code="", verifier="", nonce="", state_hash="")


def told(attempt: Attempt, connection: OAuthConnection, error: ProtocolError) -> Attempt:
    """Return an attempt that a provider ended, with a sentence for the person."""
    title = connection.title
    match error:
        case ProviderRefused(error="access_denied"):
            reason = f"{attempt.person} declined at {title}." if attempt.person else f"Declined at {title}."
            return replace(failed(attempt, "declined", f"{reason} Nothing was connected."), stage=Stage.DECLINED)
        case ProviderDown():
            return failed(attempt, "down", f"{title} did not answer. {AGAIN}")
        case ProviderRefused():
            return failed(attempt, "refused", f"{title} refused ({error.error}). {AGAIN}")
        case ProviderNonsense():
            return failed(attempt, "nonsense", f"{title} gave an answer that can't be trusted. {AGAIN}")
        case NoClient():
            return failed(attempt, "client", f"{title} doesn't know this app. Whoever runs the app has to register it.")
        case _:
            return failed(attempt, "protocol", f"{title} could not be asked. {AGAIN}")


async def _give_back(provider: Provider, grant: TokenGrant) -> None:
    """Revoke what isn't kept, as far as that can be done."""
    try:
        if grant.refresh_token:
            await provider.revoke(grant.refresh_token, "refresh_token")
        await provider.revoke(grant.access_token, "access_token")
    except ProtocolError as error:
        log.info("what isn't kept could not be revoked: %s", type(error).__name__)


def _folded(email: str) -> str:
    """Return an address as two are compared: capitals count for nothing in ASCII, and letters that only look alike are others."""
    bare = email.strip()
    return bare.lower() if bare.isascii() else bare


def _shown(account: Account | None) -> str:
    return "" if account is None else account.name or account.email or account.subject


def _note(connection: OAuthConnection, grant: TokenGrant, account: Account | None, before: str | None) -> str:
    notes = []
    if before and _shown(account) and before != _shown(account):
        notes.append(f"Another account was connected before: {before}.")
    if grant.refresh_token is None and grant.expires_in is not None:
        notes.append(f"{connection.title} gives no means to renew this, so you will be asked again once it ends.")
    return " ".join(notes)
