"""Settling prompts and ending runs: what several transactions do in the same way.

What lives here: the compare-and-set of a prompt, the end of a run. What does not: who may settle (`prompts.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.codec import encode
from durable_core.model import AnswerStatus, Phase, PromptOutcome, RunStatus
from durable_core.stores import sealing
from durable_core.stores.sqlite import outbox, submissions
from durable_core.stores.sqlite.tx import Tx

_SETTLE: Final = """
    UPDATE moor_prompt SET
        outcome = :outcome, option_id = :option_id, settled_by = :by, settled_name = :name, settled_via = :via,
        settled_at = :at, settled_seq = :seq, note = :note
    WHERE run_id = :run_id AND prompt_id = :prompt_id AND outcome IS NULL
"""
_OPEN: Final = "SELECT prompt_id FROM moor_prompt WHERE run_id = ? AND outcome IS NULL ORDER BY created_at"
_END: Final = """
    UPDATE moor_run SET
        status = :status, phase = :phase, turn_id = NULL, ended_at = :at, end_reason = :reason, last_at = :at,
        owner = NULL, lease_until = NULL, epoch = epoch + 1, wake_at = NULL, retry_at = NULL, cancel_seq = 0,
        stranded = NULL, stranded_code = NULL, purge_at = :at + keep_ms
    WHERE run_id = :run_id
"""
_REFUSE: Final = """
    UPDATE moor_interaction SET status = ?, reason = 'ended', owner = NULL WHERE run_id = ? AND status IS NULL
"""


def settle_prompt(
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
    changed = tx.run(
        _SETTLE,
        {
            "run_id": run_id,
            "prompt_id": prompt_id,
            "outcome": outcome.value,
            "option_id": option_id,
            "by": by,
            "name": name,
            "via": via,
            "at": at,
            "seq": seq,
            "note": tx.seal_optional(run_id, note, sealing.prompt_note(prompt_id)),
        },
    )
    if changed:
        outbox.edit_copies(tx, run_id, prompt_id, at)
        tx.changed.add(run_id)
    return changed > 0


def end_run(tx: Tx, run_id: str, *, reason: str, at: int) -> None:
    """End a run: free its addresses, cancel its prompts, abort what is open; whoever owns it has lost it."""
    for (prompt_id,) in tx.all(_OPEN, (run_id,)):
        settle_prompt(tx, run_id, prompt_id, outcome=PromptOutcome.CANCELLED, at=at, by=None, name=None, via="system")
    tx.run(_REFUSE, (AnswerStatus.REFUSED.value, run_id))
    submissions.abort_open(tx, run_id, encode({"reason": reason}), at)
    tx.run("DELETE FROM moor_address WHERE run_id = ?", (run_id,))
    tx.run(
        _END,
        {"run_id": run_id, "status": RunStatus.ENDED.value, "phase": Phase.IDLE.value, "at": at, "reason": reason},
    )
    tx.changed.add(run_id)
