"""Links: a fresh one each time somebody presses Connect, told to them alone.

What lives here: who asks and for what, read from the prompt; the link, its code and the words. What does not: who may press
(bot/answers.py), pages, and the device flow's own offer (device.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bot.answers import MOST_A_MINUTE
from bot.cards import prompt_body, settled_words
from bot.connections.connection import OAuthConnection
from bot.connections.connections import Connections
from bot.principal import Principal
from bot.signins.attempt import MINUTE_MS, VALID_MS, Attempt, Proof
from bot.signins.device import Devices
from bot.signins.keeping import Attempts
from bot.signins.proofs import Proofs
from bot.signins.secrets import hashed, joined, new_code, new_secret
from bot.signins.settle import Settling
from bot.signins.values import Offer
from bot.signins.waiting import Waiting
from durable_core.ids import new_id
from durable_core.model import Prompt

log = logging.getLogger("moorings.signins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Makes links."""

    attempts: Attempts
    connections: Connections
    proofs: Proofs
    settling: Settling
    waiting: Waiting
    devices: Devices
    public_url: Callable[[], str]

    async def for_prompt(self, prompt: Prompt) -> Offer:
        """Make a link for whoever a prompt asks, unless there is nothing to connect any more."""
        body = prompt_body(prompt)
        if prompt.outcome is not None:
            return Offer(words=f"{settled_words(prompt, body)} There is nothing to connect.")
        connection = self.connections.by_name.get(str(body["connection"]))
        if connection is None:
            return Offer(words=f"{body['title']} can't be connected any more: the app has been changed. Cancel, and ask again.")
        requester = Principal.from_json(body["requester"])
        if connection.owner != "user":  # the app has been changed since; whose account it would be, nobody was asked
            return Offer(words=f"{connection.title} is an account of the app's own by now: whoever runs the app connects it.")
        account = await self.waiting.account(prompt)
        if account is not None:
            await self.settling.pass_over(prompt, account, new_id("sgn"))
            return Offer(words=f"{connection.title} is connected already. It goes on.")
        address = str(body.get("address") or "")
        faults = await self.attempts.faults(requester.id, prompt.prompt_id)
        attempt = Attempt(
            attempt_id=new_id("sgn"),
            principal=requester.id,
            person=requester.name,
            connection=connection.name,
            owner=self.connections.owner_of(connection, requester),
            scopes=tuple(str(one) for one in body["scopes"]),
            prompt_id=prompt.prompt_id,
            run_id=prompt.run_id,
            session_id=str(body.get("session_id") or ""),
            agent=str(body.get("agent") or ""),
            channel=str(body.get("channel") or ""),
            address=address,
            tool=_tool(body),
            after=0 if body["reason"] == "missing" else prompt.created_at,
            proof=await self.proofs.choose(requester, connection, address, faults=faults),
            link_hash="",
            valid_until=0,
        )
        return await self.make(attempt, connection)

    async def make(self, attempt: Attempt, connection: OAuthConnection) -> Offer:
        """Keep an attempt and return the way to it; only here its secrets are in clear."""
        if connection.grant == "device":
            return await self.devices.begin(attempt, connection)
        attempt_id, secret = attempt.attempt_id, new_secret()
        code = new_code() if attempt.proof is Proof.CODE else None
        expires_at = await self.attempts.store.now() + VALID_MS
        made = replace(
            attempt,
            link_hash=hashed("link", attempt_id, secret),
            code_hash=hashed("code", attempt_id, code) if code is not None else "",
            valid_until=expires_at,
        )
        await self.attempts.add(made)
        log.info("sign-in %s: a link was made (%s, %s)", attempt_id, attempt.connection, attempt.proof.value)
        url = f"{self.public_url()}/connect/{joined(attempt_id, secret)}"
        return Offer(url=url, code=code, expires_at=expires_at, words=_words(connection.title, url, code))


def _tool(body: dict[str, Any]) -> str:
    return ", ".join(str(value) for name, value in body.get("fields") or () if name == "Tool")


def _words(title: str, url: str, code: str | None) -> str:
    asked = f"The page asks for this code: `{code}`\n\n" if code is not None else ""
    minutes = VALID_MS // MINUTE_MS
    fresh = f"Connect gives a fresh one, up to {MOST_A_MINUTE} a minute"
    return (
        f"[Connect {title}]({url})\n\n{asked}"
        f"The link is for you alone: pass it on to nobody. It is good for {minutes} minutes; {fresh}."
    )
