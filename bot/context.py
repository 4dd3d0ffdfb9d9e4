"""What a tool's body is given beside its arguments.

What lives here: the context value. What does not: how a call is gated, run and recorded (turn.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from bot.approvals import ApprovalRecord
from bot.principal import Principal
from durable_core.claiming import Claimer, KeyClaim, StoreCall

if TYPE_CHECKING:
    from bot.connections.client import ConnectionClient
    from bot.connections.connection import Need, OAuthConnection
    from bot.connections.connections import Disconnected
    from bot.connections.lent import Lent

Deps = TypeVar("Deps", default=Any)


async def _unheard(_: str) -> None:
    """Drop a progress line that nobody listens to."""


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """One call of one tool.

    ``principal`` is who asked: the call runs as them, whoever approved it. ``deps`` is what the app opened at start.
    ``attempt`` counts how often this call was begun, from 1; of a read, how often it may have been. ``approval`` says who let it
    run, if someone had to.
    """

    session_id: str
    principal: Principal
    _: KW_ONLY
    call_id: str
    deps: Deps
    attempt: int = 1
    approval: ApprovalRecord | None = None
    on_progress: Callable[[str], Awaitable[None]] = field(default=_unheard, repr=False)
    claimer: Claimer | None = field(default=None, repr=False, compare=False)
    lent: Lent | None = field(default=None, repr=False, compare=False)
    """The accounts that this call may act with."""

    @property
    def idempotency_key(self) -> str:
        """Name this call the same in every attempt; hand it to whatever must act only once."""
        return f"{self.session_id}:{self.call_id}"

    def claim(self, key: str) -> StoreCall[KeyClaim]:
        """Claim a key, for another side that knows no idempotency keys: ``await`` it, or ``.wait()`` in a plain function.

        The key is one of all sessions of the store, 1 to 200 characters; it is kept for ever, so name in it what is to be done
        once. The claim is on disk before this returns, and says ``claimed``, ``done`` or ``pending``, see ``KeyClaim``.

        Raises:
            ValueError, Unstorable: It is no key.
            LeaseLost: Another worker has the session. Raised by the call that is returned.
        """
        if self.claimer is None:
            raise RuntimeError("this context belongs to no running bot, and so has no store to claim in; see bot.testing")
        return self.claimer.claim(key)

    def http(self, connection: OAuthConnection | Need) -> ConnectionClient:
        """Return a client that acts with the account of a connection that the tool declares; it alone sees the token.

        Raises:
            NotDeclared: The tool doesn't declare it in ``connections=``.
        """
        return self._lent().http(connection)

    def token(self, connection: OAuthConnection | Need) -> StoreCall[str]:
        """Give the token itself, of a connection with ``expose_token``: ``await`` it, or ``.wait()`` in a plain function.

        Raises:
            NotDeclared: The tool doesn't declare it in ``connections=``.
            TokenNotExposed: The connection keeps its token.
            Unauthorized, AccountUnreachable: There is none to be had. Raised by the call that is returned.
        """
        return self._lent().token(connection)

    def disconnect(self, connection: OAuthConnection | Need | str) -> StoreCall[Disconnected]:
        """Revoke and forget the account that whoever asked has connected: ``await`` it, or ``.wait()`` in a plain function.

        The connection is one of the bot's, declared by the tool or not; a text is its name, or what people call it.

        Raises:
            UnknownAccount, PrincipalRequired: There is no such account of a person's. Raised by the call that is returned.
        """
        return self._lent().disconnect(connection)

    def _lent(self) -> Lent:
        if self.lent is None:
            raise RuntimeError("this context belongs to no running bot, and so has no accounts to act with; see bot.testing")
        return self.lent

    async def progress(self, text: str) -> None:
        """Tell readers of the stream how far the call is; best effort, never part of the result."""
        await self.on_progress(text)
