"""Events: appending to a run's one list.

What lives here: positions and visible indexes, counted on the run row. What does not: reading (`reads.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from durable_core.crypto import SessionKey
from durable_core.errors import NotFound
from durable_core.model import EventDraft
from durable_core.stores import rows, sealing
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Tx

_COUNT: Final = f"""
    UPDATE moor_run SET
        event_seq = event_seq + $2,
        event_index = event_index + $3,
        last_at = greatest(last_at, {now("$4")})
    WHERE run_id = $1
    RETURNING event_seq - $2, event_index - $3, last_at, attempt, session_key
"""
_INSERT: Final = """
    INSERT INTO moor_event (run_id, seq, idx, type, body, refs, attempt, at)
    SELECT $1, x.seq, x.idx, x.type, x.body, x.refs, $2, $3
    FROM unnest($4::bigint[], $5::bigint[], $6::text[], $7::bytea[], $8::text[]) AS x (seq, idx, type, body, refs)
"""


class EventColumns(NamedTuple):
    """Events to be written, a list a column."""

    seq: list[int]
    idx: list[int | None]
    type: list[str]
    body: list[bytes]
    refs: list[str | None]


async def append(tx: Tx, run_id: str, drafts: Sequence[EventDraft]) -> None:
    """Append events; both counts start at 0 and have no gaps."""
    if not drafts:
        return
    row = await tx.one(_COUNT, run_id, len(drafts), sum(draft.visible for draft in drafts), tx.override)
    if row is None:
        raise NotFound("run", run_id)
    seq, index, at, attempt, wrapped = row
    tx.note_key(run_id, wrapped)
    await write(tx, run_id, drafts, seq=seq, index=index, attempt=attempt, at=at)


async def write(tx: Tx, run_id: str, drafts: Sequence[EventDraft], *, seq: int, index: int, attempt: int, at: int) -> None:
    """Write events whose numbers the caller counts on the run row; its key has to be known."""
    columns = sealed(tx.key(run_id), run_id, drafts, seq=seq, index=index)
    await tx.run(_INSERT, run_id, attempt, at, *columns)
    tx.changed.add(run_id)


def sealed(key: SessionKey, run_id: str, drafts: Sequence[EventDraft], *, seq: int, index: int) -> EventColumns:
    """Return events as columns, numbered from `seq` and, the visible ones, from `index` on."""
    columns = EventColumns([], [], [], [], [])
    for draft in drafts:
        place = sealing.event_body(seq)
        columns.seq.append(seq)
        columns.idx.append(index if draft.visible else None)
        columns.type.append(draft.type)
        columns.body.append(key.seal(draft.body, table=place.table, row=place.row(run_id), column=place.column))
        columns.refs.append(rows.refs_to(draft.refs))
        seq += 1
        index += draft.visible
    return columns
