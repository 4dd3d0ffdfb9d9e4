"""The vault: entries written by compare-and-set, the lease on one, what is due, what has expired.

What lives here: statements. What does not: sealing, and what may be written (`stores/vaults.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.crypto import wrapped_by
from durable_core.errors import CannotOpen, DurableError, KeyMissing
from durable_core.model import VaultEntry, VaultListing, VaultWrite
from durable_core.stores import vaults
from durable_core.stores.sealing import tell_closed
from durable_core.stores.sqlite.tx import Tx
from durable_core.stores.vaults import COLUMNS, EXPIRED_AT_ONCE, LISTED, Row

_ENTRY: Final = f"SELECT {COLUMNS} FROM moor_vault WHERE name = ?"
_PUT: Final = f"INSERT OR REPLACE INTO moor_vault ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_DELETE: Final = "DELETE FROM moor_vault WHERE name = ?"
_HOLD: Final = "UPDATE moor_vault SET holder = ?, held_until = ? WHERE name = ?"
_RELEASE: Final = "UPDATE moor_vault SET holder = NULL, held_until = NULL WHERE name = ? AND holder = ?"
_DUE: Final = f"""
    SELECT {COLUMNS} FROM moor_vault
    WHERE kind = :kind AND due_at <= :now AND (due_at, name) > (:due_at, :name)
      AND (expires_at IS NULL OR expires_at > :now) AND (held_until IS NULL OR held_until <= :now)
    ORDER BY due_at, name LIMIT :limit
"""
_LIST: Final = f"""
    SELECT {LISTED} FROM moor_vault WHERE name > :after AND (expires_at IS NULL OR expires_at > :now) {{of}}
    ORDER BY name LIMIT :limit
"""
_EXPIRED: Final = """
    DELETE FROM moor_vault WHERE name IN
        (SELECT name FROM moor_vault WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
"""
_NEXT: Final = f"SELECT {COLUMNS} FROM moor_vault WHERE name > ? ORDER BY name LIMIT ?"
_REWRAP: Final = "UPDATE moor_vault SET sealed = ? WHERE name = ? AND sealed = ?"


def entry(tx: Tx, name: str) -> VaultEntry | None:
    """Return an entry, opened; None where there is none.

    Raises:
        CannotOpen, KeyMissing: it doesn't open.
    """
    row = _found(tx, name)
    return None if row is None else vaults.entry(tx.sealing, row, tx.now)


def write(tx: Tx, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
    """Write all, and return the new versions; or None, where one of them is not as expected."""
    rows = {row[0]: Row(*row) for write in writes if (row := tx.one(_ENTRY, (write.name,))) is not None}
    planned = vaults.planned(tx.sealing, writes, rows, tx.now)
    if planned is None:
        return None
    for write, row in zip(writes, planned, strict=True):
        if row is None:
            tx.run(_DELETE, (write.name,))
        else:
            tx.run(_PUT, row)
    return tuple(0 if row is None else row.version for row in planned)


def hold(tx: Tx, name: str, holder: str, *, ms: int) -> VaultEntry | None:
    """Take the lease where nobody else has it, and return the entry as it stands then; None where there is none.

    Raises:
        CannotOpen, KeyMissing: it doesn't open, and nobody gets the lease.
    """
    row = _found(tx, name)
    if row is None:
        return None
    if row.holds(tx.now) in (None, holder):
        row = row._replace(holder=holder, held_until=tx.now + ms)
        tx.run(_HOLD, (row.holder, row.held_until, name))
    return vaults.entry(tx.sealing, row, tx.now)


def release(tx: Tx, name: str, holder: str) -> None:
    """Give a lease back; another's stays."""
    tx.run(_RELEASE, (name, holder))


def due(tx: Tx, kind: str, *, limit: int) -> list[VaultEntry]:
    """Return entries whose time has come, the longest due first; those that don't open are passed over."""
    opened: list[VaultEntry] = []
    after = (-(2**62), "")
    while len(opened) < limit:
        asked = {"kind": kind, "now": tx.now, "due_at": after[0], "name": after[1], "limit": limit}
        rows = [Row(*row) for row in tx.all(_DUE, asked)]
        for row in rows:
            try:
                opened.append(vaults.entry(tx.sealing, row, tx.now))
            except (CannotOpen, KeyMissing) as error:
                tx.sealing.tell_unopened(row.name, error)
        if len(rows) < limit:
            break
        after = (rows[-1].due_at or 0, rows[-1].name)
    return opened[:limit]


def listing(tx: Tx, *, kind: str | None, owner: str | None, after: str, limit: int) -> list[VaultListing]:
    """Return what there is to say of entries, by name."""
    wanted = {name: value for name, value in (("kind", kind), ("owner", owner)) if value is not None}
    of = " ".join(f"AND {name} = :{name}" for name in wanted)
    rows = tx.all(_LIST.format(of=of), {"after": after, "now": tx.now, "limit": limit, **wanted})
    return [vaults.listing(row) for row in rows]


def purge(tx: Tx) -> None:
    """Delete entries that have expired, the first ones first."""
    tx.run(_EXPIRED, (tx.now, EXPIRED_AT_ONCE))


def rewrap(tx: Tx, *, after: str, limit: int) -> tuple[str | None, int]:
    """Seal the next entries by the ring's current key; return where to go on, None at the end, and how many changed."""
    changed = 0
    closed: dict[str, DurableError] = {}
    rows = [Row(*row) for row in tx.all(_NEXT, (after, limit))]
    for row in rows:
        if wrapped_by(row.sealed) != tx.current_key_id:
            try:
                anew = vaults.rewrapped(tx.sealing, row)
            except (CannotOpen, KeyMissing) as error:
                closed[row.name] = error
            else:
                changed += tx.run(_REWRAP, (anew, row.name, row.sealed))
    tell_closed(closed)
    return (rows[-1].name if len(rows) == limit else None), changed


def _found(tx: Tx, name: str) -> Row | None:
    return vaults.found(tx.one(_ENTRY, (name,)), tx.now)
