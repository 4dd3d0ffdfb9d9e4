"""What one call is lent: clients and tokens of the connections that its tool declares, for whom it runs.

What lives here: the value behind `ctx.http`, `ctx.token` and `ctx.disconnect`. What does not: where tokens come from (tokens.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bot.connections.client import Access, ConnectionClient
from bot.connections.connection import Need, OAuthConnection
from bot.connections.errors import NotDeclared, TokenNotExposed, named
from durable_core.claiming import StoreCall

if TYPE_CHECKING:
    from bot.connections.connections import Disconnected
    from bot.outgoing import Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """The accounts of one call. ``used`` says, by connection, which version of the credential it was given last."""

    needs: tuple[Need, ...] = ()
    public_url: str | None = None
    access: Callable[[Need, int | None], Awaitable[Access]] = field(repr=False)
    """Gives a token; told the version that was refused, one that is newer."""
    refuse: Callable[[Need, int], Awaitable[None]] = field(repr=False)
    """Told of a version that is refused even though it is new."""
    leave: Callable[[str], Awaitable[Disconnected]] | None = field(default=None, repr=False)
    """Disconnects an account of the person's by what they call it, declared or not."""
    outgoing: Outgoing = field(repr=False)
    loop: asyncio.AbstractEventLoop = field(repr=False)
    used: dict[str, int] = field(default_factory=dict)

    def http(self, connection: OAuthConnection | Need | str) -> ConnectionClient:
        """Return a client for a declared connection. Raises: NotDeclared."""
        need = self._need(connection)
        return ConnectionClient(
            connection=need.connection,
            bounds=need.connection.bounds(self.public_url),
            access=partial(self._access, need),
            refuse=partial(self.refuse, need),
            outgoing=self.outgoing,
            loop=self.loop,
        )

    def token(self, connection: OAuthConnection | Need | str) -> StoreCall[str]:
        """Give the token itself: ``await`` it, or ``.wait()`` in a plain function. Raises: NotDeclared, TokenNotExposed."""
        need = self._need(connection)
        if not need.connection.expose_token:
            raise TokenNotExposed(need.name)

        async def work() -> str:
            return (await self._access(need, None)).token

        return StoreCall(work(), self.loop)

    def disconnect(self, connection: OAuthConnection | Need | str) -> StoreCall[Disconnected]:
        """Disconnect an account of the person's: ``await`` it, or ``.wait()`` in a plain function."""
        if self.leave is None:
            raise RuntimeError("this call was lent no way to disconnect an account")

        async def work(leave: Callable[[str], Awaitable[Disconnected]], name: str) -> Disconnected:
            return await leave(name)

        return StoreCall(work(self.leave, named(connection)), self.loop)

    async def _access(self, need: Need, refused: int | None) -> Access:
        access = await self.access(need, refused)
        self.used[need.name] = access.version
        return access

    def _need(self, connection: OAuthConnection | Need | str) -> Need:
        name = named(connection)
        for need in self.needs:
            if need.name == name:
                return need
        raise NotDeclared(name, tuple(need.name for need in self.needs))
