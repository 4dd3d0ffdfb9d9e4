"""Retention: deleting content and keeping the skeleton, forgetting at once, redacting single bodies, wrapping keys anew.

What lives here: everything that touches a run's key after its making. What does not: when to do it (durable_core/retention.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from durable_core.crypto import wrapped_by
from durable_core.errors import Broken, ContentGone, DurableError, NotFound
from durable_core.keys import IN_VAULT
from durable_core.model import EventDraft, RunStatus
from durable_core.stores import cells
from durable_core.stores.cells import Cell
from durable_core.stores.postgres import events, vaults
from durable_core.stores.postgres.tx import UNOPENABLE, Tx
from durable_core.stores.sealing import tell_closed

GRACE_MS: Final = 60_000
"""How long after its end a run's content stays whatever its retention says: open readers get to the end (CORE 19)."""

_DUE: Final = """
    SELECT run_id FROM moor_run r
    WHERE purge_at IS NOT NULL AND purged_at IS NULL AND purge_at <= $1 AND status = 'ended' AND ended_at <= $1 - $2::bigint
      AND NOT EXISTS (SELECT 1 FROM moor_outbox o WHERE o.run_id = r.run_id AND o.state = 'pending')
    ORDER BY purge_at LIMIT $3 FOR UPDATE SKIP LOCKED
"""
_GONE: Final = "UPDATE moor_run SET session_key = '', header = '', purged_at = $2, purge_at = NULL WHERE run_id = $1"
# Without its key nothing of the run opens any more; the bodies go too, so that the space comes back.
_SHRED: Final = (
    "UPDATE moor_command SET body = '' WHERE run_id = $1",
    "UPDATE moor_step SET input = '', output = '' WHERE run_id = $1",
    "UPDATE moor_event SET body = '' WHERE run_id = $1",
    "UPDATE moor_prompt SET body = '', note = NULL WHERE run_id = $1",
    "UPDATE moor_interaction SET body = '', note = NULL WHERE run_id = $1",
    "UPDATE moor_outbox SET body = '' WHERE run_id = $1",
    "UPDATE moor_claim SET value = '' WHERE done_run = $1",
    "UPDATE moor_admission SET detail = NULL WHERE run_id = $1",
    "DELETE FROM moor_record WHERE run_id = $1",
)
_WRAPPED: Final = "SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL AND run_id > $1 ORDER BY run_id LIMIT $2"
_REWRAP: Final = "UPDATE moor_run SET session_key = $1 WHERE run_id = $2 AND session_key = $3"


async def purge(tx: Tx, *, limit: int) -> list[str]:
    """Delete content of ended runs that has been kept long enough, and what has expired of the vault; return the runs' ids."""
    due = [run_id for (run_id,) in await tx.all(_DUE, await tx.now(), GRACE_MS, limit)]
    for run_id in due:
        await _shred(tx, run_id)
    await vaults.purge(tx)
    return due


async def forget(tx: Tx, run_id: str) -> bool:
    """Delete the content of an ended run now; False when it is gone already, or the run is open.

    Raises:
        NotFound: no such run.
    """
    row = await tx.one("SELECT status, purged_at FROM moor_run WHERE run_id = $1 FOR UPDATE", run_id)
    if row is None:
        raise NotFound("run", run_id)
    if row[0] != RunStatus.ENDED or row[1] is not None:
        return False
    await _shred(tx, run_id)
    return True


async def rewrap(tx: Tx, *, after: str, limit: int) -> tuple[str | None, int]:
    """Wrap the keys of the next runs by the ring's current key; return where to go on, None at the end, and how many changed.

    After the runs come the entries of the vault. What the ring can't open stays as it is: the others must not wait for it.
    """
    if after.startswith(IN_VAULT):
        following, changed = await vaults.rewrap(tx, after=after.removeprefix(IN_VAULT), limit=limit)
        return (None if following is None else IN_VAULT + following), changed
    changed = 0
    closed: dict[str, DurableError] = {}
    found = await tx.all(_WRAPPED, after, limit)
    for run_id, wrapped in found:
        if wrapped_by(wrapped) != tx.current_key_id:
            try:
                anew = tx.rewrapped(run_id, wrapped)
            except UNOPENABLE as error:
                closed[run_id] = error
            else:
                changed += await tx.run(_REWRAP, anew, run_id, wrapped)
    tell_closed(closed)
    if len(found) == limit:
        return found[-1][0], changed
    return (IN_VAULT if await tx.one("SELECT 1 FROM moor_vault LIMIT 1") else None), changed


async def redact(tx: Tx, run_id: str, bodies: Mapping[str, bytes], drafts: Sequence[EventDraft]) -> int:
    """Replace bodies where they stand and append events about it; return how many differ from what was there.

    Raises:
        NotFound: no such run.
        ContentGone: nothing of it is left.
        Broken: a name that names nothing.
    """
    row = await tx.one("SELECT purged_at, session_key FROM moor_run WHERE run_id = $1 FOR UPDATE", run_id)
    if row is None:
        raise NotFound("run", run_id)
    if row[0] is not None:
        raise ContentGone(run_id)
    tx.note_key(run_id, row[1])
    changed = sum([await _replace(tx, run_id, name, body) for name, body in bodies.items()])
    if changed:
        await tx.run("UPDATE moor_run SET redactions = redactions + 1 WHERE run_id = $1", run_id)
        await events.append(tx, run_id, drafts)
        tx.changed.add(run_id)
    return changed


async def _replace(tx: Tx, run_id: str, name: str, body: bytes) -> bool:
    cell = cells.named(name)
    if cell is None:
        raise Broken(f"{name!r} names no content of a run")
    found = await tx.named(_read(cell), cell.parameters(run_id))
    sealed = found[0][0] if found else None
    if not isinstance(sealed, bytes) or tx.open(run_id, sealed, cell.place) == body:
        return False
    await tx.named(_write(cell), {**cell.parameters(run_id), "sealed": tx.seal(run_id, body, cell.place)})
    return True


def _read(cell: Cell) -> str:
    return f"SELECT {cell.column} FROM {cell.table} WHERE {cell.where}"


def _write(cell: Cell) -> str:
    return f"UPDATE {cell.table} SET {cell.column} = :sealed WHERE {cell.where}"


async def _shred(tx: Tx, run_id: str) -> None:
    await tx.run(_GONE, run_id, await tx.now())
    for sql in _SHRED:
        await tx.run(sql, run_id)
    tx.forgotten.add(run_id)
    tx.changed.add(run_id)
