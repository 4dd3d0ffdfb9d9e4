"""The device flow (RFC 8628): a code that the person types at the provider, which is asked now and then whether they have.

What lives here: beginning one, and one question to the provider, by whichever process comes first. What does not: when it is due
(keeping.py, driving.py), what is made of a grant (exchange.py).

A question is taken by compare-and-set, so that two replicas ask as one: providers count how often they are asked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from bot.connections.connection import OAuthConnection
from bot.connections.connections import Connections
from bot.connections.protocol import Pending, ProtocolError, ProviderDown, ProviderRefused, TokenGrant
from bot.signins.attempt import Attempt, Proof, Stage
from bot.signins.exchange import Exchange, failed, told
from bot.signins.keeping import Attempts, Kept
from bot.signins.proofs import Proofs
from bot.signins.settle import Settling
from bot.signins.values import Offer
from durable_core.failpoints import hit

log = logging.getLogger("moorings.signins")

SLOWER: Final = 5
"""Seconds that `slow_down` adds to the interval, for good (RFC 8628 §3.5)."""
ASKING_MS: Final = 60_000
"""How long one question is left to the process that asks it."""
MOST_MS: Final = 30 * 60_000
"""How long a code is asked about at most, whatever the provider says."""
_AGAIN: Final = "Nothing was connected. Press Connect in the conversation for a new code."


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Begins device flows, and asks how they are."""

    attempts: Attempts
    connections: Connections
    proofs: Proofs
    settling: Settling
    exchange: Exchange

    async def begin(self, attempt: Attempt, connection: OAuthConnection) -> Offer:
        """Have the provider make a code, and return what is told to the person alone."""
        try:
            start = await self.connections.provider(connection).start_device(attempt.scopes)
        except ProtocolError as error:
            log.warning("sign-in %s: no code from %s: %s", attempt.attempt_id, attempt.connection, type(error).__name__)
            return Offer(words=told(attempt, connection, error).reason)
        at = await self.attempts.store.now()
        expires_at = at + min(start.expires_in * 1000, MOST_MS)
        made = replace(
            attempt,
            stage=Stage.POLLING,
            proof=await self._proof(attempt, connection),
            provider=connection.identity,
            device_code=start.device_code,
            interval=start.interval,
            valid_until=expires_at,
        )
        await self.attempts.add(made, due_at=at + made.interval * 1000)
        log.info("sign-in %s: a code was made (%s)", made.attempt_id, made.connection)
        words = _words(connection.title, start.uri, start.user_code, max(1, (expires_at - at) // 60_000))
        return Offer(url=start.uri, code=start.user_code, expires_at=expires_at, words=words)

    async def ask(self, kept: Kept) -> Kept | None:
        """Ask the provider once; an ended attempt is returned, to be told. None while it goes on, or another one is at it."""
        attempt = kept.attempt
        connection = self.connections.by_name.get(attempt.connection)
        if connection is None or connection.identity != attempt.provider:
            gone = "The app that asked doesn't know this account any more. Nothing was connected."
            return await self.attempts.move(kept, _ended(attempt, "gone", gone))
        if await self.settling.over(attempt) is not None:
            over = f"{connection.title} is not asked for any more. Nothing was connected."
            return await self.attempts.move(kept, _ended(attempt, "over", over))
        if kept.over:
            late = f"Nobody typed the code at {connection.title} in time. {_AGAIN}"
            return await self.attempts.move(kept, _ended(attempt, "expired", late))
        taken = await self.attempts.move(kept, attempt, due_at=kept.at + ASKING_MS)
        return None if taken is None else await self._asked(taken, connection)

    async def _asked(self, taken: Kept, connection: OAuthConnection) -> Kept | None:
        attempt = taken.attempt
        hit("connect.before_exchange")
        try:
            answer = await self.connections.provider(connection).poll_device(attempt.device_code)
        except ProviderDown as error:  # it may be back before the code is over
            log.info("sign-in %s: %s is asked again later: %s", attempt.attempt_id, attempt.connection, error.reason)
            await self._later(taken, attempt.interval * 2)
            return None
        except ProviderRefused as error:
            if error.error == "expired_token":
                late = f"The code for {connection.title} is over. {_AGAIN}"
                return await self.attempts.move(taken, _ended(attempt, "expired", late))
            return await self.attempts.move(taken, replace(told(attempt, connection, error), device_code=""))
        except ProtocolError as error:
            return await self.attempts.move(taken, replace(told(attempt, connection, error), device_code=""))
        if isinstance(answer, Pending):
            await self._later(taken, attempt.interval + (SLOWER if answer.slow_down else 0), keep=answer.slow_down)
            return None
        return await self._granted(taken, connection, answer)

    async def _granted(self, taken: Kept, connection: OAuthConnection, grant: TokenGrant) -> Kept | None:
        """Keep what came. The code is spent: a process that dies from here on leaves an attempt that is cut off."""
        hit("connect.after_exchange")
        held = await self.attempts.move(taken, replace(taken.attempt, stage=Stage.EXCHANGING, device_code=""))
        if held is None:
            await self.exchange.give_back(connection, grant)
            return None
        return await self.exchange.granted(held, connection, grant)

    async def _later(self, taken: Kept, seconds: int, *, keep: bool = False) -> None:
        """Ask again after so long; with ``keep`` that is the interval from now on."""
        attempt = replace(taken.attempt, interval=seconds) if keep else taken.attempt
        at = await self.attempts.store.now()
        await self.attempts.move(taken, attempt, due_at=min(at + seconds * 1000, max(at, attempt.valid_until)))

    async def _proof(self, attempt: Attempt, connection: OAuthConnection) -> Proof:
        """The provider's word for whose account it is, where it counts: no page of ours is opened that could prove more.

        A code can be passed on to somebody else, whose account would then be connected; so the weaker proof isn't fallen back to.
        """
        if connection.verifies_email and not attempt.shared:
            return (
                Proof.EMAIL if await self.proofs.knows_email(attempt.principal, attempt.person, attempt.address) else Proof.CODE
            )
        return Proof.CODE


def _ended(attempt: Attempt, fault: str, reason: str) -> Attempt:
    return replace(failed(attempt, fault, reason), device_code="")


def _words(title: str, uri: str, code: str, minutes: int) -> str:
    return (
        f"To connect {title}, open {uri} and type this code: `{code}`\n\n"
        f"The code is for you alone: pass it on to nobody. It is good for {minutes} minutes; Connect gives a new one. "
        "It goes on here by itself once you have finished there."
    )
