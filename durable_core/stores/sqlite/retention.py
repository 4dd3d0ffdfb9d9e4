"""Retention: deleting content and keeping the skeleton, forgetting at once, redacting single bodies, wrapping keys anew.

What lives here: everything that touches a run's key after its making. What does not: when to do it (durable_core/retention.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from durable_core.crypto import wrapped_by
from durable_core.errors import Broken, ContentGone, DurableError, NotFound
from durable_core.keys import IN_VAULT
from durable_core.model import EventDraft, RunStatus
from durable_core.stores import cells
from durable_core.stores.cells import Cell
from durable_core.stores.sealing import tell_closed
from durable_core.stores.sqlite import events, vaults
from durable_core.stores.sqlite.tx import Tx

GRACE_MS: Final = 60_000
"""How long after its end a run's content stays whatever its retention says: open readers get to the end (CORE 19)."""

_DUE: Final = """
    SELECT run_id FROM moor_run r
    WHERE purge_at IS NOT NULL AND purged_at IS NULL AND purge_at <= :now AND status = 'ended' AND ended_at <= :now - :grace
      AND NOT EXISTS (SELECT 1 FROM moor_outbox o WHERE o.run_id = r.run_id AND o.state = 'pending')
    ORDER BY purge_at LIMIT :limit
"""
# Without its key nothing of the run opens any more; the bodies go too, so that the space comes back.
_SHRED: Final = (
    "UPDATE moor_run SET session_key = X'', header = X'', purged_at = :now, purge_at = NULL WHERE run_id = :run_id",
    "UPDATE moor_prompt SET body = X'', note = NULL WHERE run_id = :run_id",
    "UPDATE moor_interaction SET body = X'', note = NULL WHERE run_id = :run_id",
    "UPDATE moor_claim SET value = X'' WHERE done_run = :run_id",
    "UPDATE moor_admission SET detail = NULL WHERE run_id = :run_id",
    "DELETE FROM moor_record WHERE run_id = :run_id",
)
# The many rows are written anew without their bodies: an UPDATE would leave each in its page, which then is half empty for good.
_MANY: Final = MappingProxyType(
    {"moor_event": {"body"}, "moor_step": {"input", "output"}, "moor_command": {"body"}, "moor_outbox": {"body"}}
)
_WRAPPED: Final = "SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL AND run_id > ? ORDER BY run_id LIMIT ?"
_REWRAP: Final = "UPDATE moor_run SET session_key = ? WHERE run_id = ? AND session_key = ?"

_INCREMENTAL: Final = 2
_PORTION: Final = 256
"""Pages given back to the disk at a time: 1 MB, some milliseconds."""


def purge(tx: Tx, *, limit: int) -> list[str]:
    """Delete content of ended runs that has been kept long enough, and what has expired of the vault; return the runs' ids."""
    due = [run_id for (run_id,) in tx.all(_DUE, {"now": tx.now, "grace": GRACE_MS, "limit": limit})]
    for run_id in due:
        _shred(tx, run_id)
    vaults.purge(tx)
    return due


def forget(tx: Tx, run_id: str) -> bool:
    """Delete the content of an ended run now; False when it is gone already, or the run is open.

    Raises:
        NotFound: no such run.
    """
    row = tx.one("SELECT status, purged_at FROM moor_run WHERE run_id = ?", (run_id,))
    if row is None:
        raise NotFound("run", run_id)
    if row[0] != RunStatus.ENDED or row[1] is not None:
        return False
    _shred(tx, run_id)
    return True


def rewrap(tx: Tx, *, after: str, limit: int) -> tuple[str | None, int]:
    """Wrap the keys of the next runs by the ring's current key; return where to go on, None at the end, and how many changed.

    After the runs come the entries of the vault. What the ring can't open stays as it is: the others must not wait for it.
    """
    if after.startswith(IN_VAULT):
        following, changed = vaults.rewrap(tx, after=after.removeprefix(IN_VAULT), limit=limit)
        return (None if following is None else IN_VAULT + following), changed
    changed = 0
    closed: dict[str, DurableError] = {}
    found = tx.all(_WRAPPED, (after, limit))
    for run_id, wrapped in found:
        if wrapped_by(wrapped) != tx.current_key_id:
            anew = tx.apart(lambda at=(run_id, wrapped): tx.rewrapped(*at))  # type: ignore[misc]
            if isinstance(anew, DurableError):
                closed[run_id] = anew
            else:
                changed += tx.run(_REWRAP, (anew, run_id, wrapped))
    tell_closed(closed)
    if len(found) == limit:
        return found[-1][0], changed
    return (IN_VAULT if tx.one("SELECT 1 FROM moor_vault LIMIT 1") else None), changed


def redact(tx: Tx, run_id: str, bodies: Mapping[str, bytes], drafts: Sequence[EventDraft]) -> int:
    """Replace bodies where they stand and append events about it; return how many differ from what was there.

    Raises:
        NotFound: no such run.
        ContentGone: nothing of it is left.
        Broken: a name that names nothing.
    """
    row = tx.one("SELECT purged_at FROM moor_run WHERE run_id = ?", (run_id,))
    if row is None:
        raise NotFound("run", run_id)
    if row[0] is not None:
        raise ContentGone(run_id)
    changed = sum(_replace(tx, run_id, name, body) for name, body in bodies.items())
    if changed:
        tx.run("UPDATE moor_run SET redactions = redactions + 1 WHERE run_id = ?", (run_id,))
        events.append(tx, run_id, drafts)
        tx.changed.add(run_id)
    return changed


def give_back(tx: Tx) -> bool:
    """Give some free pages of the file back to the disk; False when there are none, or the file was made without that."""
    if tx.all("PRAGMA auto_vacuum")[0][0] != _INCREMENTAL:
        return False
    # one step a page, each without columns: sqlite3's execute() would make only the first
    tx.connection.executescript(f"PRAGMA incremental_vacuum({_PORTION})")
    return bool(tx.all("PRAGMA freelist_count")[0][0])


def _replace(tx: Tx, run_id: str, name: str, body: bytes) -> bool:
    cell = cells.named(name)
    if cell is None:
        raise Broken(f"{name!r} names no content of a run")
    found = tx.one(f"SELECT {cell.column} FROM {cell.table} WHERE {cell.where}", cell.parameters(run_id))
    if found is None or found[0] is None or tx.open(run_id, found[0], cell.place) == body:
        return False
    tx.run(_write(cell), {**cell.parameters(run_id), "sealed": tx.seal(run_id, body, cell.place)})
    return True


def _write(cell: Cell) -> str:
    return f"UPDATE {cell.table} SET {cell.column} = :sealed WHERE {cell.where}"


def _shred(tx: Tx, run_id: str) -> None:
    for sql in _SHRED:
        tx.run(sql, {"run_id": run_id, "now": tx.now} if ":now" in sql else {"run_id": run_id})
    for table, bodies in _MANY.items():
        _strip(tx, run_id, table, bodies)
    tx.forgotten.add(run_id)
    tx.changed.add(run_id)


def _strip(tx: Tx, run_id: str, table: str, bodies: set[str]) -> None:
    names = [row[1] for row in tx.all(f"PRAGMA table_info({table})")]
    bare = ", ".join("X''" if name in bodies else name for name in names)
    rows = tx.all(f"SELECT {bare} FROM {table} WHERE run_id = ?", (run_id,))
    tx.run(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    tx.many(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)
