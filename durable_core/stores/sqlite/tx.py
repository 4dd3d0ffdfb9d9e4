"""What an operation works with inside a transaction: the connection, the time, the run's keys, and what it changed.

What lives here: the `Tx` that every operation takes. What does not: beginning and ending transactions (`writer.py`, `reader.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from durable_core.clock import SQLITE_NOW, Clock
from durable_core.crypto import SessionKey
from durable_core.errors import Broken, CannotOpen, ContentGone, DurableError, KeyMissing
from durable_core.model import AuditEntry
from durable_core.stores.sealing import Place, Sealing

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Mapping[str, Any] | Sequence[Any]

UNOPENABLE_MS: Final = 60_000
"""How long what can't be opened is left alone, so that it stops nothing else; it goes on once its key is back."""

_NOW: Final = f"SELECT {SQLITE_NOW}"


class Tx:
    """One operation's view of a transaction; lives as long as the operation."""

    __slots__ = ("_clock", "_key", "_now", "_sealing", "changed", "connection", "edited", "entries", "forgotten", "fresh")

    def __init__(self, connection: sqlite3.Connection, *, clock: Clock, sealing: Sealing, fresh: dict[str, SessionKey]) -> None:
        self.connection = connection
        self._clock = clock
        self._sealing = sealing
        self._now: int | None = None
        self._key: tuple[str, SessionKey] | None = None
        self.fresh = fresh
        """Keys of runs made in this transaction: known to others only once it is committed."""
        self.changed: set[str] = set()
        """Runs whose readers or workers have something new."""
        self.forgotten: set[str] = set()
        """Runs whose key was dropped: no copy of it may stay in this process."""
        self.edited: set[str] = set()
        """Cards whose copies this operation owes an edit; one is enough, it shows what is true when it is sent."""
        self.entries: list[AuditEntry] = []
        """What the audit is to say of this operation; written at its end."""

    @property
    def now(self) -> int:
        """The time, read once an operation."""
        if self._now is None:
            override = self._clock.override()
            self._now = override if override is not None else int(self.connection.execute(_NOW, {"now": None}).fetchall()[0][0])
        return self._now

    @property
    def override(self) -> int | None:
        """What `SQLITE_NOW` is bound to, in a statement that reads more than the time."""
        return self._clock.override()

    def note_now(self, now: int) -> None:
        """Take the time that a statement of this operation returned; the first one counts."""
        if self._now is None:
            self._now = now

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Return the first row. All rows are fetched: a statement left open would outlive its transaction."""
        rows = self.connection.execute(sql, parameters).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return all rows."""
        return self.connection.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute, and return how many rows changed."""
        return self.connection.execute(sql, parameters).rowcount

    def many(self, sql: str, rows: Sequence[Parameters]) -> None:
        """Execute once a row."""
        self.connection.executemany(sql, rows)

    def apart(self, work: Callable[[], T]) -> T | DurableError:
        """Do a part that may fail alone: what can't be opened is undone and returned as its error, the rest goes on."""
        self.connection.execute("SAVEPOINT part")
        try:
            result: T | DurableError = work()
        except (KeyMissing, CannotOpen, ContentGone, Broken) as error:
            self.connection.execute("ROLLBACK TO part")
            result = error
        self.connection.execute("RELEASE part")
        return result

    # ── sealed values ──

    def new_key(self, run_id: str) -> bytes:
        """Make the key of a new run and return it wrapped, to be stored."""
        key, wrapped = self._sealing.new_key(run_id)
        self.fresh[run_id] = key
        return wrapped

    def key(self, run_id: str) -> SessionKey:
        """Return the key of a run.

        Raises:
            ContentGone: the key was dropped.
        """
        if self._key is not None and self._key[0] == run_id:
            return self._key[1]
        key = self.fresh.get(run_id) or self._sealing.cached(run_id)
        if key is None:
            row = self.one("SELECT session_key FROM moor_run WHERE run_id = ?", (run_id,))
            if row is None:
                raise Broken(f"{run_id} has rows but no run")
            if not row[0]:
                raise ContentGone(run_id)
            key = self._sealing.unwrap(run_id, row[0])
        self._key = (run_id, key)
        return key

    @property
    def sealing(self) -> Sealing:
        """What seals entries of the vault, which have no run."""
        return self._sealing

    @property
    def current_key_id(self) -> str:
        """The id of the key that wraps runs' keys now."""
        return self._sealing.current_id

    def rewrapped(self, run_id: str, wrapped: bytes) -> bytes:
        """Return a run's key wrapped by the current key of the ring."""
        return self._sealing.rewrapped(run_id, wrapped)

    def digest(self, digest: bytes) -> bytes:
        """Return the keyed form of a payload's hash."""
        return self._sealing.digest(digest)

    def is_digest(self, kept: bytes, digest: bytes) -> bool:
        """Tell whether a kept form is of this hash."""
        return self._sealing.is_digest(kept, digest)

    def seal(self, run_id: str, plain: bytes, at: Place) -> bytes:
        """Seal a value for its place."""
        return self.key(run_id).seal(plain, table=at.table, row=at.row(run_id), column=at.column)

    def seal_optional(self, run_id: str, plain: bytes | None, at: Place) -> bytes | None:
        """Seal a value that may be missing."""
        return None if plain is None else self.seal(run_id, plain, at)

    def open(self, run_id: str, sealed: bytes, at: Place) -> bytes:
        """Open a value that stands at its place.

        Raises:
            ContentGone: it was deleted; the key that this process still had is let go.
        """
        if not sealed:
            self._sealing.drop({run_id})
            raise ContentGone(run_id)
        return self.key(run_id).open(sealed, table=at.table, row=at.row(run_id), column=at.column)

    def open_optional(self, run_id: str, sealed: bytes | None, at: Place) -> bytes | None:
        """Open a value that may be missing."""
        return None if sealed is None else self.open(run_id, sealed, at)
