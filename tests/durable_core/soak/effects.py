"""What steps did to the world: a row an effect, written through a connection of its own, so that no rollback hides one.

What lives here: the table on either database, and what it may say in the end. What does not: the steps.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import asyncpg

TABLE: Final = "CREATE TABLE IF NOT EXISTS soak_effect (run text, n int, nonce text PRIMARY KEY, owner text)"
OUTAGE_SECONDS: Final = 60
"""How long an effect is tried again while its database is away."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A step ran: of which run, the how manieth, which attempt, in which process."""

    run: str
    n: int
    nonce: str
    owner: str


class Effects(Protocol):
    """Where effects go."""

    async def add(self, effect: Effect) -> None: ...

    async def all(self) -> list[Effect]: ...

    async def close(self) -> None: ...


class FileEffects:
    """In a SQLite file beside the store's."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self._connection.execute(TABLE)

    async def add(self, effect: Effect) -> None:
        row = (effect.run, effect.n, effect.nonce, effect.owner)
        self._connection.execute("INSERT INTO soak_effect VALUES (?, ?, ?, ?)", row)

    async def all(self) -> list[Effect]:
        with closing(self._connection.execute("SELECT run, n, nonce, owner FROM soak_effect")) as cursor:
            return [Effect(*row) for row in cursor]

    async def close(self) -> None:
        self._connection.close()


class PostgresEffects:
    """In a table beside the store's; it outlives the server's restarts."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "", 1)
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url)
            await self._connection.execute(TABLE)
        return self._connection

    async def add(self, effect: Effect) -> None:
        async with asyncio.timeout(OUTAGE_SECONDS):
            while not await self._added(effect):
                await asyncio.sleep(0.05)

    async def _added(self, effect: Effect) -> bool:
        async with self._lock:
            try:
                connection = await self._connected()
                row = (effect.run, effect.n, effect.nonce, effect.owner)
                await connection.execute("INSERT INTO soak_effect VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING", *row)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._connection = None
                return False
            return True

    async def all(self) -> list[Effect]:
        rows = await (await self._connected()).fetch("SELECT run, n, nonce, owner FROM soak_effect")
        return [Effect(*row) for row in rows]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def repeated(recorded: Mapping[str, Sequence[str]], effects: Collection[Effect]) -> list[Effect]:
    """Check that every recorded result is an effect of that very step; return the effects that no record holds."""
    by_nonce = {effect.nonce: effect for effect in effects}
    held = Counter(nonce for nonces in recorded.values() for nonce in nonces)
    assert held.total() == len(held), "one attempt was recorded twice"
    for run, nonces in recorded.items():
        found = [(by_nonce[nonce].run, by_nonce[nonce].n) for nonce in nonces]
        assert found == [(run, n) for n in range(len(nonces))], f"{run} recorded what it didn't do: {found}"
    return [effect for effect in effects if effect.nonce not in held]
