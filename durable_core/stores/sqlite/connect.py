"""Connections to SQLite: how they are opened, and what their errors mean.

What lives here: pragmas, which file was opened, and the sorting of errors into `Unavailable` and `Broken`. What does not:
transactions (`writer.py`).
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Final

from durable_core.errors import Broken, DurableError, FileMoved, Unavailable

MEMORY: Final = ":memory:"
BUSY_SECONDS: Final = 10.0
"""How long a statement waits for another process's lock."""

OLDEST: Final = (3, 35)

_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def connect(path: str, *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a connection in autocommit mode, for the calling thread alone.

    Raises:
        Unavailable, Broken: the file can't be opened, or is no database.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise Broken(f"SQLite {sqlite3.sqlite_version} is too old; RETURNING needs {'.'.join(map(str, OLDEST))}")
    try:
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, cached_statements=256)
        try:
            _configure(connection, memory=path == MEMORY, read_only=read_only, deadline=time.monotonic() + busy_seconds)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise sorted_error(error) from error
    return connection


class OpenedFile:
    """The file that stands at a path, as seen right after it was opened.

    An open file outlives its name: who has it open goes on writing, and all of that is gone with the process. SQLite itself looks
    whether its file has moved, but not in WAL mode.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100 - a link that leads elsewhere by now is a move too
        self._seen = self._look()

    def check(self) -> None:
        """Raise `FileMoved` unless it is still there; takes about a microsecond."""
        if self._look() != self._seen:
            raise FileMoved(self._path)

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - on every commit
        except OSError:
            return None
        return found.st_dev, found.st_ino


def sorted_error(error: sqlite3.Error) -> DurableError:
    """Say whether the same call may be made again."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _PASSING:
        return Unavailable(str(error))
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return Broken(f"the database answered {name}: {error}")


def _configure(connection: sqlite3.Connection, *, memory: bool, read_only: bool, deadline: float) -> None:
    if not memory:
        _enter_wal(connection, deadline)
    # wal_autocheckpoint stays at its 1,000 pages: 4,000 and 16,000 were measured to make no commit faster, seldom ones slower
    # secure_delete: a key that was dropped must not stand in gaps of the file (what Debian builds do anyway)
    for pragma in ("synchronous = FULL", "foreign_keys = OFF", "temp_store = MEMORY", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if read_only:
        connection.execute("PRAGMA query_only = ON")


def _enter_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # The change of mode takes an exclusive lock without calling SQLite's busy handler, so that two
    # processes starting at once would see "database is locked" immediately.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if not isinstance(sorted_error(error), Unavailable) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
