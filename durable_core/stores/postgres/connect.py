"""Connections to PostgreSQL: how they are opened and lent, and what their errors mean.

What lives here: settings, the pool, the sorting of errors into `Unavailable` and `Broken`. What does not: transactions (`tx.py`).

asyncpg's own pool asks the server to forget all session state each time a connection comes back; there is none here, and a
round trip for nothing would be the price of every commit.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import asyncpg

from durable_core import schema
from durable_core.errors import Broken, DurableError, Unavailable
from durable_core.stores.postgres.hosts import dsn, each, wanted, wants_other
from durable_core.stores.postgres.servers import Answer, Seen, newest

FAULTS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What the driver raises. The third comes of a connection that was told to end and is not yet closed, as while a server stops."""
CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 60.0
"""How long an answer may take before the connection is given up."""
_STATEMENTS: Final = 256
"""Prepared statements a connection keeps."""
# Each of the store's statements has its index. While a table is new the planner takes it for tiny, plans a scan of all of it, or
# a bitmap of a whole index and a sort where only the first row in its order is wanted, and keeps that plan until the table is
# analyzed, a minute and ten thousand rows later. A pooler takes no settings.
# Locks on rows and conditions in UPDATE keep transactions apart (CORE 1, 2); in a stricter isolation, which a database or a role
# may have for all that it is asked, they would only fail each other.
_SETTINGS: Final = MappingProxyType(
    {
        "application_name": "moorings",
        "default_transaction_isolation": "read committed",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    }
)

_TIMELINE: Final = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
_STANDBY: Final = "it is a standby, or set to read only: nothing can be written there"
_UNKNOWN_SETTING: Final = "unsupported startup parameter"
"""What pgbouncer answers to them."""

# SQLSTATE classes and codes after which the same call may be made again.
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "57", "58"})
_PASSING: Final = frozenset({"25006", "25P03", "25P04", "55P03", "55006"})
# Codes of a class that passes which no retry mends: disk full isn't one of them, a dropped database is.
_LASTING: Final = frozenset({"57P04"})
_LOST_CLASSES: Final = frozenset({"08", "57"})
_LOST: Final = frozenset({"25P03", "25P04"})
"""Of a transaction that took too long the server ends the connection; of a statement, only that."""
_KEPT: Final = frozenset({"57014"})
_READ_ONLY: Final = "25006"
_NONE_LEFT: Final = "53300"
"""The server has as many connections as it may have, other programs' among them."""
_COLLISIONS: Final = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock: the transaction did nothing, and may be run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the database is and how to talk to it."""

    url: str
    namespace: str | None = None
    """The schema that the tables are in; None leaves it to the server's search path."""
    pool: int = 10
    listen_url: str | None = None
    """A way past the pooler, for the one connection that needs a session."""
    pooler: bool = False
    """A pooler in transaction mode stands between: no prepared statements, no session."""
    seen: Seen = field(default_factory=Seen, compare=False, repr=False)
    """What this process has learnt of the servers."""

    @property
    def has_session(self) -> bool:
        """Whether a connection of its own can listen and hold a lock."""
        return not self.pooler or self.listen_url is not None


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """One that can be cut off while somebody waits for its answer: `terminate` leaves them with an AttributeError then."""

    __slots__ = ()

    def cut(self) -> None:
        """End the connection as a lost one ends."""
        self._transport.abort()


async def connect(url: str, *, pooler: bool = False, seen: Seen | None = None) -> asyncpg.Connection:
    """Open a connection to the server of a URL that takes writes; to the newest one, where it names several.

    A URL that says by `target_session_attrs` that others will do gets the first that does.

    Raises:
        Unavailable, Broken: it can't be opened.
    """
    try:
        urls = each(url)
    except ValueError as error:
        raise Broken(f"the database's URL can't be read: {error}") from error
    if len(urls) == 1 or wants_other(url):
        return await _connect(url, pooler=pooler)

    async def ask(one: str) -> Answer:
        return await _ask(one, pooler=pooler)

    return await newest(urls, ask, seen or Seen())


async def _ask(url: str, *, pooler: bool) -> Answer:
    connection = await _connect(url, pooler=pooler)
    try:
        return Answer(connection, int(await connection.fetchval(_TIMELINE)))
    except BaseException as error:
        standby = isinstance(error, asyncpg.ObjectNotInPrerequisiteStateError)  # behind a pooler it isn't known sooner
        if isinstance(error, asyncpg.PostgresError) and not standby and not connection.is_closed():
            return Answer(connection, 0)  # a service that has no such thing, or doesn't let it be read
        connection.terminate()
        if standby:
            raise Unavailable(_STANDBY) from error
        if isinstance(error, FAULTS):
            raise sorted_error(error) from error
        raise


async def _connect(url: str, *, pooler: bool) -> asyncpg.Connection:
    try:
        connection = await asyncpg.connect(
            dsn(url),
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS,
            statement_cache_size=0 if pooler else _STATEMENTS,
            max_cached_statement_lifetime=0,
            server_settings=None if pooler else dict(_SETTINGS),
            connection_class=Connection,
            # a pooler tells what a server said that it knew once
            target_session_attrs=None if pooler or wanted(url) else "read-write",
        )
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise Unavailable(_STANDBY) from error
    except (*FAULTS, ValueError) as error:
        if _UNKNOWN_SETTING in str(error):
            raise Broken(
                "a pooler stands at this address; set MOORINGS_DATABASE_POOLER=transaction if it is in that mode"
            ) from error
        raise sorted_error(error) from error
    _OPEN.add(connection)
    encoding = getattr(connection.get_settings(), "server_encoding", schema.UTF8)
    if encoding != schema.UTF8:
        connection.terminate()
        raise Broken(schema.WRONG_ENCODING.format(encoding))
    return connection


