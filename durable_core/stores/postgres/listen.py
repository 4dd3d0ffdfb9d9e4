"""Listening: the one connection that hears of other processes' changes and shows that this process lives (CORE 22).

What lives here: LISTEN, the lock that dies with the connection, the bell that others hear. What does not: who is to be told.

NOTIFY takes a lock of the whole cluster until its transaction is committed. So no transaction of a run ever notifies: changes
that follow each other are gathered and told as one, in a transaction of their own. What a process had not told when it died is
told by whoever finds it dead: that anything may have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg

from durable_core.errors import DurableError
from durable_core.stores.postgres.connect import FAULTS, Settings, connect, sorted_error

Tell = Callable[[Sequence[str] | None], None]

log = logging.getLogger("moorings.store")

APART_SECONDS: Final = 0.01
"""How far apart a process tells at least; each time is a transaction. What comes after a while of quiet is told at once."""
MOST_BYTES: Final = 7_900
"""A payload is less than 8,000 bytes."""
ANYTHING: Final = "*"
_NAME_BYTES: Final = 63
"""A channel's name may have as many; PostgreSQL refuses to notify one that is longer."""
_LOOK_SECONDS: Final = 5.0
"""How often the connection is asked whether it still is one."""
_RETRY_SECONDS: Final = 0.25
_LONGEST_PAUSE: Final = 1.0
"""Between two tries to connect: who is back first must not take those for dead who only come a little later."""
_LOCK: Final = """
    SELECT pg_try_advisory_lock($1::bigint), extract(epoch FROM pg_postmaster_start_time())::float8,
        pg_last_wal_replay_lsn() IS NOT NULL
"""
_STATE: Final = "SELECT current_setting('transaction_read_only')"


def channel_of(namespace: str | None) -> str:
    """Return the channel on which stores of one namespace tell each other; a name too long for one is told by its hash."""
    name = "moor" if namespace is None else f"moor_{namespace}"
    return name if len(name.encode()) <= _NAME_BYTES else f"moor#{hashlib.sha256(name.encode()).hexdigest()[:48]}"


def lock_of(incarnation: str) -> int:
    """Return the number of the advisory lock that an incarnation holds: 64 bits of its hash."""
    return int.from_bytes(hashlib.sha256(incarnation.encode()).digest()[:8], "big", signed=True)


class Bell:
    """Tell other processes what changed, many changes at a time."""

    def __init__(self, sender: str, notify: Callable[[str], Awaitable[Any]]) -> None:
        self._sender = sender
        self._notify = notify
        self._changed: set[str] = set()
        self._due: asyncio.Task[None] | None = None
        self._told_at = 0.0

    def ring(self, run_ids: frozenset[str]) -> None:
        """Tell of runs, soon."""
        self._changed |= run_ids
        if self._due is None:
            self._due = asyncio.get_running_loop().create_task(self._later())

    async def close(self) -> None:
        """Tell what is left."""
        if self._due is not None:
            await self._due

    async def _later(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._told_at + APART_SECONDS - loop.time()))
        self._told_at = loop.time()
        self._due = None
        changed, self._changed = self._changed, set()
        with suppress(DurableError):
            await self._notify(payload(self._sender, changed))


def payload(sender: str, run_ids: set[str]) -> str:
    """Write who tells, and of which runs; `ANYTHING` among them stands for all."""
    text = f"{sender}:{' '.join(sorted(run_ids))}"
    return text if ANYTHING not in run_ids and len(text.encode()) <= MOST_BYTES else f"{sender}:{ANYTHING}"


class Ear:
    """The listening connection; made anew when it is lost, and then anything may have changed.

    `moved` hears that it now leads to another start of a server, or to another server, than before.
    """

    def __init__(self, settings: Settings, incarnation: str, tell: Tell, moved: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._moved = moved
        self._channel = channel_of(settings.namespace)
        self._incarnation = incarnation
        self._tell = tell
        self._connection: asyncpg.Connection | None = None
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._holds = False
        self._server: float | None = None
        self._timeline = 0
        self.reconnected_at: float | None = None
        """When the connection was made anew, or made to a server that hasn't long taken writes for all this process knows, by the
        loop's clock: others may just be doing the same."""

    async def open(self) -> None:
        """Begin to listen, and take the lock.

        Raises:
            Unavailable, Broken: there is no connection to be had.
        """
        try:
            await self._connect()
        except FAULTS as error:
            raise sorted_error(error) from error
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop listening; from here on this incarnation is dead."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.remove_termination_listener(self._on_lost)
            with suppress(*FAULTS):
                await connection.close(timeout=1)

    @property
    def is_heard(self) -> bool:
        """Whether others can see that this process lives, as far as it knows itself."""
        return self._connection is not None and not self._lost.is_set()

    def is_at(self, server: float) -> bool:
        """Tell whether this connection leads to the server that was started then. If not, it is made anew."""
        if self._connection is None:
            return False
        if self._server != server:
            self._lost.set()
        return self._server == server

    async def _connect(self) -> None:
        settings, before = self._settings, self._server
        connection = await connect(settings.listen_url or settings.url, seen=settings.seen)
        try:
            await connection.add_listener(self._channel, self._on_notify)
            self._lost.clear()
            connection.add_termination_listener(self._on_lost)
            recovered = await self._take(connection)
        except BaseException:
            connection.remove_termination_listener(self._on_lost)
            connection.terminate()
            raise
        self._connection, self._timeline = connection, settings.seen.timeline
        if before is not None or recovered:
            self.reconnected_at = asyncio.get_running_loop().time()
        if before not in {None, self._server}:
            self._moved()

    async def _take(self, connection: asyncpg.Connection) -> bool:
        """Take the lock, which an own connection that was lost may hold for a while; tell whether the server ever recovered."""
        ((self._holds, self._server, recovered),) = await connection.fetch(_LOCK, lock_of(self._incarnation))
        return bool(recovered)

    async def _look(self) -> None:
        """See that the connection is alive and leads where this process writes, and take the lock."""
        if self._connection is None:
            return
        if not self._holds:
            await self._take(self._connection)
        elif self._timeline < self._settings.seen.timeline or (await self._connection.fetchval(_STATE)) == "on":
            self._lost.set()

    async def _keep(self) -> None:
        pause = 0.05
        while True:
            if self._connection is None:
                try:
                    await self._connect()
                except (DurableError, *FAULTS) as error:
                    log.warning("can't listen, trying again: %s", error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    continue
                pause = 0.05
                self._tell(None)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if self._holds else _RETRY_SECONDS):
                    await self._lost.wait()
            if not await self._still_there():
                self._drop()

    async def _still_there(self) -> bool:
        if self._lost.is_set():
            return False
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._look()
        except FAULTS:
            return False
        return not self._lost.is_set()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._holds = False
        if connection is not None:
            connection.remove_termination_listener(self._on_lost)
            connection.terminate()

    def _on_lost(self, _connection: object) -> None:
        self._lost.set()

    def _on_notify(self, _connection: object, _pid: int, _channel: str, text: str) -> None:
        sender, _, said = text.partition(":")
        if sender != self._incarnation:
            self._tell(None if said == ANYTHING else said.split())
