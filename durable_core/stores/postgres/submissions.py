"""Admission rows: what came in under which key, and how it ended.

What lives here: finding, writing and settling them. What does not: what admission does to a run (`admission.py`, `prompts.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from durable_core.errors import Conflict
from durable_core.model import Outcome, SubmissionOutcome
from durable_core.stores import sealing
from durable_core.stores.postgres.tx import Again, Tx

_FIND: Final = "SELECT submission_id, run_id, seq, kind, digest, created FROM moor_admission WHERE source = $1 AND key = $2"
_INSERT: Final = """
    INSERT INTO moor_admission (source, key, submission_id, run_id, seq, kind, digest, created, outcome, detail, at, done_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    ON CONFLICT (source, key) DO NOTHING
"""
_SETTLE: Final = """
    UPDATE moor_admission a SET outcome = x.outcome, detail = x.detail, reply_step = x.reply_step, done_at = $2
    FROM (
        SELECT (SELECT b.ctid FROM moor_admission b WHERE b.submission_id = o.id) AS place, o.outcome, o.detail, o.reply_step
        FROM unnest($3::text[], $4::text[], $5::bytea[], $6::bigint[]) AS o (id, outcome, detail, reply_step)
    ) x
    WHERE a.ctid = x.place AND a.run_id = $1 AND a.outcome IS NULL
"""
_OPEN: Final = "SELECT submission_id FROM moor_admission WHERE run_id = $1 AND outcome IS NULL"


class Known(NamedTuple):
    """What an earlier delivery under the same key left."""

    submission_id: str
    run_id: str
    seq: int
    kind: str
    digest: bytes
    created: int


async def find(tx: Tx, source: str, key: str, digest: bytes, *, merge: bool) -> Known | None:
    """Return what a key was used for.

    Raises:
        Conflict: another payload, and it isn't to be merged.
    """
    row = await tx.one(_FIND, source, key)
    if row is None:
        return None
    known = Known(*row)
    if not merge and not tx.is_digest(known.digest, digest):
        raise Conflict(source, key)
    return known


async def insert(
    tx: Tx,
    run_id: str,
    *,
    source: str,
    key: str,
    submission_id: str,
    seq: int,
    kind: str,
    digest: bytes,
    at: int,
    created: bool = False,
    outcome: Outcome | None = None,
    detail: bytes | None = None,
) -> None:
    """Write what came in; with an `outcome` it is settled as it comes in. The run's key has to be known.

    Raises:
        Again: another transaction used the key meanwhile; all of this one is undone, and a new one finds it.
    """
    written = await tx.run(
        _INSERT,
        source,
        key,
        submission_id,
        run_id,
        seq,
        kind,
        tx.digest(digest),
        int(created),
        None if outcome is None else outcome.value,
        tx.seal_optional(run_id, detail, sealing.admission_detail(submission_id)),
        at,
        None if outcome is None else at,
    )
    if not written:
        raise Again


async def settle(tx: Tx, run_id: str, outcomes: Sequence[SubmissionOutcome], at: int) -> None:
    """End submissions of a run; one that has an outcome keeps it, the first of two for one counts. Its key has to be known."""
    items = {item.submission_id: item for item in reversed(outcomes)}
    if items:
        await tx.run(_SETTLE, run_id, at, *outcome_columns(tx, run_id, list(items.values())))


def outcome_columns(
    tx: Tx, run_id: str, items: Sequence[SubmissionOutcome]
) -> tuple[list[str], list[str], list[bytes | None], list[int | None]]:
    """Return outcomes as columns: ids, outcomes, sealed details, reply steps."""
    return (
        [item.submission_id for item in items],
        [item.outcome.value for item in items],
        [tx.seal_optional(run_id, item.detail, sealing.admission_detail(item.submission_id)) for item in items],
        [item.reply_step for item in items],
    )


async def abort_open(tx: Tx, run_id: str, detail: bytes, at: int) -> None:
    """End all that is still open in a run; its key has to be known."""
    rows = await tx.all(_OPEN, run_id)
    outcomes = [SubmissionOutcome(submission_id=row[0], outcome=Outcome.ABORTED, detail=detail) for row in rows]
    await settle(tx, run_id, outcomes, at)
