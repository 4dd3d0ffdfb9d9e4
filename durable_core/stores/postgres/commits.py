"""Commits: finishing a step, and what a worker keeps on the way to it; all under the fence.

What lives here: steps, records, events of the running attempt, as transactions of several statements. What does not: the same
in one statement, for what most steps need (`plain.py`); claims, and prompts answered by people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core import versions
from durable_core.errors import AddressTaken, Broken, LeaseLost, NotFound, Redacted, RunChanged
from durable_core.model import Committed, EventDraft, Extra, Move, PromptDraft, RecordKind, SeenOpen, Signals, StepCommit
from durable_core.stores import history, rows, sealing
from durable_core.stores.postgres import admission, events, loading, outbox, settling, submissions
from durable_core.stores.postgres.loading import Position
from durable_core.stores.postgres.runs import Held, fence, lock, released_wake
from durable_core.stores.postgres.tx import Tx

_STEP: Final = """
    INSERT INTO moor_step (run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
# Back to a fresh step; a cancel that came after those consumed stays pending.
_NEXT: Final = """
    step_no = $9, charged = 0, crashes = 0, progressed = 0, interrupted = 0, retry_at = NULL, last_error = NULL,
    cancel_seq = CASE WHEN cancel_seq = $2 THEN 0 ELSE cancel_seq END,
    phase = $3, turn_id = $4, last_at = $5, spec_version = $6, stranded = NULL, stranded_code = NULL,
    event_seq = $7, event_index = $8
"""
_KEEP: Final = f"UPDATE moor_run SET {_NEXT}, attempt = 1, step_started_at = $5 WHERE run_id = $1"
_LET_GO: Final = f"""
    UPDATE moor_run SET {_NEXT}, attempt = 0, step_started_at = NULL, owner = NULL, lease_until = NULL,
        wake_at = {released_wake(seen="$10", now="$11", timer_at="$12", phase="$3")}
    WHERE run_id = $1
"""
_CONSUME: Final = """
    UPDATE moor_command SET taken_step = $2 WHERE run_id = $1 AND seq = ANY($3::bigint[]) AND taken_step IS NULL
    RETURNING seq, submission_id
"""
_OWN: Final = """
    INSERT INTO moor_address (channel, address, run_id, claimed_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (channel, address) DO UPDATE SET claimed_at = moor_address.claimed_at RETURNING run_id
"""
_LINK: Final = "UPDATE moor_admission SET turn_id = $2 WHERE submission_id = ANY($3::text[]) AND run_id = $1"
_PROMPT: Final = """
    INSERT INTO moor_prompt
        (run_id, prompt_id, kind, step_n, call_id, body, requester, policy, created_seq, created_at, expires_at,
         quorum, answerers, asked, remind_at, group_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""
_MOVE: Final = "UPDATE moor_run SET deployment = $2, deadline_at = $3::bigint WHERE run_id = $1"
_RECORD: Final = """
    INSERT INTO moor_record (run_id, step_n, key, kind, input_hash, body, attempt, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT DO NOTHING
"""


async def commit(tx: Tx, commit: StepCommit) -> tuple[Committed, Position | None]:
    """Finish a step; where the run stands then, unless it was given back.

    Raises:
        LeaseLost: another worker has the run, or another step is next.
        PromptTaken: somebody answered a prompt that this step wanted to settle or to move.
        Redacted: content was redacted since the step was begun.
        AddressTaken: another open run owns an address that this step wanted.
    """
    held = await fence(tx, commit.run_id, commit.epoch)
    if held.step_no != commit.step_n:
        raise LeaseLost(commit.run_id, commit.epoch)
    if commit.redactions is not None and commit.redactions != held.redactions:
        raise Redacted(commit.run_id)
    at = held.at(await tx.now())
    if commit.move is not None:
        held = await _move(tx, commit.run_id, commit.move, held, at)
    await _own(tx, commit, at)
    if sum(map(bool, (commit.outbox, commit.settle or commit.updates, commit.end))) > 1:
        await outbox.hold(tx, commit.run_id, commit.outbox)
    await settling.change_prompts(tx, commit, at)
    await _write_step(tx, commit, held, at)
    await _consume(tx, commit)
    await submissions.settle(tx, commit.run_id, commit.outcomes, at)
    if commit.events:
        seq, index = held.event_seq, held.event_index
        await events.write(tx, commit.run_id, commit.events, seq=seq, index=index, attempt=held.attempt, at=at)
    for prompt in commit.prompts:
        await _open_prompt(tx, commit, prompt, created_seq=held.inbox_seq, at=at)
    await outbox.put(tx, commit.run_id, commit.outbox, at)
    for start in commit.starts:
        await admission.admit(tx, start)
    for extra in commit.extra:
        await tx.named(extra.sql, extra.parameters)
    cancel_seq = await _next(tx, commit, held, at)
    tx.changed.add(commit.run_id)
    kept = not (commit.release or commit.end)
    more = kept and held.inbox_seq > commit.seen
    done = Committed(
        step_no=commit.last_n + 1,
        signals=Signals(inbox_seq=held.inbox_seq, cancel_pending=cancel_seq > 0),
        commands=await loading.commands_after(tx, commit.run_id, commit.seen) if more else (),
        now=await tx.now(),
    )
    return done, _moved(commit, held, at) if kept else None


async def record(
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
) -> tuple[Signals, Position]:
    """Keep what the pending step has so far; a key that is there stays as it is.

    Raises:
        LeaseLost: another worker has the run, or another step is next.
    """
    held = await fence(tx, run_id, epoch)
    if held.step_no != step_n:
        raise LeaseLost(run_id, epoch)
    sealed = tx.seal(run_id, body, sealing.record_body(step_n, key))
    at = held.at(await tx.now())
    if await tx.run(_RECORD, run_id, step_n, key, kind.value, input_hash, sealed, held.attempt, at):
        await tx.run("UPDATE moor_run SET progressed = 1, last_at = $2 WHERE run_id = $1", run_id, at)
        await events.append(tx, run_id, drafts)
        return held.signals, _standing(epoch, held, drafts)
    return held.signals, _standing(epoch, held, ())


async def append(tx: Tx, run_id: str, epoch: int, drafts: Sequence[EventDraft]) -> tuple[Signals, Position]:
    """Append events of the attempt that runs.

    Raises:
        LeaseLost: another worker has the run.
    """
    held = await fence(tx, run_id, epoch)
    await events.append(tx, run_id, drafts)
    return held.signals, _standing(epoch, held, drafts)


async def end(
    tx: Tx, run_id: str, *, reason: str, drafts: Sequence[EventDraft], extra: Sequence[Extra], seen: SeenOpen | None
) -> bool:
    """End a run by SQL alone; False when it had ended.

    Raises:
        NotFound: no such run.
        RunChanged: it is no longer as it was seen.
    """
    locked = await lock(tx, run_id)
    if locked is None:
        raise NotFound("run", run_id)
    if not locked.open:
        return False
    if seen is not None and seen != await _open_now(tx, run_id):
        raise RunChanged(run_id)
    await events.append(tx, run_id, (*drafts, history.of_end(reason)))
    for statement in extra:
        await tx.named(statement.sql, statement.parameters)
    await settling.end_run(tx, run_id, reason=reason, at=locked.at)
    return True


async def _open_now(tx: Tx, run_id: str) -> SeenOpen:
    (turn_id,) = await tx.one("SELECT turn_id FROM moor_run WHERE run_id = $1", run_id) or (None,)
    rows = await tx.all("SELECT prompt_id FROM moor_prompt WHERE run_id = $1 AND outcome IS NULL", run_id)
    return SeenOpen(turn_id=turn_id, prompts=frozenset(row[0] for row in rows))


def _standing(epoch: int, held: Held, drafts: Sequence[EventDraft]) -> Position:
    """Return where a run stands after events of its running attempt."""
    seq, index = held.event_seq + len(drafts), held.event_index + sum(draft.visible for draft in drafts)
    return Position(epoch, held.step_no, held.attempt, held.deployment, held.step_started_at, seq, index)


def _moved(commit: StepCommit, held: Held, at: int) -> Position:
    """Return where a run stands that goes on with its next step."""
    place = _standing(commit.epoch, held, commit.events)
    return place._replace(step_no=commit.last_n + 1, attempt=1, step_started_at=at)


async def _move(tx: Tx, run_id: str, move: Move, held: Held, at: int) -> Held:
    """Hand the run over before anything is written, so that the step is its new deployment's."""
    await tx.run(_MOVE, run_id, move.deployment, None if move.lifetime_ms is None else at + move.lifetime_ms)
    return held._replace(deployment=move.deployment)


async def _own(tx: Tx, commit: StepCommit, at: int) -> None:
    for channel, address in sorted(commit.addresses):
        row = await tx.one(_OWN, channel, address, commit.run_id, at)
        if row is None or row[0] != commit.run_id:
            raise AddressTaken(channel, address)


async def _write_step(tx: Tx, commit: StepCommit, held: Held, at: int) -> None:
    run_id, n, attempt, began = commit.run_id, commit.step_n, held.attempt, held.step_started_at
    for step in (commit.step,) if commit.before is None else (commit.before, commit.step):
        await tx.run(
            _STEP,
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
        )
        n, attempt, began = n + 1, 1, at


async def _consume(tx: Tx, commit: StepCommit) -> None:
    if not commit.consumed:
        return
    found = await tx.all(_CONSUME, commit.run_id, commit.last_n, list(commit.consumed))
    taken: dict[int, str] = {row[0]: row[1] for row in found}
    for seq in commit.consumed:
        if seq not in taken:
            raise Broken(f"command {seq} of {commit.run_id} is not there to be consumed")
    turn_id = commit.turn_id if commit.link_turn is None else commit.link_turn
    if turn_id:
        await tx.run(_LINK, commit.run_id, turn_id, list(taken.values()))


async def _open_prompt(tx: Tx, commit: StepCommit, draft: PromptDraft, *, created_seq: int, at: int) -> None:
    await tx.run(
        _PROMPT,
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
    )


async def _next(tx: Tx, commit: StepCommit, held: Held, at: int) -> int:
    """Turn the run to its next step, or end it; return the cancel that is still pending, 0 for none."""
    cancelled = held.cancel_seq if held.cancel_seq in commit.consumed else -1
    after = _moved(commit, held, at)
    args = (
        commit.run_id,
        cancelled,
        commit.phase.value,
        commit.turn_id,
        at,
        versions.CURRENT_SPEC,
        after.event_seq,
        after.event_index,
        after.step_no,
    )
    if commit.release or commit.end:
        await tx.run(_LET_GO, *args, commit.seen, await tx.now(), commit.timer_at)
    else:
        await tx.run(_KEEP, *args)
    if commit.end:
        await settling.end_run(tx, commit.run_id, reason=commit.end, at=at)
        return 0
    return 0 if cancelled == held.cancel_seq else held.cancel_seq
