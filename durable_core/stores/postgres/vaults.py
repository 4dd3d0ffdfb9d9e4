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
from durable_core.stores.postgres.tx import Again, Tx
from durable_core.stores.sealing import tell_closed
from durable_core.stores.vaults import COLUMNS, EXPIRED_AT_ONCE, LISTED, Row

_ENTRY: Final = f"SELECT {COLUMNS} FROM moor_vault WHERE name = $1"
# In one order, whoever writes: two that write the same names wait for each other once.
_ENTRIES: Final = f"SELECT {COLUMNS} FROM moor_vault WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE"
_NUMBERED: Final = ", ".join(f"${number}" for number in range(1, len(Row._fields) + 1))
_CHANGE: Final = f"UPDATE moor_vault SET ({COLUMNS}) = ROW ({_NUMBERED}) WHERE name = $1"
_MAKE: Final = f"INSERT INTO moor_vault ({COLUMNS}) VALUES ({_NUMBERED}) ON CONFLICT (name) DO NOTHING"
_DELETE: Final = "DELETE FROM moor_vault WHERE name = $1"
_HOLD: Final = "UPDATE moor_vault SET holder = $1, held_until = $2 WHERE name = $3"
_RELEASE: Final = "UPDATE moor_vault SET holder = NULL, held_until = NULL WHERE name = $1 AND holder = $2"
_DUE: Final = f"""
    SELECT {COLUMNS} FROM moor_vault
    WHERE kind = $1 AND due_at <= $2 AND (due_at, name) > ($3::bigint, $4::text)
      AND (expires_at IS NULL OR expires_at > $2) AND (held_until IS NULL OR held_until <= $2)
    ORDER BY due_at, name LIMIT $5
"""
_LIST: Final = f"""
    SELECT {LISTED} FROM moor_vault WHERE name > $1 AND (expires_at IS NULL OR expires_at > $2) {{of}}
    ORDER BY name LIMIT $3
"""
_EXPIRED: Final = """
    DELETE FROM moor_vault WHERE name IN
        (SELECT name FROM moor_vault WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
_NEXT: Final = f"SELECT {COLUMNS} FROM moor_vault WHERE name > $1 ORDER BY name LIMIT $2"
_REWRAP: Final = "UPDATE moor_vault SET sealed = $1 WHERE name = $2 AND sealed = $3"


async def entry(tx: Tx, name: str) -> VaultEntry | None:
    """Return an entry, opened; None where there is none.

    Raises:
        CannotOpen, KeyMissing: it doesn't open.
    """
    at = await tx.now()
    row = vaults.found(await tx.one(_ENTRY, name), at)
    return None if row is None else vaults.entry(tx.sealing, row, at)


async def write(tx: Tx, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
    """Write all, and return the new versions; or None, where one of them is not as expected.

    Raises:
        Again: another transaction has made an entry meanwhile.
    """
    rows = {row[0]: Row(*row) for row in await tx.all(_ENTRIES, sorted(write.name for write in writes))}
    planned = vaults.planned(tx.sealing, writes, rows, await tx.now())
    if planned is None:
        return None
    for write, row in sorted(zip(writes, planned, strict=True), key=lambda pair: pair[0].name):
        if row is None:
            await tx.run(_DELETE, write.name)
        elif write.name in rows:
            await tx.run(_CHANGE, *row)
        elif not await tx.run(_MAKE, *row):
            raise Again
    return tuple(0 if row is None else row.version for row in planned)


async def hold(tx: Tx, name: str, holder: str, *, ms: int) -> VaultEntry | None:
    """Take the lease where nobody else has it, and return the entry as it stands then; None where there is none.

    Raises:
        CannotOpen, KeyMissing: it doesn't open, and nobody gets the lease.
    """
    locked = await tx.one(_ENTRIES, [name])
    at = await tx.now()
    row = vaults.found(locked, at)
    if row is None:
        return None
    if row.holds(at) in (None, holder):
        row = row._replace(holder=holder, held_until=at + ms)
        await tx.run(_HOLD, row.holder, row.held_until, name)
    return vaults.entry(tx.sealing, row, at)


async def release(tx: Tx, name: str, holder: str) -> None:
    """Give a lease back; another's stays."""
    await tx.run(_RELEASE, name, holder)


async def due(tx: Tx, kind: str, *, limit: int) -> list[VaultEntry]:
    """Return entries whose time has come, the longest due first; those that don't open are passed over."""
    at = await tx.now()
    opened: list[VaultEntry] = []
    after = (-(2**62), "")
    while len(opened) < limit:
        rows = [Row(*row) for row in await tx.all(_DUE, kind, at, *after, limit)]
        for row in rows:
            try:
                opened.append(vaults.entry(tx.sealing, row, at))
            except (CannotOpen, KeyMissing) as error:
                tx.sealing.tell_unopened(row.name, error)
        if len(rows) < limit:
            break
        after = (rows[-1].due_at or 0, rows[-1].name)
    return opened[:limit]


async def listing(tx: Tx, *, kind: str | None, owner: str | None, after: str, limit: int) -> list[VaultListing]:
    """Return what there is to say of entries, by name."""
    wanted = {name: value for name, value in (("kind", kind), ("owner", owner)) if value is not None}
    of = " ".join(f"AND {name} = ${number}" for number, name in enumerate(wanted, start=4))
    rows = await tx.all(_LIST.format(of=of), after, await tx.now(), limit, *wanted.values())
    return [vaults.listing(row) for row in rows]


async def purge(tx: Tx) -> None:
    """Delete entries that have expired, the first ones first."""
    await tx.run(_EXPIRED, await tx.now(), EXPIRED_AT_ONCE)


async def rewrap(tx: Tx, *, after: str, limit: int) -> tuple[str | None, int]:
    """Seal the next entries by the ring's current key; return where to go on, None at the end, and how many changed."""
    changed = 0
    closed: dict[str, DurableError] = {}
    rows = [Row(*row) for row in await tx.all(_NEXT, after, limit)]
    for row in rows:
        if wrapped_by(row.sealed) != tx.current_key_id:
            try:
                anew = vaults.rewrapped(tx.sealing, row)
            except (CannotOpen, KeyMissing) as error:
                closed[row.name] = error
            else:
                changed += await tx.run(_REWRAP, anew, row.name, row.sealed)
    tell_closed(closed)
    return (rows[-1].name if len(rows) == limit else None), changed
