"""Connections on real stores, and a provider that does what a test says.

What lives here: what the tests of tokens share. What does not: a real provider (tests/oidc.py), the protocol's own tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from bot.connections.connection import Need, OAuthConnection
from bot.connections.connections import Connections
from bot.connections.protocol import Account, Endpoints, Provider, ProviderDown, TokenGrant
from bot.principal import Principal
from channels.events import Standing
from durable_core.clock import ManualClock
from durable_core.store import Store
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.conformance.sqlite import file_store

START = 1_800_000_000_000
PUBLIC = "https://bot.example.com"
HOUR = timedelta(hours=1)
ALICE = Principal("slack:T1:U1", "Alice", Standing.MEMBER, channel="slack")
BOB = Principal("slack:T1:U2", "Bob", Standing.MEMBER, channel="slack")
NOBODY = Principal("", "a schedule", Standing.BOT)
ACCOUNT = Account("42", "alice@tracker")


def tracker(**changed: Any) -> OAuthConnection:
    """Return a connection; its addresses are asked by nobody."""
    given: dict[str, Any] = {
        "title": "Tracker",
        "client_id": "app",
        "client_secret": "c4nary-client-secret",
        "authorize_url": "https://tracker.example/authorize",
        "token_url": "https://tracker.example/token",
        "scopes": ("issues",),
        "hosts": ("api.tracker.example",),
        **changed,
    }
    return OAuthConnection("tracker", **given)


def need(connection: OAuthConnection | None = None) -> Need:
    return Need.of(connection or tracker())


def grant(number: int, **changed: Any) -> TokenGrant:
    """Return the grant of a number: its tokens say which it is."""
    given: dict[str, Any] = {"refresh_token": f"c4nary-refresh-{number}", "expires_in": 3600, **changed}
    return TokenGrant(f"c4nary-access-{number}", **given)


@dataclass
class ToldProvider:
    """A provider whose refresh token rotates; `answers` come first, an error is raised, then it does as it should.

    `asked` are the refresh tokens that it was shown. While `gate` is not set, it doesn't answer; `busy` says that it was asked.
    """

    answers: list[TokenGrant | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    revoked: list[tuple[str, str]] = field(default_factory=list)
    revokes: bool | Exception = True
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    busy: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 1
    issuer: str | None = "https://tracker.example"

    def __post_init__(self) -> None:
        self.gate.set()

    async def refresh(self, refresh_token: str, *, scopes: tuple[str, ...] = ()) -> TokenGrant:
        return await self._answer(refresh_token)

    async def client_credentials(self, scopes: tuple[str, ...]) -> TokenGrant:
        return await self._answer(" ".join(scopes))

    async def revoke(self, token: str, hint: str = "refresh_token") -> bool:
        self.revoked.append((token, hint))
        if isinstance(self.revokes, Exception):
            raise self.revokes
        return self.revokes

    async def endpoints(self) -> Endpoints:
        return Endpoints(self.issuer)

    async def _answer(self, shown: str) -> TokenGrant:
        self.asked.append(shown)
        self.busy.set()
        await self.gate.wait()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.number += 1
        return grant(self.number)


def lost() -> ProviderDown:
    """The answer that never came to what had arrived."""
    return ProviderDown("the answer of the provider's token endpoint did not come", sent=True)


async def nothing_to_wait_for(_: float) -> None:
    """Let others go on; the clock of a test stands."""
    await asyncio.sleep(0)


def replica(
    store: Store,
    provider: ToldProvider,
    connection: OAuthConnection | None = None,
    *,
    sleep: Callable[[float], Awaitable[None]] = nothing_to_wait_for,
) -> Connections:
    """One process's connections."""
    made = connection or tracker()
    found = Connections({made.name: made}, store=store, outgoing=lambda: cast("Any", None), public_url=PUBLIC, sleep=sleep)
    found._providers[made.name] = cast("Provider", provider)
    return found


StoreOpener = Callable[[], Awaitable[Store]]


@asynccontextmanager
async def opener(kind: str, clock: ManualClock, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[StoreOpener]:
    """Give what opens one more store on the same database."""
    opened: list[Store] = []
    url = request.getfixturevalue("migrated_url") if kind == "postgres" else ""

    async def one_more() -> Store:
        store = postgres_store(url, clock) if kind == "postgres" else await file_store(clock, folder)
        await store.open()
        opened.append(store)
        return store

    try:
        yield one_more
    finally:
        for store in opened:
            await store.close()
