"""Settling and moving prompts, ending runs: what several transactions do in the same way.

What lives here: the compare-and-set of a prompt, what a commit does to prompts, the end of a run. What does not: who may settle
(`prompts.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.codec import encode
from durable_core.errors import NotFound, PromptTaken
from durable_core.model import AnswerStatus, Phase, Prompt, PromptOutcome, PromptUpdate, RunStatus, StepCommit
from durable_core.stores import auditing, judging, rows, sealing
from durable_core.stores.sqlite import claims, outbox, submissions, votes
from durable_core.stores.sqlite.tx import Tx

_SETTLE: Final = """
    UPDATE moor_prompt SET
        outcome = :outcome, option_id = :option_id, settled_by = :by, settled_name = :name, settled_via = :via,
        settled_at = :at, settled_seq = :seq, note = :note
    WHERE run_id = :run_id AND prompt_id = :prompt_id AND outcome IS NULL
"""
_MOVE: Final = """
    UPDATE moor_prompt SET
        expires_at = :expires_at, remind_at = :remind_at, level = coalesce(:level, level), asked = coalesce(:asked, asked),
        answerers = coalesce(:answerers, answerers)
    WHERE run_id = :run_id AND prompt_id = :prompt_id AND outcome IS NULL
"""
_PROMPT: Final = f"SELECT {votes.PROMPT} FROM moor_prompt p WHERE p.run_id = ? AND p.prompt_id = ?"
_END: Final = """
    UPDATE moor_run SET
        status = :status, phase = :phase, turn_id = NULL, ended_at = :at, end_reason = :reason, last_at = :at,
        owner = NULL, lease_until = NULL, epoch = epoch + 1, wake_at = NULL, retry_at = NULL, cancel_seq = 0,
        stranded = NULL, stranded_code = NULL, purge_at = :at + keep_ms
    WHERE run_id = :run_id
"""
_REFUSE: Final = """
    UPDATE moor_interaction SET status = ?, reason = 'ended', owner = NULL WHERE run_id = ? AND status IS NULL
    RETURNING prompt_id, principal, via, place, option_id, outcome
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
    """Settle an open prompt; False when it was settled before. The edits of its card are the caller's to owe."""
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
        tx.changed.add(run_id)
    return changed > 0


def change_prompts(tx: Tx, commit: StepCommit, at: int) -> None:
    """Settle and move prompts as a commit says, and owe the edits of their cards.

    Raises:
        PromptTaken: one is settled by now.
    """
    run_id = commit.run_id
    cards = []
    for item in commit.settle:
        settled = settle_prompt(tx, run_id, item.prompt_id, outcome=item.outcome, at=at, by=item.by, name=item.name, via=item.via)
        if not settled:
            raise PromptTaken(item.prompt_id)
        prompt = _prompt(tx, run_id, item.prompt_id)
        cards.append(judging.card(prompt))
        tx.entries.append(auditing.of_settlement(prompt, item, at))
    for update in commit.updates:
        _move(tx, run_id, update)
        prompt = _prompt(tx, run_id, update.prompt_id)
        cards.append(judging.card(prompt))
        if update.level is not None:
            tx.entries.append(auditing.of_move(prompt, at))
    outbox.edit_copies(tx, run_id, cards, at)


def _move(tx: Tx, run_id: str, update: PromptUpdate) -> None:
    moved = tx.run(
        _MOVE,
        {
            "run_id": run_id,
            "prompt_id": update.prompt_id,
            "expires_at": update.expires_at,
            "remind_at": update.remind_at,
            "level": update.level,
            "asked": update.asked,
            "answerers": None if update.answerers is None else rows.names(update.answerers),
        },
    )
    if not moved:
        raise PromptTaken(update.prompt_id)


def _prompt(tx: Tx, run_id: str, prompt_id: str) -> Prompt:
    row = tx.one(_PROMPT, (run_id, prompt_id))
    if row is None:
        raise NotFound("prompt", prompt_id)
    return rows.prompt(tx, row)


def end_run(tx: Tx, run_id: str, *, reason: str, at: int) -> None:
    """End a run: free its addresses, cancel its prompts, abort what is open; whoever owns it has lost it."""
    prompts = {prompt.prompt_id: prompt for prompt in claims.open_prompts(tx, run_id, opener=rows.Lenient(tx))}
    for prompt_id, prompt in prompts.items():
        settle_prompt(tx, run_id, prompt_id, outcome=PromptOutcome.CANCELLED, at=at, by=None, name=None, via=auditing.SYSTEM)
        tx.entries.append(auditing.of_end(prompt, reason, at))
    outbox.edit_copies(tx, run_id, [judging.card(prompt) for prompt in prompts.values()], at)
    dropped = tx.all(_REFUSE, (AnswerStatus.REFUSED.value, run_id))
    tx.entries += auditing.of_dropped(prompts, dropped, at)
    submissions.abort_open(tx, run_id, encode({"reason": reason}), at)
    tx.run("DELETE FROM moor_address WHERE run_id = ?", (run_id,))
    tx.run(
        _END,
        {"run_id": run_id, "status": RunStatus.ENDED.value, "phase": Phase.IDLE.value, "at": at, "reason": reason},
    )
    tx.changed.add(run_id)
