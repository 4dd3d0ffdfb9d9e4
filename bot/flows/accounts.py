"""Accounts of people in workflows: what a step is lent, and whether a run has to ask for one.

What lives here: `connected`, the looks of `ctx.authorize`, errors in words. What does not: tokens (bot/connections), the
request to connect an account (surface.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pydantic import JsonValue

from bot.connections.client import Access, ConnectionClient
from bot.connections.connection import Need, OAuthConnection
from bot.connections.connections import Barred, Connections, NeedsSignIn
from bot.connections.errors import HostNotBound, NotConnected, PrincipalRequired, Unauthorized
from bot.connections.lent import Lent
from bot.flows.origin import Conversation, read_origin
from bot.principal import Principal
from bot.turn.questions import REMIND_MS
from bot.turn.signing import CONNECTED
from channels.events import Standing
from durable_core import codec
from durable_core.context import step_context
from durable_core.crypto import payload_digest
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.failures import Fatal
from durable_core.ids import new_id
from durable_core.model import Admission, CommandKind, ToRun

SOURCE: Final = "account"
_NOBODY: Final = Principal("", "nobody", Standing.UNKNOWN)
_FINAL: Final = (PrincipalRequired, NotConnected, HostNotBound)
"""Errors that a further attempt of a step meets again."""


class AccountRefused(Fatal):
    """A step could not act with an account; no further attempt is made. ``code`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """What the steps of a process's runs are lent. ``private`` says of a channel whether it can tell one person alone."""

    connections: Connections
    private: Callable[[str], bool] = lambda _: True

    def __call__(self, run_id: str, origin: Any) -> RunAccounts:
        """Lend the accounts of whoever a run works for, for one attempt of a step."""
        home = read_origin(origin)
        requester = home.requester if home is not None else _NOBODY
        return RunAccounts(run_id=run_id, home=home, requester=requester, lending=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccounts:
    """The accounts of whoever a run works for, as one attempt of a step is lent them."""

    run_id: str
    home: Conversation | None
    requester: Principal
    lending: Lending
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    used: dict[str, int] = field(default_factory=dict)
    """Which version of the credential was given last, by connection."""

    @property
    def connections(self) -> Connections:
        """The process's connections."""
        return self.lending.connections

    def client(self, connection: OAuthConnection | Need) -> ConnectionClient:
        """Return a client that acts with an account. Raises: AccountRefused."""
        need = self._known(connection)
        if need.connection.owner == "user" and self.home is None:
            raise AccountRefused(_alone(need), code="principal_required")
        lent = self.connections.lend((need,), self.requester, loop=self.loop)
        return replace(lent, access=partial(self._access, lent), used=self.used).http(need)

    async def authorize(self, what: Any) -> dict[str, JsonValue]:
        """Look whether the run may act with an account, or what is to be asked."""
        need = self._known(what)
        connection = need.connection
        title, who = connection.title, self.requester.name
        if connection.owner == "user" and self.home is None:
            return {"denied": _alone(need)}
        found = await self.connections.check((need,), self.requester)
        if isinstance(found, Barred):
            return {"denied": found.reason}
        if not isinstance(found, NeedsSignIn):
            credential = await self.connections.credential(connection, self.connections.owner_of(connection, self.requester))
            if connection.owner == "user":
                await self._tell()  # whose account it is there is theirs to tell
            return {"account": "" if credential is None else credential.account}
        home = self.home
        if home is not None and not home.direct and home.channel is not None and not self.lending.private(home.channel):
            where = "They may write to this bot directly."
            return {"denied": f"{who} has to connect {title} first, and can't be asked privately here. {where}"}
        return {
            "ask": {
                "connection": connection.name,
                "title": title,
                "scopes": list[JsonValue](found.scopes),
                "reason": found.reason,
            },
            "expires_ms": int(connection.expires.total_seconds() * 1000),
            "remind_ms": REMIND_MS,
            "granted": CONNECTED,
            "declined": f"{who} did not connect {title}.",
            "late": f"Nobody connected {title} in time.",
            "lost": f"{who} connected {title}, but it is not connected any more, or may not do all that is needed.",
        }

    async def failed(self, error: BaseException) -> BaseException:
        """Drop a token that was refused, if it is still the one that was used, and say what would help."""
        if isinstance(error, _FINAL):
            return AccountRefused(str(error), code="not_usable")
        if not isinstance(error, Unauthorized):
            return error
        connection = self.connections.by_name.get(error.connection)
        version = self.used.get(error.connection)
        if connection is not None and version is not None and error.reason != "scopes":
            owner = self.connections.owner_of(connection, self.requester)
            await self.connections.drop(connection, owner, version)
        title, who = connection.title if connection is not None else error.connection, self.requester.name
        if error.reason == "scopes":
            words = f"{who}'s account at {title} may not do this; ctx.authorize(….scoped(…)) asks them to allow more"
        else:
            words = f"{title} does not take {who}'s account, or it is not connected; ctx.authorize(…) asks them to connect it"
        return AccountRefused(words, code="unauthorized")

    def _known(self, given: Any) -> Need:
        if not isinstance(given, OAuthConnection | Need):
            raise AccountRefused(f"{type(given).__name__} is no connection", code="unknown_connection")
        need = Need.of(given)
        if self.connections.by_name.get(need.name) != need.connection:
            words = f"this app does not know the connection {need.name!r}; give it to Bot(connections=[…])"
            raise AccountRefused(words, code="unknown_connection")
        return need

    async def _access(self, lent: Lent, need: Need, refused: int | None) -> Access:
        access = await lent.access(need, refused)
        if need.connection.owner == "user":
            await self._tell()
        return access

    async def _tell(self) -> None:
        """Tell the session, before the run learns anything, that what it comes to is of somebody's own account; once a run."""
        if self.home is None:
            return
        body = codec.encode({"kind": "account", "run_id": self.run_id, "call_id": self.home.call_id})
        with suppress(NotFound, SessionEnded, ContentGone):
            await self.connections.store.admit(
                Admission(
                    source=SOURCE,
                    key=self.run_id,
                    digest=payload_digest(body),
                    on_conflict="merge",
                    submission_id=new_id("sub"),
                    target=ToRun(run_id=self.home.session_id),
                    kind=CommandKind.SIGNAL,
                    body=body,
                )
            )


def connected(connection: OAuthConnection | Need) -> ConnectionClient:
    """Return, within a step, a client that acts with the account of whoever the run works for.

    ``await client.get("/user")``, or ``.wait()`` in a plain function. Where the account isn't taken, the step fails for good
    (`StepFailed`, code `unauthorized`); `ctx.authorize(connection)` then asks for it again.

    Raises:
        RuntimeError: it is called outside a step, or in one that no bot runs.
        AccountRefused: the app doesn't know the connection, or no person started the run.
    """
    lent = step_context().lent
    if not isinstance(lent, RunAccounts):
        raise RuntimeError(  # noqa: TRY004 - it is about where it is called
            "connected(…) is for steps of workflows that a bot runs"
        )
    return lent.client(connection)


def _alone(need: Need) -> str:
    return (
        f"{need.connection.title} works with the account of whoever asks, and this run was started by no conversation: "
        "offer the workflow as a tool, or use a connection with owner='app'"
    )
