"""Who lives: by the locks that die with connections, or by heartbeats where a pooler forbids those (CORE 22).

What lives here: asking, and when not to believe the answer. What does not: taking the lock (`listen.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from durable_core.errors import DurableError
from durable_core.keeper import Keeper
from durable_core.stores.postgres import keeping
from durable_core.stores.postgres.database import Database
from durable_core.stores.postgres.listen import Ear, lock_of
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Tx

LOOK_SECONDS: Final = 0.5
"""Who was seen alive is so for as long: reading the locks stops the lock manager for a moment."""
GRACE_SECONDS: Final = 5.0
"""After a restart of the server all locks are free until their holders are back; after a failover, on a server that may have
been started long before."""
BEAT_SECONDS: Final = 3.0
_BEAT_PATIENCE_SECONDS: Final = 3.0
DEAD_AFTER_MS: Final = 10_000
_ASK_SECONDS: Final = 1.5
"""How often the loop is asked whether it is there to beat: the first beat beside it comes six seconds after its last at most."""

# Advisory locks of one 64-bit key, of this database, as the key they were taken by.
_LOCKS: Final = """
    SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8,
        extract(epoch FROM pg_postmaster_start_time())::float8,
        ARRAY(SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks l
              WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
_BEATING: Final = f"SELECT owner FROM moor_worker WHERE heartbeat >= {now('$1')} - $2::bigint"
_BEAT: Final = f"UPDATE moor_worker SET heartbeat = {now('$1')} WHERE owner = ANY($2::text[])"


class Locks:
    """Who holds the lock of their incarnation."""

    def __init__(self, database: Database, ear: Ear, *, grace: float) -> None:
        self._database = database
        self._ear = ear
        self._grace = grace
        self._dead: frozenset[str] = frozenset()
        self._until = 0.0

    async def dead(self, owners: Collection[str], *, fresh: bool = False) -> tuple[str, ...]:
        """Return those whose lock is free; nobody while it may be free for another reason."""
        clock = asyncio.get_running_loop().time
        if fresh or clock() >= self._until:
            held = await self._database.read(self._look) if self._ear.is_heard else None
            self._until = clock() + LOOK_SECONDS
            again = self._ear.reconnected_at
            if held is None or not self._ear.is_heard or (again is not None and clock() < again + self._grace):
                self._dead = frozenset()
            else:
                self._dead = frozenset(owner for owner in owners if lock_of(owner) not in held)
        # whoever came since the look may have a lock that it didn't see
        return tuple(owner for owner in owners if owner in self._dead)

    async def _look(self, tx: Tx) -> frozenset[int] | None:
        row = await tx.one(_LOCKS)
        if row is None or row[0] < self._grace:
            return None
        if not self._ear.is_at(row[1]):  # the locks are those of another server than where this process shows that it lives
            self._database.doubt()
            return None
        return frozenset(row[2])


class Heartbeats:
    """Who has been heard of lately; beats for those that this process enrolled, also while its loop doesn't answer.

    That is without a limit: as a lock does, a beat says that the process lives. What it holds is another matter: leases.
    """

    def __init__(self, database: Database, beside: keeping.Beside) -> None:
        self._database = database
        self._beside = beside
        self._beaten: set[str] = set()
        self._silent_at: float | None = None
        """When a beat failed last, by the loop's clock: others may not have been able to beat either."""
        self._beating: asyncio.Task[None] | None = None
        self._keeper = Keeper(self._beat_beside, every=_ASK_SECONDS, what="heartbeats")

    async def dead(self, owners: Collection[str], *, fresh: bool = False) -> tuple[str, ...]:
        """Return those that nothing was heard of for too long."""
        if not owners or self._was_silent():
            return ()
        beating = await self._database.read(self._look)
        return tuple(owner for owner in owners if owner not in beating)

    def enrolled(self, owner: str) -> None:
        """Beat for a worker of this process from now on."""
        self._beaten.add(owner)
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
            self._keeper.start()

    def withdrawn(self, owner: str) -> None:
        """Stop beating for it."""
        self._beaten.discard(owner)

    async def close(self) -> None:
        """Stop beating."""
        self._keeper.stop()
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    def _was_silent(self) -> bool:
        clock = asyncio.get_running_loop().time
        return self._silent_at is not None and clock() < self._silent_at + DEAD_AFTER_MS / 1000 + BEAT_SECONDS

    async def _look(self, tx: Tx) -> frozenset[str]:
        return frozenset(owner for (owner,) in await tx.all(_BEATING, tx.override, DEAD_AFTER_MS))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            owners: Sequence[str] = sorted(self._beaten)
            if owners:
                try:
                    async with asyncio.timeout(_BEAT_PATIENCE_SECONDS):
                        await self._database.write(lambda tx, owners=owners: tx.run(_BEAT, tx.override, owners), soft=True)  # type: ignore[misc]
                except (DurableError, TimeoutError) as error:
                    self._silent_at = asyncio.get_running_loop().time()
                    if isinstance(error, TimeoutError):
                        self._database.doubt()

    def _beat_beside(self) -> None:
        owners = sorted(self._beaten)
        if owners:
            keeping.beat(self._beside, owners)
