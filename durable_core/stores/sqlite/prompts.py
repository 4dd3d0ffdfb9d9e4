"""Answers to prompts: settled or counted at once, or left to a worker as an interaction (CORE 8).

What lives here: answering, what an answer does, what became of one. What does not: answers that wait (`interactions.py`), what a
step opens or settles (`commits.py`), the decision itself (`stores/judging.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from durable_core.codec import encode
from durable_core.errors import NotFound
from durable_core.model import (
    AnswerReceipt,
    AnswerStatus,
    CommandKind,
    EventDraft,
    OutboxDraft,
    Outcome,
    Prompt,
    PromptAnswer,
    RunStatus,
)
from durable_core.stores import auditing, history, judging, rows, sealing
from durable_core.stores.judging import Asked, Judged
from durable_core.stores.sqlite import events, outbox, runs, settling, submissions, votes
from durable_core.stores.sqlite.tx import Tx

KIND: Final = CommandKind.RESPONSE.value

_PROMPT: Final = f"""
    SELECT {votes.PROMPT}, r.status, r.cancel_seq, r.last_at FROM moor_prompt p JOIN moor_run r ON r.run_id = p.run_id
    WHERE p.prompt_id = ?
"""
_INTERACTION: Final = """
    INSERT INTO moor_interaction
        (run_id, interaction_id, prompt_id, option_id, outcome, principal, name, via, body, note, due_at, at, place, override,
         aside)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# refused, or beside the answer, by the index of a prompt's audit, newest first; and what waits for a worker
_LATELY: Final = """
    SELECT (
        SELECT count(*) FROM (
            SELECT at FROM moor_audit WHERE prompt_id = :prompt AND principal = :who AND act IN ('refused', 'aside')
            ORDER BY n DESC LIMIT :most
        ) lately WHERE at > :since
    ) + (
        SELECT count(*) FROM moor_interaction
        WHERE run_id = :run AND prompt_id = :prompt AND principal = :who AND status IS NULL
    )
"""
_STORED: Final = """
    SELECT a.run_id, a.outcome, a.detail, i.prompt_id
    FROM moor_admission a LEFT JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id
    WHERE a.submission_id = ? AND a.kind = ?
"""


def answer(tx: Tx, answer: PromptAnswer) -> AnswerReceipt:
    """Accept an answer; settle, count, refuse, or leave it to a worker.

    Raises:
        NotFound: no such prompt, or not of this run.
        Conflict: the key was used with another payload.
    """
    asked = find(tx, answer.prompt_id)
    run_id = asked.prompt.run_id
    if answer.run_id is not None and answer.run_id != run_id:
        raise NotFound("prompt", answer.prompt_id)
    known = submissions.find(tx, answer.source, answer.key, answer.digest, merge=False)
    if known is not None:
        return _repeated(tx, known.submission_id)
    judged = judging.on_arrival(asked, answer)
    most = judging.bound(judged, answer)
    if most is not None and _lately(tx, asked, answer, most) >= most:
        return receipt(answer.submission_id, judging.REFUSED_UNSEEN, asked.prompt)
    pending = judged.status is AnswerStatus.PENDING
    seq, prompt = 0, asked.prompt
    if pending:
        _leave(tx, asked, answer)
    else:
        seq, prompt = carry_out(tx, asked, answer, judged, settled=answer.events, counted=answer.counted)
        tell(tx, run_id, judged, answer.tell, asked.at)
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
        detail=None if pending else judging.answer_detail(answer.prompt_id, judged.status, judged.reason),
    )
    return receipt(answer.submission_id, judged, prompt)


