"""Accounts of somebody who is to be forgotten: what their services are told, and what is said where they can't be.

What lives here: those words, and the order. What does not: disconnecting (bot/connections), the command (bot/housekeeping.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.connections.credentials import KIND, Listed, listed
from bot.errors import BotError
from bot.operate.accounts import told
from durable_core.errors import CannotOpen, KeyMissing

if TYPE_CHECKING:
    from bot.operate.accounts import Desk
    from durable_core.store import Store

_MOST = 1_000


async def accounts_of(store: Store, principal: str) -> list[Listed]:
    """List the accounts that somebody has connected; nothing is opened."""
    return [listed(line) for line in await store.vault_list(kind=KIND, owner=principal, limit=_MOST)]


async def disconnect_all(desk: Desk, principal: str, accounts: Sequence[Listed]) -> list[str]:
    """Disconnect somebody's accounts, and say of each what came of it; one that fails keeps no other from being told."""
    return [await _disconnected(desk, principal, name, title) for name, title in _named(accounts).items()]


def would_be(accounts: Sequence[Listed], *, known: bool) -> list[str]:
    """Say what would become of them. ``known``: the app is, so that its services can be told."""
    titles = _titles(accounts)
    if not titles:
        return []
    if known:
        return [f"These services would be told first: {titles}."]
    return [f"These services would not be told without --app APP, nor can they be later, as the tokens are gone then: {titles}."]


def untold(accounts: Sequence[Listed]) -> list[str]:
    """Say that nobody told the services, since the app wasn't known."""
    titles = _titles(accounts)
    return [f"  not told, as --app was not given: {titles}; end the access there, too"] if titles else []


async def _disconnected(desk: Desk, principal: str, name: str, title: str) -> str:
    connection = desk.bot.connections.get(name)
    if connection is None or connection.owner != "user":
        return f"  {title} was not told, as the app has no such connection any more: end the access there, too."
    try:
        return f"  {told(await desk.connections.disconnect(connection, principal))}"
    except (BotError, CannotOpen, KeyMissing) as error:
        return f"  {title} could not be told ({error}): end the access there, too."


def _named(accounts: Sequence[Listed]) -> dict[str, str]:
    """Titles by the connections' names; one that was kept under several clients is one."""
    return {one.connection: one.title or one.connection or one.name for one in accounts}


def _titles(accounts: Sequence[Listed]) -> str:
    return ", ".join(sorted(_named(accounts).values()))
