"""The connections of a bot: what its tools need and what workflows are given, and what keeps them from working.

What lives here: finding and checking them at start. What does not: what one alone says wrong (connection.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.connections.connection import OAuthConnection

if TYPE_CHECKING:
    from bot.agent import Agent

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def declared(agents: Iterable[Agent], given: Sequence[OAuthConnection]) -> dict[str, OAuthConnection]:
    """Return connections by name; of two of one name the first, which `connection_problems` complains of."""
    found: dict[str, OAuthConnection] = {}
    for connection in _all(agents, given):
        found.setdefault(connection.name, connection)
    return found


def connection_problems(agents: Iterable[Agent], given: Sequence[OAuthConnection]) -> list[str]:
    """List everything that is wrong with them, whatever the environment."""
    entries: tuple[object, ...] = tuple(given)
    problems = [
        f"connections= holds {type(entry).__name__}, which is no connection; see bot.oauth"
        for entry in entries
        if not isinstance(entry, OAuthConnection)
    ]
    kept = [entry for entry in entries if isinstance(entry, OAuthConnection)]
    connections = declared(agents, kept)
    for connection in connections.values():
        problems += connection.problems()
    others = {connection.name for connection in _all(agents, kept) if connection != connections[connection.name]}
    problems += [f"two connections are named {name!r}, and are not the same: give one of them another name" for name in others]
    return problems


def address_problems(connections: Iterable[OAuthConnection], public_url: str | None) -> list[str]:
    """Say which connections can't work for want of an address that the provider sends people back to."""
    wanting = sorted(connection.name for connection in connections if connection.needs_browser or connection.on_own_address)
    if not wanting:
        return []
    names = ", ".join(wanting)
    if public_url is None:
        cure = "set MOORINGS_PUBLIC_URL to the https address of this app; `moorings connections list` shows the redirect URIs"
        return [f"people sign in to {names} in a browser, which has to find the way back: {cure}"]
    parts = urlsplit(public_url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        return [f"people sign in to {names} in a browser: MOORINGS_PUBLIC_URL must be an https address"]
    return []


def _all(agents: Iterable[Agent], given: Sequence[OAuthConnection]) -> Iterator[OAuthConnection]:
    for agent in agents:
        for tool in agent.offered:
            for need in tool.connections:
                yield need.connection
    yield from given