def _forget() -> None:
    """Let go of connections in a forked child: while it has them, the server takes their owner for alive, and its locks for held.

    What stands in their places is inert: whoever finds an open file there, in the child, harms nobody.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_OPEN):
        transport = connection._transport  # noqa: SLF001 - asyncpg has no other way to its socket
        socket = None if transport is None else transport.get_extra_info("socket")
        if socket is not None and socket.fileno() >= 0:
            os.dup2(nowhere, socket.fileno(), inheritable=False)
    os.close(nowhere)


_OPEN: Final[weakref.WeakSet[asyncpg.Connection]] = weakref.WeakSet()
"""The connections of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def sorted_error(error: BaseException) -> DurableError:
    """Say whether the same call may be made again."""
    state = getattr(error, "sqlstate", None)
    text = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError) and state:
        passing = (state[:2] in _PASSING_CLASSES and state not in _LASTING) or state in _PASSING
        return Unavailable(text) if passing else Broken(f"the database answered {state}: {text}")
    if isinstance(error, OSError | asyncpg.PostgresError) or _is_closed(error):  # TimeoutError is an OSError
        return Unavailable(text)
    return Broken(f"the database driver says {type(error).__name__}: {text}")


def is_lost(error: BaseException) -> bool:
    """Tell whether it was the connection that failed, so that what it was doing may have happened."""
    state = getattr(error, "sqlstate", None)
    told = isinstance(state, str) and (state in _LOST or (state[:2] in _LOST_CLASSES and state not in _KEPT))
    return told or isinstance(error, OSError) or _is_closed(error)


def refuses_writes(error: BaseException) -> bool:
    """Tell whether the server takes no writes any more: it was made a standby, or set to read only."""
    return getattr(error, "sqlstate", None) == _READ_ONLY


def collides(error: BaseException) -> bool:
    """Tell whether the transaction did nothing and is to be run again."""
    return getattr(error, "sqlstate", None) in _COLLISIONS or isinstance(error, asyncpg.InvalidCachedStatementError)


def _is_closed(error: BaseException) -> bool:
    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError):
        return False
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)


class Pool:
    """A few connections, lent to one operation at a time, first come first served; lost ones are made anew.

    Where one is lost, or finds its server not to take writes any more, the server may be another one by now. So nothing is lent
    again that was opened before.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[asyncpg.Connection] = []
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._count = 0
        self._lent: set[asyncpg.Connection] = set()
        self._doubted: set[asyncpg.Connection] = set()
        self._closed = False

    async def acquire(self) -> asyncpg.Connection:
        """Borrow a connection.

        Raises:
            Unavailable, Broken: none can be had.
        """
        connection = await self._borrow()
        self._lent.add(connection)
        return connection

    async def _borrow(self) -> asyncpg.Connection:
        while True:
            if self._closed:
                raise Unavailable("the store is closed")
            if (connection := self._free()) is not None:
                return connection
            if self._count < self._settings.pool:
                opened = await self._connect()
                if opened is not None:
                    return opened
                if self._idle:
                    continue
            if (lent := await self._in_turn()) is not None:
                return lent

    async def _in_turn(self) -> asyncpg.Connection | None:
        """Wait until one is passed on, or the room for one: None."""
        waiter: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            lent = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                lent = waiter.result()
                self._pass_on(None) if lent is None else self.give_back(lent)
            raise
        if lent in self._doubted:  # since it was passed on
            self.give_back(lent)
            return None
        return lent

    def _free(self) -> asyncpg.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._count -= 1
        return None

    def give_back(self, connection: asyncpg.Connection, *, error: BaseException | None = None, usable: bool = True) -> None:
        """Return a connection; one that isn't usable any more, or whose server may be another one, is dropped."""
        self._lent.discard(connection)
        doubted = connection in self._doubted
        self._doubted.discard(connection)
        if error is not None and not doubted and (is_lost(error) or refuses_writes(error)):
            doubted = True
            self.doubt()
        if usable and not doubted and not connection.is_closed() and not connection.is_in_transaction():
            self._pass_on(connection)
            return
        connection.terminate()
        self._count -= 1
        self._pass_on(None)

    def doubt(self) -> None:
        """Lend nothing any more that was opened until now."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()
        self._count -= len(idle)
        self._doubted |= self._lent

    def cut(self) -> None:
        """End what is lent and in doubt: whoever waits for an answer from a server that is gone needn't wait longer."""
        for connection in self._doubted:
            connection.cut()

    async def close(self) -> None:
        """Close what is idle; nothing is lent any more."""
        self._closed = True
        while self._waiting:
            self._pass_on(None)
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(*FAULTS):
                await connection.close(timeout=1)

    async def _connect(self) -> asyncpg.Connection | None:
        """Open another connection; None where the server has none left and one that is lent comes back."""
        self._count += 1
        try:
            timeline = self._settings.seen.timeline
            connection = await connect(self._settings.url, pooler=self._settings.pooler, seen=self._settings.seen)
            if self._settings.seen.timeline != timeline:
                self.doubt()
            return connection
        except BaseException as error:
            self._count -= 1
            if self._lent and getattr(error.__cause__, "sqlstate", None) == _NONE_LEFT:
                return None
            self._pass_on(None)
            raise

    def _pass_on(self, connection: asyncpg.Connection | None) -> None:
        """Give a connection, or the room for one, to who waits longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                if connection is not None:
                    self._lent.add(connection)  # whoever waited goes on a little later
                waiter.set_result(connection)
                return
        if connection is None:
            return
        if self._closed:
            connection.terminate()
        else:
            self._idle.append(connection)
