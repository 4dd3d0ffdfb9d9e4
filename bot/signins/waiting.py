"""Who waits for an account: whether a request has its answer by now, and who else has with it.

What lives here: looking at the account that a request asks for; settling all that one sign-in answers. What does not: the request
that a sign-in was made for (settle.py), branches of one workflow, which share a request (durable_core/authorizing.py).

Other turns and other workflows have requests of their own, each with its Cancel; whichever is connected first serves all.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from bot.cards import prompt_body
from bot.connections.connection import Need
from bot.connections.connections import Connections
from bot.principal import Principal
from bot.signins.attempt import Attempt, Stage
from bot.signins.settle import Settling
from bot.turn.state import Purpose
from durable_core.errors import DurableError, Unavailable
from durable_core.model import Prompt
from durable_core.store import Store

log = logging.getLogger("moorings.signins")

_SIGN_IN: Final = Purpose.SIGN_IN.value
_MANY: Final = 100
# once a sign-in that a person went through: it may look through what is open
_OTHERS: Final = """
    SELECT p.prompt_id FROM moor_prompt p
    WHERE p.outcome IS NULL AND p.kind = :kind AND p.requester = :requester AND p.prompt_id <> :done
        AND (SELECT r.last_at FROM moor_run r WHERE r.run_id = p.run_id) >= :since
    ORDER BY p.created_at LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Looks at requests to sign in, and at the accounts that they ask for."""

    store: Store
    connections: Connections
    settling: Settling
    since: int = 0
    """What nothing has happened to since then is of an earlier start of dev, and left alone."""

    async def account(self, prompt: Prompt) -> str | None:
        """Return the account that a request has got since, "" for one without a name; None while it has to be connected."""
        body = prompt_body(prompt)
        connection = self.connections.by_name.get(str(body["connection"]))
        if connection is None or connection.owner != "user":
            return None
        requester = Principal.from_json(body["requester"])
        need = Need(connection, tuple(str(one) for one in body["scopes"]))
        after = 0 if body["reason"] == "missing" else prompt.created_at
        if not await self.connections.connected_since(need, requester, after):
            return None
        credential = await self.connections.credential(connection, self.connections.owner_of(connection, requester))
        return "" if credential is None else credential.account

    async def serve(self, attempt: Attempt) -> None:
        """Settle the other requests of a person that what they connected just now answers. Raises: Unavailable."""
        if attempt.stage is not Stage.CONNECTED or attempt.shared:
            return
        about: dict[str, str | int | bytes | None] = {
            "kind": _SIGN_IN,
            "requester": attempt.principal,
            "done": attempt.prompt_id,
            "since": self.since,
            "limit": _MANY,
        }
        for (prompt_id,) in await self.store.rows(_OTHERS, about):
            try:
                await self._serve(attempt, str(prompt_id))
            except Unavailable:
                raise
            except DurableError as error:  # it is over, or can't be read: it has its own Connect
                log.info("sign-in %s: %s is not settled with it: %s", attempt.attempt_id, prompt_id, error)

    async def _serve(self, attempt: Attempt, prompt_id: str) -> None:
        prompt = await self.store.prompt(prompt_id)
        if prompt.outcome is not None or prompt_body(prompt).get("connection") != attempt.connection:
            return
        account = await self.account(prompt)
        if account is not None:
            await self.settling.pass_over(prompt, account, f"{attempt.attempt_id}:{prompt_id}")
