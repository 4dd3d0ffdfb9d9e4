"""Claims: taking runs, keeping them, giving them back, and taking them from the dead.

What lives here: everything about a run's lease. What does not: what a worker writes under it (`commits.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from durable_core.errors import DurableError, LeaseLost
from durable_core.model import (
    ALONE_AFTER_CRASHES,
    Admission,
    Claim,
    ClaimRequest,
    Command,
    CommandKind,
    EventDraft,
    Prompt,
    Receipt,
    Record,
    Signals,
    ToRun,
)
from durable_core.stores import history, rows
from durable_core.stores.sqlite import admission as admissions
from durable_core.stores.sqlite import events, votes
from durable_core.stores.sqlite.runs import RELEASED_WAKE, fence
from durable_core.stores.sqlite.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

TAKABLE: Final = """
    wake_at IS NOT NULL AND owner IS NULL AND status = 'open' AND spec_version BETWEEN :min_readable AND :current
    AND CASE kind WHEN 'session' THEN :sessions ELSE name IN (SELECT value FROM json_each(:workflows)) END
    AND (stranded_code IS NULL OR stranded_code <> :code) AND last_at >= :since
"""
"""What one worker may take, once it is due (CORE 10)."""
_RECOVERING: Final = "(interrupted = 1 AND last_at < wake_at)"
"""Lost its worker, and got nothing from anybody since (S49)."""
_DUE: Final = f"""
    SELECT run_id, crashes >= :alone_after, wake_at FROM moor_run
    WHERE {TAKABLE} AND wake_at <= :until AND (:alone OR crashes < :alone_after) AND {{which}}
    ORDER BY wake_at LIMIT :limit
"""
_ALL: Final = _DUE.format(which="1")
_LOST: Final = _DUE.format(which=_RECOVERING)
_OTHERS: Final = _DUE.format(which=f"NOT {_RECOVERING}")
_TAKE: Final = f"""
    UPDATE moor_run SET
        owner = :owner, lease_until = :lease_until, epoch = epoch + 1, attempt = attempt + 1, wake_at = NULL,
        step_started_at = coalesce(step_started_at, max(last_at, :now)), progressed = 0
    WHERE run_id = :run_id{{which}}
    RETURNING {rows.CLAIM}
"""
_TAKE_DUE: Final = _TAKE.format(which="")
_TAKE_WOKEN: Final = _TAKE.format(which=f" AND {TAKABLE} AND wake_at <= :now AND crashes < :alone_after")
# The one who held it did not give it back: charged, unless it got something done (CORE 15); the new epoch fences it.
_LOSE: Final = """
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, epoch = epoch + 1, interrupted = 1, wake_at = :now,
        charged = charged + 1 - progressed, crashes = crashes + 1 - progressed, last_error = :error
    WHERE owner IS NOT NULL AND {which}
    RETURNING run_id
"""
_RENEW: Final = """
    UPDATE moor_run SET lease_until = ? WHERE run_id = ? AND epoch = ? AND owner = ? RETURNING inbox_seq, cancel_seq
"""
_RELEASE: Final = f"""
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = {RELEASED_WAKE}, attempt = attempt - :unused,
        interrupted = interrupted * :unused,
        step_started_at = CASE WHEN attempt > :unused THEN step_started_at END
    WHERE run_id = :run_id
"""
_CHARGE: Final = f"""
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = {RELEASED_WAKE}, interrupted = 0, charged = charged + 1,
        last_error = :error, retry_at = :timer_at
    WHERE run_id = :run_id
"""
_STRAND: Final = """
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = :now, attempt = attempt - 1, stranded = :reason, stranded_code = :code
    WHERE run_id = :run_id
"""
_UNSTRAND: Final = """
    UPDATE moor_run SET stranded = NULL, stranded_code = NULL, wake_at = min(coalesce(wake_at, :now), :now)
    WHERE run_id = :run_id AND stranded IS NOT NULL AND status = 'open'
"""
_LEAVE: Final = "UPDATE moor_run SET wake_at = ?, last_error = ? WHERE run_id = ?"
_COMMANDS: Final = f"""
    SELECT {rows.COMMAND} FROM moor_command WHERE run_id = ? AND taken_step IS NULL AND seq > ? ORDER BY seq
