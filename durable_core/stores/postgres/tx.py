"""What an operation works with inside a transaction: the connection, the time, the runs' keys, and what it changed.

What lives here: the `Tx` that every operation takes. What does not: beginning and ending transactions (`database.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import asyncpg

from durable_core.clock import Clock
from durable_core.crypto import SessionKey
from durable_core.errors import Broken, CannotOpen, ContentGone, DurableError, KeyMissing
from durable_core.model import AuditEntry
from durable_core.stores.postgres.sql import now, numbered, plain, qualified
from durable_core.stores.sealing import Place, Sealing

T = TypeVar("T")
Row = Sequence[Any]

UNOPENABLE: Final = (KeyMissing, CannotOpen, ContentGone, Broken)
"""What a value that can't be opened raises."""
UNOPENABLE_MS: Final = 60_000
"""How long what can't be opened is left alone, so that it stops nothing else; it goes on once its key is back."""

_NOW: Final = f"SELECT {now('$1')}"


class Again(Exception):
    """Another transaction was first: nothing is written, and a new transaction sees what it left."""


class Tx:
    """One operation's view of a transaction; lives as long as the operation."""

    __slots__ = (
        "_clock",
        "_namespace",
        "_now",
        "_sealing",
        "_wrapped",
        "changed",
        "connection",
        "edited",
        "entries",
        "forgotten",
        "fresh",
    )

    def __init__(self, connection: asyncpg.Connection, *, clock: Clock, sealing: Sealing, namespace: str | None) -> None:
        self.connection = connection
        self._clock = clock
        self._sealing = sealing
        self._namespace = namespace
        self._now: int | None = None
        self._wrapped: dict[str, bytes] = {}
        self.fresh: dict[str, SessionKey] = {}
        """Keys of runs made in this transaction: known to others only once it is committed."""
        self.changed: set[str] = set()
        """Runs whose readers or workers have something new."""
        self.forgotten: set[str] = set()
        """Runs whose key was dropped: no copy of it may stay in this process."""
        self.edited: set[str] = set()
        """Cards whose copies this operation owes an edit; one is enough, it shows what is true when it is sent."""
        self.entries: list[AuditEntry] = []
        """What the audit is to say of this operation; written at its end."""

    # ── time ──

    @property
    def override(self) -> int | None:
        """What `sql.now` is bound to."""
        return self._clock.override()

    async def now(self) -> int:
        """Return the time, read once an operation."""
        if self._now is None:
            override = self._clock.override()
            self._now = override if override is not None else int((await self.connection.fetch(_NOW, None))[0][0])
        return self._now

    def note_now(self, now: int) -> None:
        """Take the time that a statement of this operation returned; the first one counts."""
        if self._now is None:
            self._now = now

    # ── statements ──

    async def one(self, sql: str, *args: Any) -> Row | None:
        """Return the first row."""
        rows = await self.connection.fetch(self._at(sql), *args)
        return rows[0] if rows else None

    async def all(self, sql: str, *args: Any) -> list[Row]:
        """Return all rows."""
        rows: list[Row] = await self.connection.fetch(self._at(sql), *args)
        return rows

    async def run(self, sql: str, *args: Any) -> int:
        """Execute, and return how many rows changed."""
        tag: str = await self.connection.execute(self._at(sql), *args)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute once a row."""
        await self.connection.executemany(self._at(sql), rows)

    async def named(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[str | int | bytes | None, ...]]:
        """Execute a statement of a layer above: named parameters, portable SQL."""
        text, names = numbered(sql)
        try:
            args = [parameters[name] for name in names]
        except KeyError as error:
            raise Broken(f"the statement wants a parameter {error}") from error
        return [tuple(plain(value) for value in row) for row in await self.connection.fetch(self._at(text), *args)]

    async def apart(self, work: Callable[[], Awaitable[T]]) -> T | DurableError:
        """Do a part that may fail alone: what can't be opened is undone and returned as its error, the rest goes on."""
        await self.connection.execute("SAVEPOINT part")
        try:
            result: T | DurableError = await work()
        except UNOPENABLE as error:
            await self.connection.execute("ROLLBACK TO part")
            result = error
        await self.connection.execute("RELEASE part")
        return result

    def _at(self, sql: str) -> str:
        return sql if self._namespace is None else qualified(sql, self._namespace)

    # ── sealed values ──

    def new_key(self, run_id: str) -> bytes:
        """Make the key of a new run and return it wrapped, to be stored."""
        key, wrapped = self._sealing.new_key(run_id)
        self.fresh[run_id] = key
        return wrapped

    async def know(self, *run_ids: str) -> None:
        """Load the keys of runs: `seal` and `open` need them at hand. What can't be unwrapped says so only when it is used."""
        unknown = [run_id for run_id in set(run_ids) if not self._has(run_id)]
        if unknown:
            for run_id, wrapped in await self.all(
                "SELECT run_id, session_key FROM moor_run WHERE run_id = ANY($1::text[])", sorted(unknown)
            ):
                self.note_key(run_id, wrapped)

    def note_key(self, run_id: str, wrapped: bytes) -> None:
        """Take a stored key that a statement of this operation returned."""
        self._wrapped[run_id] = wrapped

    def unknown(self, run_ids: Collection[str]) -> list[str]:
        """Return the runs whose keys are not at hand."""
        return [run_id for run_id in run_ids if not self._has(run_id)]

    def key(self, run_id: str) -> SessionKey:
        """Return the key of a run that is known.

        Raises:
            KeyMissing, CannotOpen: it doesn't open.
            ContentGone: it was dropped.
        """
        key = self.fresh.get(run_id) or self._sealing.cached(run_id)
        if key is None:
            wrapped = self._wrapped.get(run_id)
            if wrapped is None:
                raise Broken(f"{run_id} has rows but no run")
            if not wrapped:
                raise ContentGone(run_id)
            key = self._sealing.unwrap(run_id, wrapped)
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
        """Seal a value for its place; `know` the run first."""
        return self.key(run_id).seal(plain, table=at.table, row=at.row(run_id), column=at.column)

    def seal_optional(self, run_id: str, plain: bytes | None, at: Place) -> bytes | None:
        """Seal a value that may be missing."""
        return None if plain is None else self.seal(run_id, plain, at)

    def open(self, run_id: str, sealed: bytes, at: Place) -> bytes:
        """Open a value that stands at its place; `know` the run first."""
        if not sealed:  # another process dropped the key, which this one still had
            self.forgotten.add(run_id)
            raise ContentGone(run_id)
        return self.key(run_id).open(sealed, table=at.table, row=at.row(run_id), column=at.column)

    def open_optional(self, run_id: str, sealed: bytes | None, at: Place) -> bytes | None:
        """Open a value that may be missing."""
        return None if sealed is None else self.open(run_id, sealed, at)

    def _has(self, run_id: str) -> bool:
        if run_id in self.fresh or run_id in self._wrapped:
            return True
        key = self._sealing.cached(run_id)
        if key is not None:
            self.fresh[run_id] = key  # held for this operation, whatever the cache drops meanwhile
        return key is not None
