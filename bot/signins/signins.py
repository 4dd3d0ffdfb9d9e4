"""Signing in, as the server, the commands and the sending of messages use it.

What lives here: each request of a browser, in order. What does not: HTTP (bot/server/connect.py), who may come in (door.py),
where they go (leaving.py), what goes on by itself (driving.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bot.connections.connection import APP, OAuthConnection
from bot.connections.connections import Connections
from bot.connections.protocol import ProtocolError
from bot.connections.protocol.registering import client_document
from bot.errors import NotReady
from bot.principal import Principal
from bot.signins import drawn
from bot.signins.attempt import Attempt, Proof, Stage
from bot.signins.device import Devices
from bot.signins.door import Door
from bot.signins.drawn import NOT_FOUND
from bot.signins.driving import WAIT_SECONDS, Driving
from bot.signins.exchange import Exchange, failed, told
from bot.signins.keeping import Attempts, Kept
from bot.signins.leaving import Leaving, not_proven
from bot.signins.offers import Offers
from bot.signins.page import Page, PageKind
from bot.signins.proofs import Proofs, channel_of
from bot.signins.settle import Settling
from bot.signins.values import Done, Go, Offer
from bot.signins.waiting import Waiting
from bot.turn.state import Purpose
from channels.contract import Channel
from durable_core.errors import NotFound
from durable_core.failpoints import hit
from durable_core.ids import new_id
from durable_core.store import Store

_RACES: Final = 3

_MOVED: Final = "Something else went on with this at the same moment. Go back and try once more."


class SignIns:
    """The sign-ins of a bot, on its store. Any process may go on with what another has begun."""

    def __init__(
        self,
        *,
        store: Store,
        connections: Connections,
        channels: Mapping[str, Channel],
        patience: float = WAIT_SECONDS,
        dormant_before: int = 0,
    ) -> None:
        self.store = store
        self.connections = connections
        attempts, settling = Attempts(store=store), Settling(store=store)
        proofs = Proofs(channels=channels, outgoing=lambda: connections.outgoing, public_url=self.public_url)
        exchange = Exchange(attempts=attempts, connections=connections, proofs=proofs)
        self.attempts = attempts
        waiting = Waiting(store=store, connections=connections, settling=settling, since=dormant_before)
        devices = Devices(attempts=attempts, connections=connections, proofs=proofs, settling=settling, exchange=exchange)
        self.driving = Driving(
            attempts=attempts, exchange=exchange, settling=settling, waiting=waiting, devices=devices, patience=patience
        )
        self._proofs = proofs
        self._offers = Offers(
            attempts=attempts,
            connections=connections,
            proofs=proofs,
            settling=settling,
            waiting=waiting,
            devices=devices,
            public_url=self.public_url,
        )
        self._door = Door(
            attempts=attempts,
            connections=connections,
            proofs=proofs,
            settling=settling,
            driving=self.driving,
            public_url=self.public_url,
        )
        self._leaving = Leaving(
            attempts=attempts,
            connections=connections,
            proofs=proofs,
            settling=settling,
            driving=self.driving,
            door=self._door,
        )

    def public_url(self) -> str:
        """Return the app's own address, without a slash at its end. Raises: NotReady."""
        if not self.connections.public_url:
            raise NotReady("MOORINGS_PUBLIC_URL is not set, so nobody can be sent a link to sign in.")
        return self.connections.public_url.rstrip("/")

    def client_document(self) -> dict[str, Any]:
        """Say who the app is, for providers that read such a document in place of a registration."""
        url = self.public_url()
        return client_document(url, [one.redirect_uri(url) for one in self.connections.by_name.values() if one.needs_browser])

    # ── links ──

    async def offer(self, prompt_id: str) -> Offer:
        """Make a fresh link for whoever a sign-in prompt asks; the caller tells it to nobody else. Raises: NotFound."""
        prompt = await self.store.prompt(prompt_id)
        if prompt.kind != Purpose.SIGN_IN.value:
            raise NotFound("prompt", prompt_id)
        return await self._offers.for_prompt(prompt)

    async def offer_app(self, connection: OAuthConnection, by: Principal) -> Offer:
        """Make a link to connect the app's own account, for an operator."""
        attempt = Attempt(
            attempt_id=new_id("sgn"),
            principal=by.id,
            person=by.name,
            connection=connection.name,
            owner=APP,
            scopes=tuple(connection.scopes),
            link_hash="",
            valid_until=0,
        )
        return await self._offers.make(attempt, connection)

    # ── what a browser asks for ──

    async def view(self, token: str, cookies: Mapping[str, str]) -> Page:
        """Show what a link is for, or what has come of it; nothing is changed."""
        kept = await self._door.linked(token)
        if kept is None:
            return NOT_FOUND
        page = await self._door.in_the_way(kept, cookies)
        return page or drawn.confirm(kept, await self._door.scene(kept.attempt), path=_path(token))

    async def begin(self, token: str, cookies: Mapping[str, str], form: Mapping[str, str]) -> Go | Done | Page:
        """Go on from the page that a link opens: bind the browser, prove the person, leave for the provider."""
        press = form.get("press", "")
        for _ in range(_RACES):
            kept = await self._door.linked(token)
            if kept is None:
                return NOT_FOUND
            page = await self._door.in_the_way(kept, cookies, press=press)
            if page is not None:
                return page
            going: Kept | Page | None = kept
            if kept.attempt.stage is Stage.OPENED and kept.attempt.proof is Proof.CODE:
                going = await self._leaving.code_tried(kept, form.get("code", ""), path=_path(token))
            found = await self._leaving.leave(going, cookies, press=press) if isinstance(going, Kept) else going
            if found is not None:
                return found
        return replace(NOT_FOUND, kind=PageKind.FAILED, reason=_MOVED)

    async def decline(self, token: str, cookies: Mapping[str, str]) -> Page:
        """Say no on the page that a link opens."""
        kept = await self._door.linked(token)
        if kept is None:
            return NOT_FOUND
        page = await self._door.in_the_way(kept, cookies)
        if page is not None:
            return page
        attempt = kept.attempt
        reason = f"{attempt.person or 'Somebody'} declined to connect {self._door.title(attempt)}. Nothing was connected."
        fault = "declined" if attempt.stage is Stage.STARTED else "link"
        ended = await self.driving.ended(kept, replace(failed(attempt, fault, reason), stage=Stage.DECLINED))
        return drawn.shown(ended, await self._door.scene(ended.attempt))

    async def identified(self, params: Mapping[str, str], cookies: Mapping[str, str]) -> Go | Done | Page:
        """Come back from the chat platform's sign-in, and leave for the provider if it is the person."""
        kept = await self._door.came_back(params, cookies, Stage.PROVING)
        if not isinstance(kept, Kept):
            return kept
        attempt = kept.attempt
        done = Done(attempt_id=attempt.attempt_id)
        taken = await self.attempts.move(kept, replace(attempt, state_hash="", spent_hash=attempt.state_hash))
        if taken is None:
            return done
        platform = drawn.named(channel_of(attempt.principal))
        try:
            right = await self._proofs.is_person(attempt, params)
        except (ProtocolError, LookupError) as error:
            await self.driving.ended(taken, not_proven(taken.attempt, platform, error))
            return done
        if not right:
            other = (
                f"Whoever signed in at {platform} is not {attempt.person}, for whom the link is. Nothing was connected. "
                "Press Connect in the conversation for a fresh link."
            )
            await self.driving.ended(taken, failed(taken.attempt, "other_person", other))
            return done
        return await self._leaving.to_provider(taken, cookies) or done

    async def returned(self, connection: str, params: Mapping[str, str], cookies: Mapping[str, str]) -> Done | Page:
        """Come back from the provider: take the state, spend the code, tell the conversation."""
        kept = await self._door.came_back(params, cookies, Stage.STARTED, connection=connection)
        if not isinstance(kept, Kept):
            return kept
        attempt, known = kept.attempt, self.connections.by_name.get(connection)
        done = Done(attempt_id=attempt.attempt_id)
        spent = replace(attempt, state_hash="", spent_hash=attempt.state_hash)
        if known is None or known.identity != attempt.provider:
            gone = "The app doesn't know this account any more. Nothing was connected."
            await self.driving.ended(kept, failed(spent, "gone", gone))
            return done
        try:
            code = await self.connections.provider(known).check_callback(params)
        except ProtocolError as error:
            await self.driving.ended(kept, told(spent, known, error))
            return done
        taken = await self.attempts.move(kept, replace(spent, stage=Stage.RETURNED, code=code))
        if taken is not None:
            hit("connect.after_callback")
            await self.driving.patiently(taken)
        return done

    async def page(self, attempt_id: str, cookies: Mapping[str, str]) -> Page:
        """Show what came of an attempt, to the browser that it is bound to."""
        kept = await self.attempts.find(attempt_id)
        if kept is None:
            return NOT_FOUND
        scene = await self._door.scene(kept.attempt)
        return drawn.shown(kept, scene) if self._door.bound(kept.attempt, cookies) else drawn.other_browser(kept.attempt, scene)

    # ── what goes on by itself ──

    async def sweep(self) -> int:
        """Go on with what a process that is gone has left; how many there were."""
        return await self.driving.sweep()

    async def keep_sweeping(self) -> None:
        """Sweep for as long as the process runs."""
        await self.driving.keep_sweeping()

    async def close(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait a while for exchanges under way."""
        await self.driving.close(seconds)


def _path(token: str) -> str:
    return f"/connect/{token}"
