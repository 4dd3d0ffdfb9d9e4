"""The run row: the fence, the inbox, the wake-up, and the making of a run.

What lives here: every statement that more than one aggregate makes on a run. What does not: claims and commits.

Whoever changes a run locks its row first and reads what belongs to it only then, in statements of their own: under READ
COMMITTED a statement sees what was there when it began, so one that waits for the lock and reads beside it reads the past.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from durable_core import versions
from durable_core.errors import LeaseLost
from durable_core.model import CommandKind, NewRun, Phase, RunStatus, Signals
from durable_core.stores import sealing
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Tx

# A released run sleeps until its timer or deadline, or is due at once when more came in than was seen (CORE 1). A deadline that
# passed while a turn goes on waits for its end: it would wake the run for nothing, again and again.
_RELEASED_WAKE: Final = """
    CASE WHEN inbox_seq > {seen}::bigint THEN {now}
         WHEN {phase} <> 'idle' AND deadline_at <= {now} THEN {timer_at}::bigint
         ELSE least({timer_at}::bigint, deadline_at) END
"""


def released_wake(*, seen: str, now: str, timer_at: str, phase: str = "phase") -> str:
    """Return the expression of when a released run wakes; `phase` where the same statement sets it."""
    return _RELEASED_WAKE.format(seen=seen, now=now, timer_at=timer_at, phase=phase)


_HELD: Final = (
    "step_no, attempt, inbox_seq, cancel_seq, last_at, turn_id, deployment, step_started_at, event_seq, event_index,"
    " redactions, session_key"
)
_FENCE: Final = f"""
    SELECT {_HELD}, {now("$3")} FROM moor_run
    WHERE run_id = $1 AND epoch = $2 AND owner IS NOT NULL AND status = 'open' FOR UPDATE
"""
_LOCK: Final = f"SELECT status, last_at, session_key, {now('$2')} FROM moor_run WHERE run_id = $1 FOR UPDATE"
_PUT: Final = f"""
    UPDATE moor_run SET
        inbox_seq = inbox_seq + 1,
        cancel_seq = CASE WHEN $3::boolean THEN inbox_seq + 1 ELSE cancel_seq END,
        wake_at = least(wake_at, {now("$2")}),
        last_at = greatest(last_at, {now("$2")})
    WHERE run_id = $1 AND status = 'open'
    RETURNING inbox_seq, last_at, session_key, {now("$2")}
"""
_PUT_COMMAND: Final = """
    INSERT INTO moor_command (run_id, seq, kind, body, submission_id, principal, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_CREATE: Final = """
    INSERT INTO moor_run (run_id, name, status, phase, creator, session_key, header, spec_version, deployment,
                          wake_at, created_at, last_at, deadline_at, kind, keep_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $10, $10, $11, $12, $13)
"""


class Held(NamedTuple):
    """A run row under its fence."""

    step_no: int
    attempt: int
    inbox_seq: int
    cancel_seq: int
    last_at: int
    turn_id: str | None
    deployment: str
    step_started_at: int | None
    event_seq: int
    event_index: int
    redactions: int

    @property
    def signals(self) -> Signals:
        """What the worker has to know."""
        return Signals(inbox_seq=self.inbox_seq, cancel_pending=self.cancel_seq > 0)

    def at(self, now: int) -> int:
        """Return the time to write: it never runs backwards within a run (CORE 17)."""
        return max(self.last_at, now)


class Locked(NamedTuple):
    """A run row that this transaction holds, whoever owns it."""

    open: bool
    at: int
    """The time to write (CORE 17)."""


class Entry(NamedTuple):
    """What an inbox gave a command."""

    seq: int
    at: int


async def fence(tx: Tx, run_id: str, epoch: int) -> Held:
    """Lock a run that this epoch still owns, and read it; its key is at hand from then on.

    Raises:
        LeaseLost: it doesn't.
    """
    row = await tx.one(_FENCE, run_id, epoch, tx.override)
    if row is None:
        raise LeaseLost(run_id, epoch)
    *held, wrapped, now = row
    tx.note_key(run_id, wrapped)
    tx.note_now(now)
    return Held(*held)


async def lock(tx: Tx, run_id: str) -> Locked | None:
    """Lock a run, whoever owns it; its key is at hand from then on. None where there is none."""
    row = await tx.one(_LOCK, run_id, tx.override)
    if row is None:
        return None
    status, last_at, wrapped, now = row
    tx.note_key(run_id, wrapped)
    tx.note_now(now)
    return Locked(open=status == RunStatus.OPEN, at=max(last_at, now))


async def put_command(tx: Tx, run_id: str, *, kind: CommandKind, body: bytes, submission_id: str, principal: str) -> Entry | None:
    """Put a command into a run's inbox and wake it; None when the run is not open."""
    row = await tx.one(_PUT, run_id, tx.override, kind is CommandKind.CANCEL)
    if row is None:
        return None
    seq, at, wrapped, now = row
    tx.note_key(run_id, wrapped)
    tx.note_now(now)
    sealed = tx.seal(run_id, body, sealing.command_body(seq))
    await tx.run(_PUT_COMMAND, run_id, seq, kind.value, sealed, submission_id, principal, at)
    tx.changed.add(run_id)
    return Entry(seq, at)


async def create(tx: Tx, new: NewRun) -> None:
    """Make a run; nothing wakes it before its first command but its deadline."""
    wrapped = tx.new_key(new.run_id)
    now = await tx.now()
    await tx.run(
        _CREATE,
        new.run_id,
        new.name,
        RunStatus.OPEN.value,
        Phase.IDLE.value,
        new.creator,
        wrapped,
        tx.seal(new.run_id, new.header, sealing.run_header()),
        versions.CURRENT_SPEC,
        new.deployment,
        now,
        None if new.lifetime_ms is None else now + new.lifetime_ms,
        new.kind.value,
        new.keep_ms,
    )
    tx.changed.add(new.run_id)


async def delay(tx: Tx, new: NewRun) -> None:
    """Let a new run's first command wake it later, where it says so."""
    if new.wake_at is not None:
        sql = "UPDATE moor_run SET wake_at = greatest(wake_at, $2) WHERE run_id = $1 AND wake_at IS NOT NULL"
        await tx.run(sql, new.run_id, new.wake_at)


async def check_keys(tx: Tx) -> None:
    """Open the key of one of the youngest runs: with other keys than the data's nothing is readable, and a start is to say so.

    Raises:
        KeyMissing, KeyWrong: it doesn't open.
    """
    # by id, which an index has: by age, every run would be read at every start
    row = await tx.one("SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL ORDER BY run_id DESC LIMIT 1")
    if row is not None:
        tx.note_key(*row)
        tx.key(row[0])
