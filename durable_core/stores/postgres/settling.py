"""Settling and moving prompts, ending runs: what several transactions do in the same way.

What lives here: the compare-and-set of a prompt, what a commit does to prompts, the end of a run. What does not: who may settle
(`prompts.py`).

All of it stands under the run's lock, which the caller has taken: a prompt is opened and settled under no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.codec import encode
from durable_core.errors import PromptTaken
from durable_core.model import AnswerStatus, Phase, Prompt, PromptOutcome, PromptUpdate, RunStatus, StepCommit
from durable_core.stores import auditing, judging, rows, sealing
from durable_core.stores.postgres import loading, outbox, submissions, votes
from durable_core.stores.postgres.tx import Tx

_SETTLE: Final = """
    UPDATE moor_prompt SET
        outcome = $3, option_id = $4, settled_by = $5, settled_name = $6, settled_via = $7, settled_at = $8, settled_seq = $9,
        note = $10
    WHERE run_id = $1 AND prompt_id = $2 AND outcome IS NULL
"""
_MOVE: Final = """
    UPDATE moor_prompt SET
        expires_at = $3, remind_at = $4, level = coalesce($5::bigint, level), asked = coalesce($6::text, asked),
        answerers = coalesce($7::text, answerers)
    WHERE run_id = $1 AND prompt_id = $2 AND outcome IS NULL
"""
_PROMPTS: Final = f"SELECT {votes.PROMPT} FROM moor_prompt p WHERE p.run_id = $1 AND p.prompt_id = ANY($2::text[])"
_CANCEL: Final = """
    UPDATE moor_prompt SET outcome = $2, settled_via = 'system', settled_at = $3 WHERE run_id = $1 AND outcome IS NULL
"""
_END: Final = """
    UPDATE moor_run SET
        status = $2, phase = $3, turn_id = NULL, ended_at = $4, end_reason = $5, last_at = $4,
        owner = NULL, lease_until = NULL, epoch = epoch + 1, wake_at = NULL, retry_at = NULL, cancel_seq = 0,
        stranded = NULL, stranded_code = NULL, purge_at = $4 + keep_ms
    WHERE run_id = $1
"""
_REFUSE: Final = """
    UPDATE moor_interaction SET status = $2, reason = 'ended', owner = NULL WHERE run_id = $1 AND status IS NULL
    RETURNING prompt_id, principal, via, place, option_id, outcome
"""


async def settle_prompt(
    tx: Tx,
    run_id: str,
    prompt_id: str,
    *,
    outcome: PromptOutcome,
    at: int,
    by: str | None,
    name: str | None,
    via: str,
    option_id: str | None = None,
    seq: int | None = None,
    note: bytes | None = None,
) -> bool:
    """Settle an open prompt; False when it was settled before. The edits of its card are the caller's to owe."""
    if note is not None:
        await tx.know(run_id)
    sealed = tx.seal_optional(run_id, note, sealing.prompt_note(prompt_id))
    settled = await tx.run(_SETTLE, run_id, prompt_id, outcome.value, option_id, by, name, via, at, seq, sealed)
    if settled:
        tx.changed.add(run_id)
    return settled > 0


async def change_prompts(tx: Tx, commit: StepCommit, at: int) -> None:
    """Settle and move prompts as a commit says, and owe the edits of their cards.

    Raises:
        PromptTaken: one is settled by now.
    """
    changed = [*(item.prompt_id for item in commit.settle), *(item.prompt_id for item in commit.updates)]
    if not changed:
        return
    run_id = commit.run_id
    for item in commit.settle:
        settled = await settle_prompt(
            tx, run_id, item.prompt_id, outcome=item.outcome, at=at, by=item.by, name=item.name, via=item.via
        )
        if not settled:
            raise PromptTaken(item.prompt_id)
    for update in commit.updates:
        await _move(tx, run_id, update)
    prompts = {prompt.prompt_id: prompt for prompt in await _prompts(tx, run_id, changed)}
    tx.entries += [auditing.of_settlement(prompts[item.prompt_id], item, at) for item in commit.settle]
    tx.entries += [auditing.of_move(prompts[item.prompt_id], at) for item in commit.updates if item.level is not None]
    await outbox.edit_copies(tx, run_id, [judging.card(prompts[prompt_id]) for prompt_id in changed], at)


async def _move(tx: Tx, run_id: str, update: PromptUpdate) -> None:
    answerers = None if update.answerers is None else rows.names(update.answerers)
    times = update.expires_at, update.remind_at
    if not await tx.run(_MOVE, run_id, update.prompt_id, *times, update.level, update.asked, answerers):
        raise PromptTaken(update.prompt_id)
    tx.changed.add(run_id)


async def _prompts(tx: Tx, run_id: str, prompt_ids: Sequence[str]) -> list[Prompt]:
    found = await tx.all(_PROMPTS, run_id, list(prompt_ids))
    await tx.know(run_id)
    return [rows.prompt(tx, row) for row in found]


async def end_run(tx: Tx, run_id: str, *, reason: str, at: int) -> None:
    """End a run: free its addresses, cancel its prompts, abort what is open; whoever owns it has lost it."""
    cancelled = await loading.open_prompts(tx, run_id, opener=rows.Lenient(tx))
    if cancelled:
        await tx.run(_CANCEL, run_id, PromptOutcome.CANCELLED.value, at)
    dropped = await tx.all(_REFUSE, run_id, AnswerStatus.REFUSED.value)
    await submissions.abort_open(tx, run_id, encode({"reason": reason}), at)
    await tx.run("DELETE FROM moor_address WHERE run_id = $1", run_id)
    await tx.run(_END, run_id, RunStatus.ENDED.value, Phase.IDLE.value, at, reason)
    if cancelled:
        await outbox.edit_copies(tx, run_id, [judging.card(prompt) for prompt in cancelled], at)
    tx.entries += [auditing.of_end(prompt, reason, at) for prompt in cancelled]
    tx.entries += auditing.of_dropped({prompt.prompt_id: prompt for prompt in cancelled}, dropped, at)
    tx.changed.add(run_id)
