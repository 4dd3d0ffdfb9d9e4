"""Admission: one input into one inbox, whoever owns the address (CORE 3).

What lives here: finding or making the run, cancel's special case. What does not: answers to prompts (`prompts.py`).

The dedupe row is written last and only once: whoever finds it taken begins anew and reads it. Nothing is ever made for an
address that another transaction is just making a run for: the insert waits for it, and then there is a run to be found.
"""

from __future__ import annotations

from typing import Final

from durable_core.codec import encode
from durable_core.errors import NotFound, SessionEnded
from durable_core.model import Admission, CommandKind, Outcome, Phase, Receipt, RunStatus, ToAddress, ToRun
from durable_core.stores.postgres import runs, submissions
from durable_core.stores.postgres.tx import Again, Tx

CREATE_KIND: Final = "create"

_ADDRESS: Final = "SELECT run_id FROM moor_address WHERE channel = $1 AND address = $2"
_OWN: Final = """
    INSERT INTO moor_address (channel, address, run_id, claimed_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (channel, address) DO NOTHING
"""
_STATUS: Final = "SELECT status FROM moor_run WHERE run_id = $1"
_TURN: Final = """
    SELECT phase, turn_id,
           EXISTS (SELECT 1 FROM moor_command c WHERE c.run_id = r.run_id AND c.taken_step IS NULL)
    FROM moor_run r WHERE run_id = $1
"""


async def admit(tx: Tx, admission: Admission) -> Receipt:
    """Accept one input.

    Raises:
        Conflict, NotFound, SessionEnded: as the contract says; nothing is left behind.
        Again: another transaction was first.
    """
    merge = admission.on_conflict == "merge"
    known = await submissions.find(tx, admission.source, admission.key, admission.digest, merge=merge)
    if known is not None:
        return Receipt(
            submission_id=known.submission_id,
            run_id=known.run_id,
            seq=known.seq,
            created=bool(known.created),
            deduplicated=True,
        )
    run_id, created = await _target(tx, admission)
    seq = await _deliver(tx, admission, run_id, created=created)
    if created and not isinstance(admission.target, ToRun) and admission.target.new is not None:
        await runs.delay(tx, admission.target.new)
    for extra in admission.extra:
        await tx.named(extra.sql, extra.parameters)
    return Receipt(submission_id=admission.submission_id, run_id=run_id, seq=seq, created=created)


async def _target(tx: Tx, admission: Admission) -> tuple[str, bool]:
    """Return the run and whether it was made for this."""
    target = admission.target
    if isinstance(target, ToRun):
        row = await tx.one(_STATUS, target.run_id)
        if row is None:
            raise NotFound("run", target.run_id)
        if row[0] != RunStatus.OPEN:
            raise SessionEnded(target.run_id)
        return target.run_id, False
    if isinstance(target, ToAddress):
        row = await tx.one(_ADDRESS, target.channel, target.address)
        if row is not None:
            return str(row[0]), False
        if target.new is None:
            raise NotFound("address", target.address)
        if not await tx.run(_OWN, target.channel, target.address, target.new.run_id, await tx.now()):
            raise Again
        await runs.create(tx, target.new)
        return target.new.run_id, True
    await runs.create(tx, target.new)
    return target.new.run_id, True


async def _deliver(tx: Tx, admission: Admission, run_id: str, *, created: bool) -> int:
    kind = admission.kind
    if kind is None:
        await _settled(tx, admission, run_id, kind=CREATE_KIND, created=created, detail=None, at=await tx.now())
        return 0
    if kind is CommandKind.CANCEL:
        at = await _nothing_to_cancel(tx, run_id, admission.turn_id)
        if at is not None:
            detail = encode({"status": "no_active_turn"})
            await _settled(tx, admission, run_id, kind=kind.value, created=created, detail=detail, at=at)
            return 0
    entry = await runs.put_command(
        tx,
        run_id,
        kind=kind,
        body=admission.body,
        submission_id=admission.submission_id,
        principal=admission.principal,
    )
    if entry is None:
        if isinstance(admission.target, ToAddress):
            raise Again  # it ended since its address was read, and the address is free
        raise SessionEnded(run_id)
    await submissions.insert(
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


async def _settled(tx: Tx, admission: Admission, run_id: str, *, kind: str, created: bool, detail: bytes | None, at: int) -> None:
    """Write an admission that no worker has to see."""
    if detail is not None:
        await tx.know(run_id)
    await submissions.insert(
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


async def _nothing_to_cancel(tx: Tx, run_id: str, turn_id: str | None) -> int | None:
    """Return the time to note when there is no such turn, None when there is one. The run is locked before it is read."""
    locked = await runs.lock(tx, run_id)
    row = await tx.one(_TURN, run_id)
    if locked is None or row is None:
        return await tx.now()
    phase, current, unconsumed = row
    idle = phase == Phase.IDLE and current is None and not unconsumed
    other = turn_id is not None and turn_id != current
    return locked.at if idle or other else None
