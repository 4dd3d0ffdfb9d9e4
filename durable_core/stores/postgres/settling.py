"""Settling prompts and ending runs: what several transactions do in the same way.

What lives here: the compare-and-set of a prompt, the end of a run. What does not: who may settle (`prompts.py`).

All of it stands under the run's lock, which the caller has taken: a prompt is opened and settled under no other.
"""

from __future__ import annotations

from typing import Final

from durable_core.codec import encode
from durable_core.model import AnswerStatus, Phase, PromptOutcome, RunStatus
from durable_core.stores import sealing
from durable_core.stores.postgres import outbox, submissions
from durable_core.stores.postgres.tx import Tx

_SETTLE: Final = """
    UPDATE moor_prompt SET
        outcome = $3, option_id = $4, settled_by = $5, settled_name = $6, settled_via = $7, settled_at = $8, settled_seq = $9,
        note = $10
    WHERE run_id = $1 AND prompt_id = $2 AND outcome IS NULL
"""
_OPEN: Final = "SELECT prompt_id FROM moor_prompt WHERE run_id = $1 AND outcome IS NULL ORDER BY created_at"
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
    """Settle an open prompt and owe the edits of its cards; False when it was settled before."""
    if note is not None:
        await tx.know(run_id)
    sealed = tx.seal_optional(run_id, note, sealing.prompt_note(prompt_id))
    settled = await tx.run(_SETTLE, run_id, prompt_id, outcome.value, option_id, by, name, via, at, seq, sealed)
    if settled:
        await outbox.edit_copies(tx, run_id, (prompt_id,), at)
        tx.changed.add(run_id)
    return settled > 0


async def end_run(tx: Tx, run_id: str, *, reason: str, at: int) -> None:
    """End a run: free its addresses, cancel its prompts, abort what is open; whoever owns it has lost it."""
    cancelled = [row[0] for row in await tx.all(_OPEN, run_id)]
    if cancelled:
        await tx.run(_CANCEL, run_id, PromptOutcome.CANCELLED.value, at)
    await tx.run(_REFUSE, run_id, AnswerStatus.REFUSED.value)
    await submissions.abort_open(tx, run_id, encode({"reason": reason}), at)
    await tx.run("DELETE FROM moor_address WHERE run_id = $1", run_id)
    await tx.run(_END, run_id, RunStatus.ENDED.value, Phase.IDLE.value, at, reason)
    if cancelled:
        await outbox.edit_copies(tx, run_id, cancelled, at)
    tx.changed.add(run_id)