def carry_out(
    tx: Tx,
    asked: Asked,
    answer: PromptAnswer,
    judged: Judged,
    *,
    settled: tuple[EventDraft, ...],
    counted: tuple[EventDraft, ...],
) -> tuple[int, Prompt]:
    """Do what was decided of an answer; return the response's place in the inbox, 0 for none, and the prompt as it is now."""
    before, run_id = asked.prompt, asked.prompt.run_id
    prompt, seq, at = before, 0, asked.at
    if judged.status is AnswerStatus.SETTLED:
        seq, at = _settle(tx, run_id, answer)
        prompt = judging.settled(prompt, answer, at)
    if judged.status in judging.CHANGING:
        vote, counting = judging.leaves_vote(before, answer), judging.standing(before, judged.lapsed)
        prompt = judging.standing(prompt, judged.lapsed)
        votes.drop(tx, run_id, answer.prompt_id, judged.lapsed)
        if vote:
            votes.put(tx, run_id, answer, at)
            prompt = judging.voted(prompt, answer, at)
        drafts = settled if judged.status is AnswerStatus.SETTLED else judging.counted_as(counting, counted)
        told = history.of_answer(answer, judged.status, votes=vote, lapsed=judged.lapsed)
        events.append(tx, run_id, (*drafts, told))
        outbox.edit_copies(tx, run_id, (judging.card(before),), at)
    tx.entries += auditing.of_answer(before, answer, judged, at)
    return seq, prompt


def tell(tx: Tx, run_id: str, judged: Judged, draft: OutboxDraft | None, at: int) -> None:
    """Owe a word to whoever settled nothing; one that is owed already under its id is enough."""
    if draft is not None and judged.status in judging.TOLD and not outbox.owes(tx, draft.delivery_id):
        outbox.put(tx, run_id, (draft,), at)


def result(tx: Tx, submission_id: str) -> AnswerReceipt | None:
    """Return what became of an answer, None while it is pending.

    Raises:
        NotFound: no such answer.
    """
    found = _found(tx, submission_id)
    if found is None:
        raise NotFound("submission", submission_id)
    return None if found.status is AnswerStatus.PENDING else found


def prompt(tx: Tx, prompt_id: str) -> Prompt:
    """Return one prompt.

    Raises:
        NotFound: no such prompt.
    """
    return find(tx, prompt_id).prompt


def find(tx: Tx, prompt_id: str) -> Asked:
    """Return a prompt with what decides whether it may still be settled.

    Raises:
        NotFound: no such prompt.
    """
    row = tx.one(_PROMPT, (prompt_id,))
    if row is None:
        raise NotFound("prompt", prompt_id)
    status, cancel_seq, last_at = row[rows.PROMPT_WIDTH :]
    return Asked(
        prompt=rows.prompt(tx, row),
        ended=status != RunStatus.OPEN,
        cancelled=cancel_seq > 0,
        at=max(last_at, tx.now),
    )


def receipt(submission_id: str, judged: Judged, prompt: Prompt) -> AnswerReceipt:
    """Say what became of an answer, with the prompt as it stands: who settled it, or who is waited for."""
    return AnswerReceipt(
        status=judged.status, submission_id=submission_id, run_id=prompt.run_id, reason=judged.reason, prompt=prompt
    )


def _lately(tx: Tx, asked: Asked, answer: PromptAnswer, most: int) -> int:
    """Count what somebody answered in vain, or has to be looked at."""
    since = asked.at - judging.LATELY_MS
    about = {"prompt": answer.prompt_id, "who": answer.principal, "most": most, "since": since, "run": asked.prompt.run_id}
    row = tx.one(_LATELY, about)
    return 0 if row is None else int(row[0])


def _settle(tx: Tx, run_id: str, answer: PromptAnswer) -> runs.Entry:
    """Settle the prompt and put the response into the inbox; return its place there."""
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
    return entry


def _leave(tx: Tx, asked: Asked, answer: PromptAnswer) -> None:
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
            answer.where,
            int(answer.override),
            int(answer.aside),
        ),
    )
    tx.changed.add(run_id)


def _repeated(tx: Tx, submission_id: str) -> AnswerReceipt:
    found = _found(tx, submission_id)
    if found is None:
        raise NotFound("answer", submission_id)
    return replace(found, deduplicated=True)


def _found(tx: Tx, submission_id: str) -> AnswerReceipt | None:
    """Read what is stored of an answer."""
    row = tx.one(_STORED, (submission_id, KIND))
    if row is None:
        return None
    run_id, outcome, detail, prompt_id = row
    if outcome is None:
        return receipt(submission_id, Judged(AnswerStatus.PENDING), prompt(tx, prompt_id))
    kept = judging.answer_result(tx.open_optional(run_id, detail, sealing.admission_detail(submission_id)))
    return receipt(submission_id, Judged(kept.status, kept.reason), prompt(tx, kept.prompt_id or prompt_id))
