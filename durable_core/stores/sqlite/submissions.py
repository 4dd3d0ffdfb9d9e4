"""Admission rows: what came in under which key, and how it ended.

What lives here: finding, writing and settling them. What does not: what admission does to a run (`admission.py`, `prompts.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from durable_core.errors import Conflict
from durable_core.model import Outcome, SubmissionOutcome
from durable_core.stores import sealing
from durable_core.stores.sqlite.tx import Tx

_FIND: Final = "SELECT submission_id, run_id, seq, kind, digest, created FROM moor_admission WHERE source = ? AND key = ?"
_INSERT: Final = """
    INSERT INTO moor_admission (source, key, submission_id, run_id, seq, kind, digest, created, outcome, detail, at, done_at)
    VALUES (:source, :key, :submission_id, :run_id, :seq, :kind, :digest, :created, :outcome, :detail, :at, :done_at)
"""
_SETTLE: Final = """
    UPDATE moor_admission SET outcome = ?, detail = ?, reply_step = ?, done_at = ?
    WHERE submission_id = ? AND run_id = ? AND outcome IS NULL
"""
_OPEN: Final = "SELECT submission_id FROM moor_admission WHERE run_id = ? AND outcome IS NULL"


class Known(NamedTuple):
    """What an earlier delivery under the same key left."""

    submission_id: str
    run_id: str
    seq: int
    kind: str
    digest: bytes
    created: int


def find(tx: Tx, source: str, key: str, digest: bytes, *, merge: bool) -> Known | None:
    """Return what a key was used for.

    Raises:
        Conflict: another payload, and it isn't to be merged.
    """
    row = tx.one(_FIND, (source, key))
    if row is None:
        return None
    known = Known(*row)
    if not merge and not tx.is_digest(known.digest, digest):
        raise Conflict(source, key)
    return known


def insert(
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
    """Write what came in; with an `outcome` it is settled as it comes in."""
    tx.run(
        _INSERT,
        {
            "source": source,
            "key": key,
            "submission_id": submission_id,
            "run_id": run_id,
            "seq": seq,
            "kind": kind,
            "digest": tx.digest(digest),
            "created": int(created),
            "outcome": None if outcome is None else outcome.value,
            "detail": tx.seal_optional(run_id, detail, sealing.admission_detail(submission_id)),
            "at": at,
            "done_at": None if outcome is None else at,
        },
    )


def settle(tx: Tx, run_id: str, outcomes: Sequence[SubmissionOutcome], at: int) -> None:
    """End submissions of a run; one that has an outcome keeps it."""
    for item in outcomes:
        detail = tx.seal_optional(run_id, item.detail, sealing.admission_detail(item.submission_id))
        tx.run(_SETTLE, (item.outcome.value, detail, item.reply_step, at, item.submission_id, run_id))


def abort_open(tx: Tx, run_id: str, detail: bytes, at: int) -> None:
    """End all that is still open in a run."""
    rows = tx.all(_OPEN, (run_id,))
    settle(tx, run_id, [SubmissionOutcome(submission_id=row[0], outcome=Outcome.ABORTED, detail=detail) for row in rows], at)