"""
_OPEN: Final = f"""
    SELECT {votes.PROMPT} FROM moor_prompt p WHERE run_id = ? AND outcome IS NULL ORDER BY created_at, prompt_id
"""
_ANSWERED: Final = f"""
    SELECT {votes.PROMPT} FROM moor_prompt p WHERE run_id = ? AND settled_seq IN
        (SELECT seq FROM moor_command WHERE run_id = ? AND taken_step IS NULL AND kind = 'response')
    ORDER BY settled_seq
"""
_RECORDS: Final = f"SELECT {rows.RECORD} FROM moor_record WHERE run_id = ? AND step_n = ? ORDER BY at, rowid"


def claim(tx: Tx, request: ClaimRequest) -> list[Claim]:
    """Take due runs, the longest due first. A run that crashed its workers is taken by itself or not at all."""
    lose_expired(tx)
    due = _due(tx, request)
    if due and due[0][1]:
        due = due[:1]
    taken = []
    for run_id, crasher, _ in due:
        if not crasher or len(due) == 1:
            got = tx.apart(lambda run_id=run_id: _take(tx, request, run_id))  # type: ignore[misc]
            if isinstance(got, DurableError):
                log.error("%s can't be taken, and is left alone for a while: %s", run_id, got)
                tx.run(_LEAVE, (tx.now + UNOPENABLE_MS, str(got), run_id))
            else:
                taken.append(got)
    return taken


def begin(tx: Tx, admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
    """Accept an input, and take the run that it makes or wakes where that is due at once."""
    receipt = admissions.admit(tx, admission)
    if receipt.deduplicated or receipt.seq == 0 or admission.kind is CommandKind.CANCEL:
        return receipt, None
    if not receipt.created:
        return receipt, _woken(tx, request, receipt.run_id)
    new = None if isinstance(admission.target, ToRun) else admission.target.new
    if new is None or new.wake_at is not None or not rows.is_able(request.abilities, new):
        return receipt, None
    _take_row(tx, request, new.run_id)
    tx.changed.discard(new.run_id)
    return receipt, rows.begun(admission, new, request, at=tx.now)


def lose_expired(tx: Tx) -> int:
    """Take back runs whose lease is over, whoever holds them."""
    return _lose(tx, "lease_until < :now", {"error": "lease expired"})


def lose_owned(tx: Tx, owner: str) -> int:
    """Take back what a dead incarnation holds."""
    return _lose(tx, "owner = :owner", {"error": "worker died", "owner": owner})


def refresh(tx: Tx, run_id: str, epoch: int) -> Claim:
    """Read a held run again.

    Raises:
        LeaseLost: it isn't held by this epoch.
    """
    fence(tx, run_id, epoch)
    row = tx.one(f"SELECT {rows.CLAIM} FROM moor_run WHERE run_id = ?", (run_id,))
    if row is None:
        raise LeaseLost(run_id, epoch)
    return _loaded(tx, row)


def renew(tx: Tx, owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
    """Prolong leases; those that are lost are missing in the answer."""
    renewed = {}
    until = tx.now + lease_ms
    for run_id, epoch in leases:
        row = tx.one(_RENEW, (until, run_id, epoch, owner))
        if row is not None:
            renewed[run_id] = Signals(inbox_seq=row[0], cancel_pending=row[1] > 0)
    tx.run("UPDATE moor_worker SET heartbeat = ? WHERE owner = ?", (tx.now, owner))
    return renewed


def release(tx: Tx, run_id: str, epoch: int, *, timer_at: int | None, seen: int, unused: bool) -> None:
    """Give a run back without a step; not charged."""
    fence(tx, run_id, epoch)
    tx.run(_RELEASE, {"run_id": run_id, "timer_at": timer_at, "seen": seen, "now": tx.now, "unused": int(unused)})
    tx.changed.add(run_id)


def charge(tx: Tx, run_id: str, epoch: int, *, error: str, retry_at: int, seen: int, drafts: Sequence[EventDraft]) -> None:
    """Give a run back after a failed attempt that counts."""
    fence(tx, run_id, epoch)
    events.append(tx, run_id, drafts)
    tx.run(_CHARGE, {"run_id": run_id, "timer_at": retry_at, "seen": seen, "now": tx.now, "error": error})
    tx.changed.add(run_id)


def strand(tx: Tx, run_id: str, epoch: int, *, reason: str, code: str) -> None:
    """Give a run back that this code can't go on with; other code may take it at once."""
    held = fence(tx, run_id, epoch)
    events.append(tx, run_id, (history.of_strand(reason, held.step_no),))
    tx.run(_STRAND, {"run_id": run_id, "reason": reason, "code": code, "now": tx.now})


