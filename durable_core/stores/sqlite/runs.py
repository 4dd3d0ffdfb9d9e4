"""The run row: the fence, the inbox, the wake-up, and the making of a run.

What lives here: every statement that more than one aggregate makes on a run. What does not: claims and commits.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from durable_core import versions
from durable_core.clock import SQLITE_NOW
from durable_core.errors import LeaseLost
from durable_core.model import CommandKind, NewRun, Phase, RunStatus, Signals
from durable_core.stores import sealing
from durable_core.stores.sqlite.tx import Tx

# A released run sleeps until its timer or deadline, or is due at once when more came in than was seen (CORE 1). A deadline that
# passed while a turn goes on waits for its end: it would wake the run for nothing, again and again.
_RELEASED_WAKE: Final = """
    CASE WHEN inbox_seq > :seen THEN :now
         WHEN {phase} <> 'idle' AND deadline_at <= :now THEN :timer_at
         ELSE min(coalesce(:timer_at, deadline_at), coalesce(deadline_at, :timer_at)) END
"""
RELEASED_WAKE: Final = _RELEASED_WAKE.format(phase="phase")
"""For a release that leaves the phase as it is."""
RELEASED_WAKE_AFTER_STEP: Final = _RELEASED_WAKE.format(phase=":phase")
"""For one that sets it."""

_FENCE: Final = f"""
    SELECT step_no, attempt, inbox_seq, cancel_seq, last_at, turn_id, deployment, step_started_at, redactions,
        event_seq, event_index, {SQLITE_NOW}
    FROM moor_run WHERE run_id = :run_id AND epoch = :epoch AND owner IS NOT NULL AND status = 'open'
"""
_PUT: Final = """
    UPDATE moor_run SET
        inbox_seq = inbox_seq + 1,
        cancel_seq = CASE WHEN :cancel THEN inbox_seq + 1 ELSE cancel_seq END,
        wake_at = min(coalesce(wake_at, :now), :now),
        last_at = max(last_at, :now)
    WHERE run_id = :run_id AND status = 'open'
    RETURNING inbox_seq, last_at
"""
_PUT_COMMAND: Final = """
    INSERT INTO moor_command (run_id, seq, kind, body, submission_id, principal, at) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_CREATE: Final = """
    INSERT INTO moor_run (run_id, name, status, phase, creator, session_key, header, spec_version, deployment,
                          wake_at, created_at, last_at, deadline_at, kind, keep_ms)
    VALUES (:run_id, :name, :status, :phase, :creator, :session_key, :header, :spec, :deployment,
            :deadline_at, :now, :now, :deadline_at, :kind, :keep_ms)
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
    redactions: int
    event_seq: int
    event_index: int

    @property
    def signals(self) -> Signals:
        """What the worker has to know."""
        return Signals(inbox_seq=self.inbox_seq, cancel_pending=self.cancel_seq > 0)

    def at(self, now: int) -> int:
        """Return the time to write: it never runs backwards within a run (CORE 17)."""
        return max(self.last_at, now)


class Entry(NamedTuple):
    """What an inbox gave a command."""

    seq: int
    at: int


def fence(tx: Tx, run_id: str, epoch: int) -> Held:
    """Read a run that this epoch still owns; the write lock that the transaction holds keeps it so.

    Raises:
        LeaseLost: it doesn't.
    """
    row = tx.one(_FENCE, {"run_id": run_id, "epoch": epoch, "now": tx.override})
    if row is None:
        raise LeaseLost(run_id, epoch)
    *held, now = row
    tx.note_now(now)
    return Held(*held)


def put_command(tx: Tx, run_id: str, *, kind: CommandKind, body: bytes, submission_id: str, principal: str) -> Entry | None:
    """Put a command into a run's inbox and wake it; None when the run is not open."""
    row = tx.one(_PUT, {"run_id": run_id, "now": tx.now, "cancel": kind is CommandKind.CANCEL})
    if row is None:
        return None
    entry = Entry(*row)
    sealed = tx.seal(run_id, body, sealing.command_body(entry.seq))
    tx.run(_PUT_COMMAND, (run_id, entry.seq, kind.value, sealed, submission_id, principal, entry.at))
    tx.changed.add(run_id)
    return entry


def create(tx: Tx, new: NewRun) -> None:
    """Make a run; nothing wakes it before its first command but its deadline."""
    wrapped = tx.new_key(new.run_id)
    tx.run(
        _CREATE,
        {
            "run_id": new.run_id,
            "name": new.name,
            "status": RunStatus.OPEN.value,
            "phase": Phase.IDLE.value,
            "creator": new.creator,
            "session_key": wrapped,
            "header": tx.seal(new.run_id, new.header, sealing.run_header()),
            "spec": versions.CURRENT_SPEC,
            "deployment": new.deployment,
            "now": tx.now,
            "deadline_at": None if new.lifetime_ms is None else tx.now + new.lifetime_ms,
            "kind": new.kind.value,
            "keep_ms": new.keep_ms,
        },
    )
    tx.changed.add(new.run_id)


def delay(tx: Tx, new: NewRun) -> None:
    """Let a new run's first command wake it later, where it says so."""
    if new.wake_at is not None:
        tx.run("UPDATE moor_run SET wake_at = max(wake_at, ?) WHERE run_id = ?", (new.wake_at, new.run_id))


def check_keys(tx: Tx) -> None:
    """Open the key of one of the youngest runs: with other keys than the data's nothing is readable, and a start is to say so.

    Raises:
        KeyMissing, KeyWrong: it doesn't open.
    """
    # by id, which an index has: by age, every run would be read at every start
    row = tx.one("SELECT run_id FROM moor_run WHERE purged_at IS NULL ORDER BY run_id DESC LIMIT 1")
    if row is not None:
        tx.key(row[0])
