"""Admission: one input into one inbox, whoever owns the address (CORE 3).

What lives here: finding or making the run, cancel's special case. What does not: answers to prompts (`prompts.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.codec import encode
from durable_core.errors import NotFound, SessionEnded
from durable_core.model import Admission, CommandKind, Outcome, Phase, Receipt, RunStatus, ToAddress, ToRun
from durable_core.stores.sqlite import runs, submissions
from durable_core.stores.sqlite.tx import Tx

CREATE_KIND: Final = "create"

_ADDRESS: Final = "SELECT run_id FROM moor_address WHERE channel = ? AND address = ?"
_OWN: Final = "INSERT INTO moor_address (channel, address, run_id, claimed_at) VALUES (?, ?, ?, ?)"
_STATUS: Final = "SELECT status FROM moor_run WHERE run_id = ?"
_TURN: Final = """
    SELECT phase, turn_id, last_at,
           EXISTS (SELECT 1 FROM moor_command c WHERE c.run_id = r.run_id AND c.taken_step IS NULL)
    FROM moor_run r WHERE run_id = ?
"""


def admit(tx: Tx, admission: Admission) -> Receipt:
    """Accept one input.

    Raises:
        Conflict, NotFound, SessionEnded: as the contract says; nothing is left behind.
    """
    merge = admission.on_conflict == "merge"
    known = submissions.find(tx, admission.source, admission.key, admission.digest, merge=merge)
    if known is not None:
        return Receipt(
            submission_id=known.submission_id,
            run_id=known.run_id,
            seq=known.seq,
            created=bool(known.created),
            deduplicated=True,
        )
    run_id, created = _target(tx, admission)
    seq = _deliver(tx, admission, run_id, created=created)
    if created and not isinstance(admission.target, ToRun) and admission.target.new is not None:
        runs.delay(tx, admission.target.new)
    for extra in admission.extra:
        tx.run(extra.sql, extra.parameters)
    return Receipt(submission_id=admission.submission_id, run_id=run_id, seq=seq, created=created)


def _target(tx: Tx, admission: Admission) -> tuple[str, bool]:
    """Return the run and whether it was made for this."""
    target = admission.target
    if isinstance(target, ToRun):
        row = tx.one(_STATUS, (target.run_id,))
        if row is None:
            raise NotFound("run", target.run_id)
        if row[0] != RunStatus.OPEN:
            raise SessionEnded(target.run_id)
        return target.run_id, False
    if isinstance(target, ToAddress):
        row = tx.one(_ADDRESS, (target.channel, target.address))
        if row is not None:
            return str(row[0]), False
        if target.new is None:
            raise NotFound("address", target.address)
        runs.create(tx, target.new)
        tx.run(_OWN, (target.channel, target.address, target.new.run_id, tx.now))
        return target.new.run_id, True
    runs.create(tx, target.new)
    return target.new.run_id, True


def _deliver(tx: Tx, admission: Admission, run_id: str, *, created: bool) -> int:
    kind = admission.kind
    if kind is None:
        _settled(tx, admission, run_id, kind=CREATE_KIND, created=created, detail=None, at=tx.now)
        return 0
    if kind is CommandKind.CANCEL:
        at = _nothing_to_cancel(tx, run_id, admission.turn_id)
        if at is not None:
            detail = encode({"status": "no_active_turn"})
            _settled(tx, admission, run_id, kind=kind.value, created=created, detail=detail, at=at)
            return 0
    entry = runs.put_command(
        tx,
        run_id,
        kind=kind,
        body=admission.body,
        submission_id=admission.submission_id,
        principal=admission.principal,
    )
    if entry is None:
        raise SessionEnded(run_id)
    submissions.insert(
        tx,
        run_id,
        source=admission.source,
        key=admission.key,
        submission_id=admission.submission_id,
        seq=entry.seq,
        kind=kind.value,
        digest=admission.digest,
        created=created,
        at=entry.at,
    )
    return entry.seq


def _settled(tx: Tx, admission: Admission, run_id: str, *, kind: str, created: bool, detail: bytes | None, at: int) -> None:
    """Write an admission that no worker has to see."""
    submissions.insert(
        tx,
        run_id,
        source=admission.source,
        key=admission.key,
        submission_id=admission.submission_id,
        seq=0,
        kind=kind,
        digest=admission.digest,
        created=created,
        outcome=Outcome.COMPLETED,
        detail=detail,
        at=at,
    )


def _nothing_to_cancel(tx: Tx, run_id: str, turn_id: str | None) -> int | None:
    """Return the time to note when there is no such turn, None when there is one."""
    row = tx.one(_TURN, (run_id,))
    if row is None:
        return tx.now
    phase, current, last_at, unconsumed = row
    idle = phase == Phase.IDLE and current is None and not unconsumed
    other = turn_id is not None and turn_id != current
    return max(last_at, tx.now) if idle or other else None
