"""Commits: finishing a step, and what a worker keeps on the way to it; all under the fence.

What lives here: steps, records, events of the running attempt. What does not: claims, and prompts answered by people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core import versions
from durable_core.errors import AddressTaken, Broken, LeaseLost, NotFound, Redacted, RunChanged
from durable_core.model import (
    Committed,
    EventDraft,
    Extra,
    Move,
    PromptDraft,
    RecordKind,
    RunStatus,
    SeenOpen,
    Signals,
    StepCommit,
)
from durable_core.stores import history, rows, sealing
from durable_core.stores.sqlite import admission, claims, events, outbox, settling, submissions
from durable_core.stores.sqlite.runs import RELEASED_WAKE_AFTER_STEP, Held, fence
from durable_core.stores.sqlite.tx import Tx

_STEP: Final = """
    INSERT INTO moor_step (run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Back to a fresh step; a cancel that came after those consumed stays pending.
_NEXT: Final = """
    step_no = :step_no, charged = 0, crashes = 0, progressed = 0, interrupted = 0, retry_at = NULL, last_error = NULL,
    cancel_seq = CASE WHEN cancel_seq = :cancelled THEN 0 ELSE cancel_seq END,
    phase = :phase, turn_id = :turn_id, last_at = :at, spec_version = :spec, stranded = NULL, stranded_code = NULL,
    event_seq = :event_seq, event_index = :event_index
"""
_KEEP: Final = f"UPDATE moor_run SET {_NEXT}, attempt = 1, step_started_at = :at WHERE run_id = :run_id"
_LET_GO: Final = f"""
    UPDATE moor_run SET {_NEXT}, attempt = 0, step_started_at = NULL, owner = NULL, lease_until = NULL,
        wake_at = {RELEASED_WAKE_AFTER_STEP}
    WHERE run_id = :run_id
"""
_CONSUME: Final = """
    UPDATE moor_command SET taken_step = ? WHERE run_id = ? AND seq = ? AND taken_step IS NULL RETURNING submission_id
"""
_OWN: Final = """
    INSERT INTO moor_address (channel, address, run_id, claimed_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (channel, address) DO UPDATE SET claimed_at = claimed_at RETURNING run_id
"""
_LINK: Final = "UPDATE moor_admission SET turn_id = ? WHERE submission_id = ? AND run_id = ?"
_PROMPT: Final = """
    INSERT INTO moor_prompt
        (run_id, prompt_id, kind, step_n, call_id, body, requester, policy, created_seq, created_at, expires_at,
         quorum, answerers, asked, remind_at, group_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_MOVE: Final = "UPDATE moor_run SET deployment = ?, deadline_at = ? WHERE run_id = ?"
_RECORD: Final = """
    INSERT INTO moor_record (run_id, step_n, key, kind, input_hash, body, attempt, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""


def commit(tx: Tx, commit: StepCommit) -> Committed:
    """Finish a step.

    Raises:
        LeaseLost: another worker has the run, or another step is next.
        PromptTaken: somebody answered a prompt that this step wanted to settle or to move.
        Redacted: content was redacted since the step was begun.
        AddressTaken: another open run owns an address that this step wanted.
    """
    held = fence(tx, commit.run_id, commit.epoch)
    if held.step_no != commit.step_n:
        raise LeaseLost(commit.run_id, commit.epoch)
    if commit.redactions is not None and commit.redactions != held.redactions:
        raise Redacted(commit.run_id)
    at = held.at(tx.now)
    if commit.move is not None:
        held = _move(tx, commit.run_id, commit.move, held, at)
    _own(tx, commit, at)
    settling.change_prompts(tx, commit, at)
    _write_step(tx, commit, held, at)
    _consume(tx, commit)
    submissions.settle(tx, commit.run_id, commit.outcomes, at)
    told = (*commit.events, *history.of_commit(commit))
    if told:
        events.write(tx, commit.run_id, told, seq=held.event_seq, index=held.event_index, attempt=held.attempt, at=at)
    for prompt in commit.prompts:
        _open_prompt(tx, commit, prompt, created_seq=held.inbox_seq, at=at)
    outbox.put(tx, commit.run_id, commit.outbox, at)
    for start in commit.starts:
        admission.admit(tx, start)
    for extra in commit.extra:
        tx.run(extra.sql, extra.parameters)
    cancel_seq = _next(tx, commit, held, at, told)
    tx.changed.add(commit.run_id)
    kept = not (commit.release or commit.end)
    return Committed(
        step_no=commit.last_n + 1,
        signals=Signals(inbox_seq=held.inbox_seq, cancel_pending=cancel_seq > 0),
        commands=claims.commands_after(tx, commit.run_id, commit.seen) if kept and held.inbox_seq > commit.seen else (),
        now=tx.now,
    )


def record(
    tx: Tx,
    run_id: str,
    epoch: int,
    *,
    step_n: int,
    key: str,
    kind: RecordKind,
    input_hash: str,
    body: bytes,
    drafts: Sequence[EventDraft],
) -> Signals:
    """Keep what the pending step has so far; a key that is there stays as it is.

    Raises:
        LeaseLost: another worker has the run, or another step is next.
    """
    held = fence(tx, run_id, epoch)
    if held.step_no != step_n:
        raise LeaseLost(run_id, epoch)
    sealed = tx.seal(run_id, body, sealing.record_body(step_n, key))
    at = held.at(tx.now)
    if tx.run(_RECORD, (run_id, step_n, key, kind.value, input_hash, sealed, held.attempt, at)):
        tx.run("UPDATE moor_run SET progressed = 1, last_at = ? WHERE run_id = ?", (at, run_id))
        events.append(tx, run_id, drafts)
    return held.signals


def append(tx: Tx, run_id: str, epoch: int, drafts: Sequence[EventDraft]) -> Signals:
    """Append events of the attempt that runs.

    Raises:
        LeaseLost: another worker has the run.
    """
    held = fence(tx, run_id, epoch)
    events.append(tx, run_id, drafts)
    return held.signals


def end(tx: Tx, run_id: str, *, reason: str, drafts: Sequence[EventDraft], extra: Sequence[Extra], seen: SeenOpen | None) -> bool:
    """End a run by SQL alone; False when it had ended.

    Raises:
        NotFound: no such run.
        RunChanged: it is no longer as it was seen.
    """
    row = tx.one("SELECT status, last_at FROM moor_run WHERE run_id = ?", (run_id,))
    if row is None:
        raise NotFound("run", run_id)
    if row[0] != RunStatus.OPEN:
        return False
    if seen is not None and seen != _open_now(tx, run_id):
        raise RunChanged(run_id)
    events.append(tx, run_id, (*drafts, history.of_end(reason)))
    for statement in extra:
        tx.run(statement.sql, statement.parameters)
    settling.end_run(tx, run_id, reason=reason, at=max(row[1], tx.now))
    return True


def _open_now(tx: Tx, run_id: str) -> SeenOpen:
    (turn_id,) = tx.one("SELECT turn_id FROM moor_run WHERE run_id = ?", (run_id,)) or (None,)
    rows = tx.all("SELECT prompt_id FROM moor_prompt WHERE run_id = ? AND outcome IS NULL", (run_id,))
    return SeenOpen(turn_id=turn_id, prompts=frozenset(row[0] for row in rows))


def _move(tx: Tx, run_id: str, move: Move, held: Held, at: int) -> Held:
    """Hand the run over before anything is written, so that the step is its new deployment's."""
    tx.run(_MOVE, (move.deployment, None if move.lifetime_ms is None else at + move.lifetime_ms, run_id))
    return held._replace(deployment=move.deployment)


def _own(tx: Tx, commit: StepCommit, at: int) -> None:
    for channel, address in commit.addresses:
        row = tx.one(_OWN, (channel, address, commit.run_id, at))
        if row is None or row[0] != commit.run_id:
            raise AddressTaken(channel, address)


def _write_step(tx: Tx, commit: StepCommit, held: Held, at: int) -> None:
    run_id, n, attempt, began = commit.run_id, commit.step_n, held.attempt, held.step_started_at
    for step in (commit.step,) if commit.before is None else (commit.before, commit.step):
        tx.run(
            _STEP,
            (
                run_id,
                n,
                step.kind,
                step.name,
                attempt,
                versions.CURRENT_SPEC,
                held.deployment,
                tx.seal(run_id, step.input, sealing.step_input(n)),
                tx.seal(run_id, step.output, sealing.step_output(n)),
                at if began is None else began,
                at,
            ),
        )
        n, attempt, began = n + 1, 1, at


def _consume(tx: Tx, commit: StepCommit) -> None:
    turn_id = commit.turn_id if commit.link_turn is None else commit.link_turn
    for seq in commit.consumed:
        row = tx.one(_CONSUME, (commit.last_n, commit.run_id, seq))
        if row is None:
            raise Broken(f"command {seq} of {commit.run_id} is not there to be consumed")
        if turn_id:
            tx.run(_LINK, (turn_id, row[0], commit.run_id))


def _open_prompt(tx: Tx, commit: StepCommit, draft: PromptDraft, *, created_seq: int, at: int) -> None:
    tx.run(
        _PROMPT,
        (
            commit.run_id,
            draft.prompt_id,
            draft.kind,
            commit.last_n,
            draft.call_id,
            tx.seal(commit.run_id, draft.body, sealing.prompt_body(draft.prompt_id)),
            draft.requester,
            draft.policy.value,
            created_seq,
            at,
            draft.expires_at,
            draft.quorum,
            rows.names(draft.answerers),
            draft.asked,
            draft.remind_at,
            draft.group,
        ),
    )


def _next(tx: Tx, commit: StepCommit, held: Held, at: int, told: Sequence[EventDraft]) -> int:
    """Turn the run to its next step, or end it; return the cancel that is still pending, 0 for none."""
    cancelled = held.cancel_seq if held.cancel_seq in commit.consumed else -1
    tx.run(
        _LET_GO if commit.release or commit.end else _KEEP,
        {
            "run_id": commit.run_id,
            "step_no": commit.last_n + 1,
            "cancelled": cancelled,
            "phase": commit.phase.value,
            "turn_id": commit.turn_id,
            "at": at,
            "now": tx.now,
            "spec": versions.CURRENT_SPEC,
            "seen": commit.seen,
            "timer_at": commit.timer_at,
            "event_seq": held.event_seq + len(told),
            "event_index": held.event_index + sum(draft.visible for draft in told),
        },
    )
    if commit.end:
        settling.end_run(tx, commit.run_id, reason=commit.end, at=at)
        return 0
    return 0 if cancelled == held.cancel_seq else held.cancel_seq
