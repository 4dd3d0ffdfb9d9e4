"""The vault, the same for every database: what may be written, how an entry is read, what its seal is bound to.

What lives here: decisions on rows and values. What does not: statements, which belong to a dialect.

The ring's current key seals a value itself, so that an entry needs no run and no key beside it. Its random nonces allow 2**32
seals by one key of the ring (crypto.py): a write is one of them, as is a new session.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from durable_core.errors import CannotOpen
from durable_core.model import VaultEntry, VaultListing, VaultWrite
from durable_core.stores.sealing import Sealing

TABLE: Final = "moor_vault"
COLUMNS: Final = "name, kind, owner, version, sealed, about, due_at, expires_at, holder, held_until, created_at, changed_at"
LISTED: Final = "name, kind, owner, version, about, due_at, expires_at, created_at, changed_at"
EXPIRED_AT_ONCE: Final = 1_000
"""How many expired entries one purge deletes; they are small."""

_FIRST: Final = 2**48
"""Below this the first version of a name is drawn, so that none of an entry that was deleted comes back."""


class Row(NamedTuple):
    """A stored entry, in the order of `COLUMNS`."""

    name: str
    kind: str
    owner: str
    version: int
    sealed: bytes
    about: bytes
    due_at: int | None
    expires_at: int | None
    holder: str | None
    held_until: int | None
    created_at: int
    changed_at: int

    def stands(self, at: int) -> bool:
        """Tell whether the entry has not expired."""
        return self.expires_at is None or self.expires_at > at

    def holds(self, at: int) -> str | None:
        """Return who has the lease."""
        return self.holder if self.held_until is not None and self.held_until > at else None


def found(row: Sequence[Any] | None, at: int) -> Row | None:
    """Read `COLUMNS`; what has expired isn't there."""
    made = None if row is None else Row(*row)
    return made if made is not None and made.stands(at) else None


def entry(sealing: Sealing, row: Row, at: int) -> VaultEntry:
    """Open an entry.

    Raises:
        CannotOpen, KeyMissing: it isn't as it was written, or its key isn't in the ring.
    """
    holder = row.holds(at)
    return VaultEntry(
        name=row.name,
        kind=row.kind,
        owner=row.owner,
        version=row.version,
        value=_open(sealing, row),
        about=row.about,
        due_at=row.due_at,
        expires_at=row.expires_at,
        created_at=row.created_at,
        changed_at=row.changed_at,
        holder=holder,
        held_until=row.held_until if holder is not None else None,
    )


def listing(row: Sequence[Any]) -> VaultListing:
    """Read `LISTED`."""
    return VaultListing(**dict(zip(LISTED.split(", "), row, strict=True)))


def planned(sealing: Sealing, writes: Sequence[VaultWrite], rows: Mapping[str, Row], at: int) -> list[Row | None] | None:
    """Return the rows that writes leave, None for each that deletes; or None where one of them is not as it expects.

    `rows` are those that are there, expired ones too.

    Raises:
        ValueError: two writes to one name.
    """
    if len({write.name for write in writes}) < len(writes):
        raise ValueError("two writes to one name of the vault")
    if not all(_may(write, rows.get(write.name), at) for write in writes):
        return None
    return [_written(sealing, write, rows.get(write.name), at) for write in writes]


def rewrapped(sealing: Sealing, row: Row) -> bytes:
    """Return an entry's value sealed by the current key.

    Raises:
        CannotOpen, KeyMissing: it doesn't open.
    """
    return sealing.wrap(_open(sealing, row), _bound(row))


def _may(write: VaultWrite, row: Row | None, at: int) -> bool:
    here = row if row is not None and row.stands(at) else None
    if write.holder is not None and (here is None or here.holds(at) != write.holder):
        return False
    return write.expect is None or write.expect == (0 if here is None else here.version)


def _written(sealing: Sealing, write: VaultWrite, row: Row | None, at: int) -> Row | None:
    if write.value is None:
        return None
    made = Row(
        name=write.name,
        kind=write.kind,
        owner=write.owner,
        version=1 + (secrets.randbelow(_FIRST) if row is None else row.version),
        sealed=b"",
        about=write.about,
        due_at=write.due_at,
        expires_at=write.expires_at,
        holder=None,
        held_until=None,
        created_at=row.created_at if row is not None and row.stands(at) else at,
        changed_at=at,
    )
    return made._replace(sealed=sealing.wrap(write.value, _bound(made)))


def _open(sealing: Sealing, row: Row) -> bytes:
    try:
        return sealing.unwrap_value(row.sealed, _bound(row))
    except CannotOpen:  # which place the ring thinks it is, it can't know
        raise CannotOpen(TABLE, row.name, "sealed") from None


def _bound(row: Row) -> bytes:
    """Return what a value is bound to: JSON, since each part may hold any character. Never another form: nothing would open."""
    return json.dumps([TABLE, row.name, row.kind, row.owner, row.version]).encode()