def unstrand(tx: Tx, run_id: str) -> bool:
    """Offer a stranded run to all again; False when it wasn't."""
    found = tx.run(_UNSTRAND, {"run_id": run_id, "now": tx.now}) > 0
    if found:
        events.append(tx, run_id, (history.of_unstrand(),))
    return found


def commands_after(tx: Tx, run_id: str, seq: int) -> tuple[Command, ...]:
    """Return what nobody has consumed, from behind `seq` on."""
    return tuple(rows.command(tx, row) for row in tx.all(_COMMANDS, (run_id, seq)))


def open_prompts(tx: Tx, run_id: str, *, opener: rows.Opener | None = None) -> tuple[Prompt, ...]:
    """Return a run's open prompts, oldest first."""
    return tuple(rows.prompt(opener or tx, row) for row in tx.all(_OPEN, (run_id,)))


def records(tx: Tx, run_id: str, step_n: int) -> tuple[Record, ...]:
    """Return what a step recorded, in order."""
    return tuple(rows.record(tx, row) for row in tx.all(_RECORDS, (run_id, step_n)))


def _due(tx: Tx, request: ClaimRequest) -> list[Row]:
    """Return what to take; what lost its worker is looked for apart, so that others come past it (S49)."""
    limit = request.limit
    given = {
        "until": tx.now,
        "limit": limit,
        **rows.abilities(request.abilities),
        "alone": request.alone,
        "alone_after": ALONE_AFTER_CRASHES,
    }
    if request.recovering is None:
        return tx.all(_ALL, given)
    others = tx.all(_OTHERS, given)
    given["until"] = tx.now if len(others) < limit else others[-1][2]
    lost = tx.all(_LOST, {**given, "limit": request.recovering})
    return sorted((*lost, *others), key=_woken_at)[:limit] if lost else others


def _woken_at(row: Row) -> int:
    return int(row[2])


def _take(tx: Tx, request: ClaimRequest, run_id: str) -> Claim:
    return _loaded(tx, _take_row(tx, request, run_id))


def _woken(tx: Tx, request: ClaimRequest, run_id: str) -> Claim | None:
    """Take a run that is there, where it is free and can be opened; else whoever claims what is due looks at it."""
    given = {"run_id": run_id, "owner": request.owner, "lease_until": tx.now + request.lease_ms, "now": tx.now}
    given |= {**rows.abilities(request.abilities), "alone_after": ALONE_AFTER_CRASHES}

    def take() -> Claim | None:
        row = tx.one(_TAKE_WOKEN, given)
        return None if row is None else _loaded(tx, row)

    got = tx.apart(take)
    if not isinstance(got, Claim):
        return None
    tx.changed.discard(run_id)
    return got


def _take_row(tx: Tx, request: ClaimRequest, run_id: str) -> Row:
    lease_until = tx.now + request.lease_ms
    row = tx.one(_TAKE_DUE, {"run_id": run_id, "owner": request.owner, "lease_until": lease_until, "now": tx.now})
    if row is None:
        raise LeaseLost(run_id, 0)
    return row


def _loaded(tx: Tx, row: Row) -> Claim:
    run_id, step_no = row[0], row[8]
    commands = commands_after(tx, run_id, 0)
    prompts = open_prompts(tx, run_id)
    if any(command.kind is CommandKind.RESPONSE for command in commands):
        prompts = (*prompts, *(rows.prompt(tx, settled) for settled in tx.all(_ANSWERED, (run_id, run_id))))
    return rows.claim(
        tx,
        row,
        now=tx.now,
        commands=commands,
        prompts=prompts,
        records=records(tx, run_id, step_no),
    )


def _lose(tx: Tx, which: str, parameters: dict[str, str]) -> int:
    lost = tx.all(_LOSE.format(which=which), {"now": tx.now, **parameters})
    tx.changed.update(run_id for (run_id,) in lost)
    return len(lost)
