"""Leaving for another site: the chat platform, to prove who it is, or the provider; with a fresh state each time.

What lives here: what is kept before a browser leaves, and where it goes. What does not: who may (door.py), coming back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bot.connections.connection import Need, OAuthConnection
from bot.connections.connections import Connections
from bot.connections.protocol import ProtocolError
from bot.principal import Principal
from bot.signins import drawn
from bot.signins.attempt import TRIES, VALID_MS, Attempt, Proof, Stage
from bot.signins.door import Door
from bot.signins.driving import Driving
from bot.signins.exchange import failed, told
from bot.signins.keeping import Attempts, Kept
from bot.signins.page import Page
from bot.signins.proofs import Proofs, channel_of
from bot.signins.secrets import hashed, joined, new_secret, same
from bot.signins.settle import Settling
from bot.signins.values import Cookie, Done, Go
from channels.events import Standing

log = logging.getLogger("moorings.signins")

_GIVE_IT: Final = "Give the six digits that stand beside the link in your conversation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Sends browsers on. A result of None: somebody else has moved the attempt; look again."""

    attempts: Attempts
    connections: Connections
    proofs: Proofs
    settling: Settling
    driving: Driving
    door: Door

    async def code_tried(self, kept: Kept, given: str, *, path: str) -> Kept | Page | None:
        """Hold a code against the one that was told: go on with what is returned, or show it. None: look again.

        A try is counted before it is looked at, so that guesses which come all at once are no more tries than those in a row.
        """
        attempt, scene = kept.attempt, await self.door.scene(kept.attempt)
        code = "".join(given.split())
        if not code:
            return drawn.confirm(kept, scene, path=path, problem=_GIVE_IT)
        counted = await self.attempts.move(kept, replace(attempt, tries=attempt.tries + 1))
        if counted is None:
            return None
        if same(attempt.code_hash, "code", attempt.attempt_id, code):
            return counted
        left = TRIES - counted.attempt.tries
        if left > 0:
            problem = f"That isn't the code. {left} {'try is' if left == 1 else 'tries are'} left."
            return drawn.confirm(counted, scene, path=path, problem=problem)
        reason = f"A wrong code was given {TRIES} times at your link, so it is good no more. Press Connect for a fresh one."
        ended = await self.driving.ended(counted, failed(counted.attempt, "tries", reason))
        return drawn.shown(ended, scene)

    async def leave(self, kept: Kept, cookies: Mapping[str, str], *, press: str) -> Go | Done | Page | None:
        """Go where the attempt has to go next; `press` names the page whose button was pressed."""
        if press:
            kept = replace(kept, attempt=replace(kept.attempt, press_hash=hashed("press", kept.attempt.attempt_id, press)))
        attempt = kept.attempt
        if attempt.proof is Proof.PLATFORM and attempt.stage is not Stage.STARTED:
            return await self._to_platform(kept, cookies)
        return await self.to_provider(kept, cookies)

    async def to_provider(self, kept: Kept, cookies: Mapping[str, str]) -> Go | Done | Page | None:
        """Leave for the provider, unless the account is there by now. Who it is has been proven as far as it can be here."""
        connection = self.connections.by_name.get(kept.attempt.connection)
        if connection is None:
            reason = "The app doesn't know this account any more. Nothing was connected."
            return drawn.failed(kept.attempt, await self.door.scene(kept.attempt), reason)
        attempt, cookie = self.door.binding(kept.attempt, cookies)
        if await self._connected_meanwhile(attempt, connection):
            credential = await self.connections.credential(connection, attempt.owner)
            account = "" if credential is None else credential.account
            done = replace(attempt, stage=Stage.CONNECTED, account=account, note="It had been connected meanwhile.", code_hash="")
            moved = await self.attempts.move(kept, done)
            if moved is None:
                return None
            await self.driving.tell(moved)
            return Done(attempt_id=attempt.attempt_id, cookie=cookie)
        state, verifier, nonce = new_secret(), new_secret() + new_secret(), new_secret()
        redirect_uri = connection.redirect_uri(self.door.public_url())
        try:
            url = await self.connections.provider(connection).authorize_url(
                state=joined(attempt.attempt_id, state),
                verifier=verifier,
                redirect_uri=redirect_uri,
                scopes=attempt.scopes,
                nonce=nonce,
            )
        except ProtocolError as error:
            return await self._unreachable(kept, connection, error)
        leaving = replace(
            attempt,
            stage=Stage.STARTED,
            verifier=verifier,
            nonce=nonce,
            redirect_uri=redirect_uri,
            provider=connection.identity,
        )
        moved = await self._left(kept, leaving, state)
        return await self._go(moved, url, connection.title, cookie) if moved is not None else None

    async def _to_platform(self, kept: Kept, cookies: Mapping[str, str]) -> Go | Page | None:
        attempt, cookie = self.door.binding(kept.attempt, cookies)
        platform = drawn.named(channel_of(attempt.principal))
        state, verifier, nonce = new_secret(), new_secret() + new_secret(), new_secret()
        try:
            url = await self.proofs.platform_url(attempt, state=joined(attempt.attempt_id, state), verifier=verifier, nonce=nonce)
        except (ProtocolError, LookupError) as error:
            log.warning("sign-in %s: %s can't be asked who it is (%s)", attempt.attempt_id, platform, type(error).__name__)
            ended = await self.driving.ended(kept, not_proven(attempt, platform, error))
            return drawn.shown(ended, await self.door.scene(ended.attempt))
        leaving = replace(attempt, stage=Stage.PROVING, verifier=verifier, nonce=nonce)
        moved = await self._left(kept, leaving, state)
        return await self._go(moved, url, platform, cookie) if moved is not None else None

    async def _go(self, kept: Kept, url: str, to: str, cookie: Cookie | None) -> Go:
        page = drawn.leaving(kept.attempt, await self.door.scene(kept.attempt), url=url, to=to)
        return Go(url=url, cookie=cookie, page=page)

    async def _left(self, kept: Kept, attempt: Attempt, state: str) -> Kept | None:
        fresh = replace(
            attempt,
            state_hash=hashed("state", attempt.attempt_id, state),
            valid_until=await self.attempts.store.now() + VALID_MS,
            code_hash="",
        )
        return await self.attempts.move(kept, fresh)

    async def _connected_meanwhile(self, attempt: Attempt, connection: OAuthConnection) -> bool:
        """Whether another sign-in has brought what is needed. Not asked where the provider itself is the proof."""
        if attempt.shared or attempt.proof is Proof.EMAIL:
            return False
        who = Principal(attempt.principal, attempt.person, Standing.UNKNOWN, channel=channel_of(attempt.principal))
        return await self.connections.connected_since(Need(connection, attempt.scopes), who, attempt.after)

    async def _unreachable(self, kept: Kept, connection: OAuthConnection, error: ProtocolError) -> Page:
        """Say that the provider could not be asked; nothing is spent, no try either, so the link stays good."""
        if kept.attempt.tries:
            await self.attempts.move(kept, replace(kept.attempt, tries=kept.attempt.tries - 1))
        reason = told(kept.attempt, connection, error).reason
        log.warning("sign-in %s: %s can't be begun (%s)", kept.attempt.attempt_id, connection.name, type(error).__name__)
        await self.settling.line(kept.attempt, reason)
        return drawn.failed(kept.attempt, await self.door.scene(kept.attempt), reason)


def not_proven(attempt: Attempt, platform: str, error: Exception) -> Attempt:
    """Return an attempt whose person could not be proven by the chat platform."""
    fault = "identity_refused" if getattr(error, "error", "") == "access_denied" else "identity"
    return failed(
        attempt, fault, f"{platform} did not say who you are. Nothing was connected. Press Connect in the conversation again."
    )
