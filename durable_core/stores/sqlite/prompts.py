"""Answers to prompts: settled at once, or left to a worker as an interaction (CORE 8).

What lives here: answering, taking interactions, deciding them. What does not: what a step opens or settles (`commits.py`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from durable_core.codec import encode
from durable_core.errors import Broken, DurableError, LeaseLost, NotFound
from durable_core.model import (
    AnswerPolicy,
    AnswerReceipt,
    AnswerStatus,
    CommandKind,
    EventDraft,
    Interaction,
    OutboxDraft,
    Outcome,
    Prompt,
    PromptAnswer,
    PromptOutcome,
    RunStatus,
    SubmissionOutcome,
    Verdict,
)
from durable_core.stores import history, rows, sealing
from durable_core.stores.sqlite import events, outbox, runs, settling, submissions
from durable_core.stores.sqlite.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

KIND: Final = CommandKind.RESPONSE.value

_PROMPT: Final = f"""
    SELECT {rows.PROMPT}, r.status, r.cancel_seq, r.last_at FROM moor_prompt p JOIN moor_run r ON r.run_id = p.run_id
    WHERE p.prompt_id = ?
"""
_VOTE: Final = """
    INSERT INTO moor_vote (run_id, prompt_id, principal, option_id, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INTERACTION: Final = """
    INSERT INTO moor_interaction
        (run_id, interaction_id, prompt_id, option_id, outcome, principal, name, via, body, note, due_at, at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_DUE: Final = """
    SELECT run_id, interaction_id FROM moor_interaction WHERE status IS NULL AND due_at <= ? ORDER BY due_at LIMIT ?
"""
# Until it is decided, `due_at` is when the lease of whoever has it is over.
_TAKE: Final = """
    UPDATE moor_interaction SET owner = ?, epoch = epoch + 1, attempts = attempts + 1, due_at = ?
    WHERE run_id = ? AND interaction_id = ?
    RETURNING epoch, attempts, prompt_id, option_id, outcome, principal, name, via, body, note
"""
_LEAVE: Final = "UPDATE moor_interaction SET due_at = ?, owner = NULL WHERE run_id = ? AND interaction_id = ?"
_POSTPONE: Final = """
    UPDATE moor_interaction SET due_at = ?, owner = NULL
    WHERE interaction_id = ? AND epoch = ? AND owner IS NOT NULL AND status IS NULL
    RETURNING run_id
"""
_UNDECIDED: Final = """
    SELECT i.run_id, a.source, a.key, a.digest, i.prompt_id, i.option_id, i.outcome, i.principal, i.name, i.via, i.body, i.note,
           i.epoch, i.owner, i.status
    FROM moor_admission a JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id
    WHERE a.submission_id = ?
"""
_STORED: Final = """
    SELECT a.run_id, a.outcome, a.detail, i.prompt_id
    FROM moor_admission a LEFT JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id
    WHERE a.submission_id = ? AND a.kind = ?
"""


class _Asked(NamedTuple):
    """A prompt with what decides whether it may still be settled."""

    prompt: Prompt
    ended: bool
    cancelled: bool
    at: int

    def refusal(self) -> str | None:
        """Say why nobody may settle it any more; a settled one is not refused."""
        if self.prompt.outcome is not None:
            return None
        if self.ended:
            return "ended"
        if self.prompt.expires_at is not None and self.prompt.expires_at <= self.at:
            return "expired"
        return "cancelled" if self.cancelled else None


def answer(tx: Tx, answer: PromptAnswer) -> AnswerReceipt:
    """Accept an answer; settle, refuse, or leave it to a worker.

    Raises:
        NotFound: no such prompt, or not of this run.
        Conflict: the key was used with another payload.
    """
    asked = _asked(tx, answer.prompt_id)
    run_id = asked.prompt.run_id
    if answer.run_id is not None and answer.run_id != run_id:
        raise NotFound("prompt", answer.prompt_id)
    known = submissions.find(tx, answer.source, answer.key, answer.digest, merge=False)
    if known is not None:
        return _repeated(tx, known.submission_id)
    status, reason = (AnswerStatus.REFUSED, answer.refused) if answer.refused is not None else _judge(asked, answer)
    seq = 0
    if status is AnswerStatus.SETTLED:
        seq = _settle(tx, asked, answer, answer.events)
    elif status is AnswerStatus.PENDING:
        _leave(tx, asked, answer)
    pending = status is AnswerStatus.PENDING
    _tell(tx, run_id, status, answer.tell, asked.at)
    submissions.insert(
        tx,
        run_id,
        source=answer.source,
        key=answer.key,
        submission_id=answer.submission_id,
        seq=seq,
        kind=KIND,
        digest=answer.digest,
        at=asked.at,
        outcome=None if pending else Outcome.COMPLETED,
        detail=None if pending else rows.answer_detail(answer.prompt_id, status, reason),
    )
    return _receipt(tx, answer.submission_id, answer.prompt_id, status, reason)


def take_interactions(tx: Tx, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
    """Take answers that wait for a policy, the longest waiting first."""
    taken = []
    for run_id, interaction_id in tx.all(_DUE, (tx.now, limit)):
        row = tx.one(_TAKE, (owner, tx.now + lease_ms, run_id, interaction_id))
        if row is None:
            continue
        got = tx.apart(lambda at=(run_id, interaction_id), row=row: _interaction(tx, at, row))  # type: ignore[misc]
        if isinstance(got, DurableError):
            log.error("answer %s can't be read, and is left alone for a while: %s", interaction_id, got)
            tx.run(_LEAVE, (tx.now + UNOPENABLE_MS, run_id, interaction_id))
        else:
            taken.append(got)
    return taken


def _interaction(tx: Tx, at: tuple[str, str], row: Row) -> Interaction:
    run_id, interaction_id = at
    found = tx.one(_UNDECIDED, (interaction_id,))
    name = tx.one("SELECT name FROM moor_run WHERE run_id = ?", (run_id,))
    if found is None or name is None:
        raise Broken(f"{interaction_id} has no admission or no run")
    return Interaction(
        interaction_id=interaction_id,
        epoch=row[0],
        attempts=row[1],
        prompt=_asked(tx, row[2]).prompt,
        run_name=name[0],
        answer=_answer_of(tx, interaction_id, found),
    )


def postpone(tx: Tx, interaction: Interaction, *, until: int) -> None:
    """Give an interaction back undecided.

    Raises:
        LeaseLost: another worker has it, or it is decided.
    """
    found = tx.one(_POSTPONE, (until, interaction.interaction_id, interaction.epoch))
    if found is None:
        raise LeaseLost(interaction.interaction_id, interaction.epoch)
    tx.changed.add(found[0])


def decide(tx: Tx, verdict: Verdict) -> AnswerReceipt:
    """Settle or refuse an interaction, under the same compare-and-set as an answer at once.

    Raises:
        NotFound: no such interaction.
        LeaseLost: another worker has it, or it is decided.
    """
    row = tx.one(_UNDECIDED, (verdict.interaction_id,))
    if row is None:
        raise NotFound("interaction", verdict.interaction_id)
    epoch, owner, decided = row[12:15]
    if epoch != verdict.epoch or owner is None or decided is not None:
        raise LeaseLost(verdict.interaction_id, verdict.epoch)
    answer = _answer_of(tx, verdict.interaction_id, row)
    asked = _asked(tx, answer.prompt_id)
    status, reason = _judge_allowed(asked) if verdict.allowed else (AnswerStatus.REFUSED, verdict.reason or "not_yours")
    run_id = asked.prompt.run_id
    if status is AnswerStatus.SETTLED:
        seq = _settle(tx, asked, replace(answer, name=verdict.name or answer.name), verdict.events)
        tx.run("UPDATE moor_admission SET seq = ? WHERE submission_id = ?", (seq, verdict.interaction_id))
    else:
        events.append(tx, run_id, (history.of_answer(answer, status),))
    tx.run(
        "UPDATE moor_interaction SET status = ?, reason = ?, owner = NULL WHERE run_id = ? AND interaction_id = ?",
        (status.value, reason, run_id, verdict.interaction_id),
    )
    outcome = SubmissionOutcome(
        submission_id=verdict.interaction_id,
        outcome=Outcome.COMPLETED,
        detail=rows.answer_detail(answer.prompt_id, status, reason),
    )
    submissions.settle(tx, run_id, (outcome,), asked.at)
    _tell(tx, run_id, status, verdict.tell, asked.at)
    tx.changed.add(run_id)
    return _receipt(tx, verdict.interaction_id, answer.prompt_id, status, reason)


def _tell(tx: Tx, run_id: str, status: AnswerStatus, tell: OutboxDraft | None, at: int) -> None:
    """Owe a word to whoever answered in vain."""
    if tell is not None and status in {AnswerStatus.REFUSED, AnswerStatus.ALREADY_SETTLED}:
        outbox.put(tx, run_id, (tell,), at)


def result(tx: Tx, submission_id: str) -> AnswerReceipt | None:
    """Return what became of an answer, None while it is pending.

    Raises:
        NotFound: no such answer.
    """
    receipt = _found(tx, submission_id)
    if receipt is None:
        raise NotFound("submission", submission_id)
    return None if receipt.status is AnswerStatus.PENDING else receipt


def prompt(tx: Tx, prompt_id: str) -> Prompt:
    """Return one prompt.

    Raises:
        NotFound: no such prompt.
    """
    return _asked(tx, prompt_id).prompt


def _asked(tx: Tx, prompt_id: str) -> _Asked:
    row = tx.one(_PROMPT, (prompt_id,))
    if row is None:
        raise NotFound("prompt", prompt_id)
    status, cancel_seq, last_at = row[rows.PROMPT_WIDTH :]
    return _Asked(
        prompt=rows.prompt(tx, row),
        ended=status != RunStatus.OPEN,
        cancelled=cancel_seq > 0,
        at=max(last_at, tx.now),
    )


def _judge(asked: _Asked, answer: PromptAnswer) -> tuple[AnswerStatus, str | None]:
    status, reason = _judge_allowed(asked)
    if status is not AnswerStatus.SETTLED:
        return status, reason
    if asked.prompt.policy is AnswerPolicy.FUNCTION:
        return AnswerStatus.PENDING, None
    if answer.principal != asked.prompt.requester:
        return AnswerStatus.REFUSED, "not_yours"
    return AnswerStatus.SETTLED, None


def _judge_allowed(asked: _Asked) -> tuple[AnswerStatus, str | None]:
    reason = asked.refusal()
    if reason is not None:
        return AnswerStatus.REFUSED, reason
    return (AnswerStatus.SETTLED if asked.prompt.outcome is None else AnswerStatus.ALREADY_SETTLED), None


def _settle(tx: Tx, asked: _Asked, answer: PromptAnswer, drafts: tuple[EventDraft, ...]) -> int:
    """Settle the prompt and tell the run; return the response's place in the inbox."""
    run_id = asked.prompt.run_id
    body = {"prompt_id": answer.prompt_id, "option_id": answer.option_id, "outcome": answer.outcome.value}
    entry = runs.put_command(
        tx,
        run_id,
        kind=CommandKind.RESPONSE,
        body=encode(body),
        submission_id=answer.submission_id,
        principal=answer.principal,
    )
    if entry is None:
        raise NotFound("open run", run_id)
    settling.settle_prompt(
        tx,
        run_id,
        answer.prompt_id,
        outcome=answer.outcome,
        at=entry.at,
        by=answer.principal,
        name=answer.name,
        via=answer.via,
        option_id=answer.option_id,
        seq=entry.seq,
        note=answer.note,
    )
    tx.run(_VOTE, (run_id, answer.prompt_id, answer.principal, answer.option_id, entry.at))
    events.append(tx, run_id, (*drafts, history.of_answer(answer, AnswerStatus.SETTLED)))
    return entry.seq


def _leave(tx: Tx, asked: _Asked, answer: PromptAnswer) -> None:
    run_id = asked.prompt.run_id
    tx.run(
        _INTERACTION,
        (
            run_id,
            answer.submission_id,
            answer.prompt_id,
            answer.option_id,
            answer.outcome.value,
            answer.principal,
            answer.name,
            answer.via,
            tx.seal(run_id, answer.body, sealing.interaction_body(answer.submission_id)),
            tx.seal_optional(run_id, answer.note, sealing.interaction_note(answer.submission_id)),
            tx.now,
            asked.at,
        ),
    )
    tx.changed.add(run_id)


def _answer_of(tx: Tx, interaction_id: str, row: Row) -> PromptAnswer:
    """Read the first columns of `_UNDECIDED`."""
    run_id, source, key, digest, prompt_id, option_id, outcome, principal, name, via, body, note = row[:12]
    return PromptAnswer(
        source=source,
        key=key,
        digest=digest,
        submission_id=interaction_id,
        prompt_id=prompt_id,
        run_id=run_id,
        option_id=option_id,
        outcome=PromptOutcome(outcome),
        note=tx.open_optional(run_id, note, sealing.interaction_note(interaction_id)),
        principal=principal,
        name=name,
        via=via,
        body=tx.open(run_id, body, sealing.interaction_body(interaction_id)),
    )


def _repeated(tx: Tx, submission_id: str) -> AnswerReceipt:
    receipt = _found(tx, submission_id)
    if receipt is None:
        raise NotFound("answer", submission_id)
    return replace(receipt, deduplicated=True)


def _found(tx: Tx, submission_id: str) -> AnswerReceipt | None:
    """Read what is stored of an answer."""
    row = tx.one(_STORED, (submission_id, KIND))
    if row is None:
        return None
    run_id, outcome, detail, prompt_id = row
    if outcome is None:
        return _receipt(tx, submission_id, prompt_id, AnswerStatus.PENDING, None)
    settled = rows.answer_result(tx.open_optional(run_id, detail, sealing.admission_detail(submission_id)))
    return _receipt(tx, submission_id, settled.prompt_id or prompt_id, settled.status, settled.reason)


def _receipt(tx: Tx, submission_id: str, prompt_id: str, status: AnswerStatus, reason: str | None) -> AnswerReceipt:
    """Say what became of an answer, with the prompt as it stands: who settled it, or who is waited for."""
    current = prompt(tx, prompt_id)
    return AnswerReceipt(status=status, submission_id=submission_id, run_id=current.run_id, reason=reason, prompt=current)
