"""Retention: deleting content and keeping the skeleton, forgetting a run at once, wrapping keys anew.

What lives here: everything that touches a run's key after its making. What does not: when to do it (durable_core/retention.py).
"""

from __future__ import annotations

from typing import Final

from durable_core.crypto import wrapped_by
from durable_core.errors import NotFound
from durable_core.model import RunStatus
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
    "UPDATE moor_command SET body = X'' WHERE run_id = :run_id",
    "UPDATE moor_step SET input = X'', output = X'' WHERE run_id = :run_id",
    "UPDATE moor_event SET body = X'' WHERE run_id = :run_id",
    "UPDATE moor_prompt SET body = X'', note = NULL WHERE run_id = :run_id",
    "UPDATE moor_interaction SET body = X'', note = NULL WHERE run_id = :run_id",
    "UPDATE moor_outbox SET body = X'' WHERE run_id = :run_id",
    "UPDATE moor_admission SET detail = NULL WHERE run_id = :run_id",
    "DELETE FROM moor_record WHERE run_id = :run_id",
)
_WRAPPED: Final = "SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL AND run_id > ? ORDER BY run_id LIMIT ?"
_REWRAP: Final = "UPDATE moor_run SET session_key = ? WHERE run_id = ? AND session_key = ?"


def purge(tx: Tx, *, limit: int) -> list[str]:
    """Delete the content of ended runs that has been kept long enough; return their ids."""
    due = [run_id for (run_id,) in tx.all(_DUE, {"now": tx.now, "grace": GRACE_MS, "limit": limit})]
    for run_id in due:
        _shred(tx, run_id)
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
    """Wrap the keys of the next runs by the ring's current key; return where to go on, None at the end, and how many changed."""
    changed = 0
    found = tx.all(_WRAPPED, (after, limit))
    for run_id, wrapped in found:
        if wrapped_by(wrapped) != tx.current_key_id:
            changed += tx.run(_REWRAP, (tx.rewrapped(run_id, wrapped), run_id, wrapped))
    return (found[-1][0] if len(found) == limit else None), changed


def _shred(tx: Tx, run_id: str) -> None:
    for sql in _SHRED:
        tx.run(sql, {"run_id": run_id, "now": tx.now} if ":now" in sql else {"run_id": run_id})
    tx.forgotten.add(run_id)
    tx.changed.add(run_id)
