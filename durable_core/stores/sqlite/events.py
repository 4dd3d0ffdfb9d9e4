"""Events: appending to a run's one list.

What lives here: positions and visible indexes, counted on the run row. What does not: reading (`reads.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.errors import NotFound
from durable_core.model import EventDraft
from durable_core.stores import rows, sealing
from durable_core.stores.sqlite.tx import Tx

_COUNT: Final = """
    UPDATE moor_run SET
        event_seq = event_seq + :count,
        event_index = event_index + :visible,
        last_at = max(last_at, :now)
    WHERE run_id = :run_id
    RETURNING event_seq - :count, event_index - :visible, last_at, attempt
"""
_INSERT: Final = "INSERT INTO moor_event (run_id, seq, idx, type, body, refs, attempt, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def append(tx: Tx, run_id: str, drafts: Sequence[EventDraft]) -> None:
    """Append events; both counts start at 0 and have no gaps."""
    if not drafts:
        return
    visible = sum(draft.visible for draft in drafts)
    row = tx.one(_COUNT, {"run_id": run_id, "count": len(drafts), "visible": visible, "now": tx.now})
    if row is None:
        raise NotFound("run", run_id)
    seq, index, at, attempt = row
    write(tx, run_id, drafts, seq=seq, index=index, attempt=attempt, at=at)


def write(tx: Tx, run_id: str, drafts: Sequence[EventDraft], *, seq: int, index: int, attempt: int, at: int) -> None:
    """Write events whose numbers the caller counts on the run row."""
    written = []
    for draft in drafts:
        body = tx.seal(run_id, draft.body, sealing.event_body(seq))
        refs = rows.refs_to(draft.refs)
        written.append((run_id, seq, index if draft.visible else None, draft.type, body, refs, attempt, at))
        seq += 1
        index += draft.visible
    tx.many(_INSERT, written)
    tx.changed.add(run_id)
