"""Answers to prompts: settled at once, or left to a worker as an interaction (CORE 8).

What lives here: answering, taking interactions, deciding them. What does not: what a step opens or settles (`commits.py`).

Whoever answers or decides locks the run first and reads the prompt only then: nothing opens or settles it but under that lock.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from operator import itemgetter
from typing import Final, NamedTuple

from durable_core.codec import encode
from durable_core.errors import Broken, LeaseLost, NotFound
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
from durable_core.stores.postgres import events, outbox, runs, settling, submissions
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

KIND: Final = CommandKind.RESPONSE.value

_LOCK: Final = f"""
    SELECT run_id, status, cancel_seq, last_at, session_key, {now("$2")} FROM moor_run
    WHERE run_id = (SELECT run_id FROM moor_prompt WHERE prompt_id = $1) FOR UPDATE
"""
_PROMPT: Final = f"SELECT {rows.PROMPT} FROM moor_prompt p WHERE p.prompt_id = $1"
_VOTE: Final = """
    INSERT INTO moor_vote (run_id, prompt_id, principal, option_id, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""
_INTERACTION: Final = """
    INSERT INTO moor_interaction
        (run_id, interaction_id, prompt_id, option_id, outcome, principal, name, via, body, note, due_at, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""
# Until it is decided, `due_at` is when the lease of whoever has it is over.
_TAKE: Final = """
    WITH due AS MATERIALIZED (
        SELECT run_id, interaction_id, due_at FROM moor_interaction
        WHERE status IS NULL AND due_at <= $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    UPDATE moor_interaction i SET owner = $3, epoch = i.epoch + 1, attempts = i.attempts + 1, due_at = $4
    FROM due WHERE i.run_id = due.run_id AND i.interaction_id = due.interaction_id
    RETURNING due.due_at, i.interaction_id, i.run_id
"""
_LEAVE: Final = "UPDATE moor_interaction SET due_at = $1, owner = NULL WHERE run_id = $2 AND interaction_id = $3"
_POSTPONE: Final = """
    UPDATE moor_interaction SET due_at = $1, owner = NULL
    WHERE run_id = $2 AND interaction_id = $3 AND epoch = $4 AND owner IS NOT NULL AND status IS NULL
"""
_ANSWER: Final = """
    i.interaction_id, i.run_id, a.source, a.key, a.digest, i.prompt_id, i.option_id, i.outcome, i.principal, i.name, i.via,
    i.body, i.note, i.epoch
"""
_ANSWER_WIDTH: Final = 14
_UNDECIDED: Final = f"""
    SELECT {_ANSWER}, i.owner, i.status
    FROM moor_interaction i JOIN moor_admission a ON a.run_id = i.run_id AND a.submission_id = i.interaction_id
    WHERE i.run_id = $1 AND i.interaction_id = $2 FOR UPDATE OF i
"""
_TAKEN: Final = f"""
    SELECT {_ANSWER}, i.attempts, r.name, {rows.PROMPT}
    FROM unnest($1::text[], $2::text[]) AS taken (run_id, interaction_id)
    JOIN moor_interaction i ON i.run_id = taken.run_id AND i.interaction_id = taken.interaction_id
    JOIN moor_admission a ON a.submission_id = i.interaction_id
    JOIN moor_run r ON r.run_id = i.run_id
    JOIN moor_prompt p ON p.prompt_id = i.prompt_id
"""
_OF_INTERACTION: Final = """
    SELECT i.run_id, i.prompt_id FROM moor_admission a
    JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id WHERE a.submission_id = $1
"""
_DECIDE: Final = "UPDATE moor_interaction SET status = $3, reason = $4, owner = NULL WHERE run_id = $1 AND interaction_id = $2"
_STORED: Final = """
    SELECT a.run_id, a.outcome, a.detail, i.prompt_id
    FROM moor_admission a LEFT JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id
    WHERE a.submission_id = $1 AND a.kind = $2
"""


class _Asked(NamedTuple):
    """A prompt with what decides whether it may still be settled; its run is locked."""

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


async def answer(tx: Tx, answer: PromptAnswer) -> AnswerReceipt:
    """Accept an answer; settle, refuse, or leave it to a worker.

    Raises:
        NotFound: no such prompt, or not of this run.
        Conflict: the key was used with another payload.
    """
    asked = await _locked(tx, answer.prompt_id)
    run_id = asked.prompt.run_id
    if answer.run_id is not None and answer.run_id != run_id:
        raise NotFound("prompt", answer.prompt_id)
    known = await submissions.find(tx, answer.source, answer.key, answer.digest, merge=False)
    if known is not None:
        return replace(await _found(tx, known.submission_id), deduplicated=True)
    status, reason = (AnswerStatus.REFUSED, answer.refused) if answer.refused is not None else _judge(asked, answer)
    seq, prompt = 0, asked.prompt
    if status is AnswerStatus.SETTLED:
        seq, prompt = await _settle(tx, asked, answer, answer.events)
    elif status is AnswerStatus.PENDING:
        await _leave(tx, asked, answer)
    pending = status is AnswerStatus.PENDING
    await submissions.insert(
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
    await _tell(tx, run_id, status, answer.tell, asked.at)
    return _receipt(answer.submission_id, status, reason, prompt)


async def take_interactions(tx: Tx, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
    """Take answers that wait for a policy, the longest waiting first. One that somebody is deciding is not waited for."""
    at = await tx.now()
    waited = sorted(await tx.all(_TAKE, at, limit, owner, at + lease_ms), key=itemgetter(0))
    if not waited:
        return []
    loaded = await tx.all(_TAKEN, [row[2] for row in waited], [row[1] for row in waited])
    await tx.know(*(row[2] for row in waited))
    found = {row[0]: row for row in loaded}
    taken = []
    for _, interaction_id, run_id in waited:
        try:
            taken.append(_interaction(tx, interaction_id, found.get(interaction_id)))
        except outbox.UNOPENABLE as error:
            log.error("answer %s can't be read, and is left alone for a while: %s", interaction_id, error)  # noqa: TRY400
            await tx.run(_LEAVE, at + UNOPENABLE_MS, run_id, interaction_id)
    return taken


async def postpone(tx: Tx, interaction: Interaction, *, until: int) -> None:
    """Give an interaction back undecided.

    Raises:
        LeaseLost: another worker has it, or it is decided.
    """
    run_id = interaction.prompt.run_id
    if not await tx.run(_POSTPONE, until, run_id, interaction.interaction_id, interaction.epoch):
        raise LeaseLost(interaction.interaction_id, interaction.epoch)
    tx.changed.add(run_id)


async def decide(tx: Tx, verdict: Verdict) -> AnswerReceipt:
    """Settle or refuse an interaction, under the same compare-and-set as an answer at once.

    Raises:
        NotFound: no such interaction.
        LeaseLost: another worker has it, or it is decided.
    """
    of = await tx.one(_OF_INTERACTION, verdict.interaction_id)
    if of is None:
        raise NotFound("interaction", verdict.interaction_id)
    run_id, prompt_id = of
    asked = await _locked(tx, prompt_id)
    row = await tx.one(_UNDECIDED, run_id, verdict.interaction_id)
    if row is None:
        raise NotFound("interaction", verdict.interaction_id)
    epoch, owner, decided = row[_ANSWER_WIDTH - 1 :]
    if epoch != verdict.epoch or owner is None or decided is not None:
        raise LeaseLost(verdict.interaction_id, verdict.epoch)
    status, reason = _judge_allowed(asked) if verdict.allowed else (AnswerStatus.REFUSED, verdict.reason or "not_yours")
    prompt, answer = asked.prompt, _answer(tx, row)
    if status is AnswerStatus.SETTLED:
        seq, prompt = await _settle(tx, asked, replace(answer, name=verdict.name or answer.name), verdict.events)
        await tx.run("UPDATE moor_admission SET seq = $1 WHERE submission_id = $2", seq, verdict.interaction_id)
    else:
        await events.append(tx, run_id, (history.of_answer(answer, status),))
    await tx.run(_DECIDE, run_id, verdict.interaction_id, status.value, reason)
    outcome = SubmissionOutcome(
        submission_id=verdict.interaction_id,
        outcome=Outcome.COMPLETED,
        detail=rows.answer_detail(prompt_id, status, reason),
    )
    await submissions.settle(tx, run_id, (outcome,), asked.at)
    await _tell(tx, run_id, status, verdict.tell, asked.at)
    tx.changed.add(run_id)
    return _receipt(verdict.interaction_id, status, reason, prompt)


async def result(tx: Tx, submission_id: str) -> AnswerReceipt | None:
    """Return what became of an answer, None while it is pending.

    Raises:
        NotFound: no such answer.
    """
    receipt = await _found(tx, submission_id)
    return None if receipt.status is AnswerStatus.PENDING else receipt


async def prompt(tx: Tx, prompt_id: str) -> Prompt:
    """Return one prompt.

    Raises:
        NotFound: no such prompt.
    """
    row = await tx.one(_PROMPT, prompt_id)
    if row is None:
        raise NotFound("prompt", prompt_id)
    await tx.know(row[1])
    return rows.prompt(tx, row)


async def _locked(tx: Tx, prompt_id: str) -> _Asked:
    """Lock the run of a prompt, then read both as they stand under the lock."""
    row = await tx.one(_LOCK, prompt_id, tx.override)
    if row is None:
        raise NotFound("prompt", prompt_id)
    run_id, status, cancel_seq, last_at, wrapped, at = row
    tx.note_key(run_id, wrapped)
    tx.note_now(at)
    return _Asked(
        prompt=await prompt(tx, prompt_id),
        ended=status != RunStatus.OPEN,
        cancelled=cancel_seq > 0,
        at=max(last_at, at),
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


async def _settle(tx: Tx, asked: _Asked, answer: PromptAnswer, drafts: tuple[EventDraft, ...]) -> tuple[int, Prompt]:
    """Settle the prompt and tell the run; return the response's place in the inbox, and the prompt as it stands now."""
    run_id = asked.prompt.run_id
    body = {"prompt_id": answer.prompt_id, "option_id": answer.option_id, "outcome": answer.outcome.value}
    entry = await runs.put_command(
        tx,
        run_id,
        kind=CommandKind.RESPONSE,
        body=encode(body),
        submission_id=answer.submission_id,
        principal=answer.principal,
    )
    if entry is None:
        raise NotFound("open run", run_id)
    await tx.run(_VOTE, run_id, answer.prompt_id, answer.principal, answer.option_id, entry.at)
    await events.append(tx, run_id, (*drafts, history.of_answer(answer, AnswerStatus.SETTLED)))
    await settling.settle_prompt(
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
    return entry.seq, replace(
        asked.prompt,
        outcome=answer.outcome,
        option_id=answer.option_id,
        settled_by=answer.principal,
        settled_name=answer.name,
        settled_via=answer.via,
        settled_at=entry.at,
        note=answer.note,
    )


async def _leave(tx: Tx, asked: _Asked, answer: PromptAnswer) -> None:
    run_id = asked.prompt.run_id
    await tx.run(
        _INTERACTION,
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
        await tx.now(),
        asked.at,
    )
    tx.changed.add(run_id)


async def _tell(tx: Tx, run_id: str, status: AnswerStatus, tell: OutboxDraft | None, at: int) -> None:
    """Owe a word to whoever answered in vain."""
    if tell is not None and status in {AnswerStatus.REFUSED, AnswerStatus.ALREADY_SETTLED}:
        await outbox.put(tx, run_id, (tell,), at)


def _interaction(tx: Tx, interaction_id: str, row: Row | None) -> Interaction:
    """Read `_TAKEN`."""
    if row is None:
        raise Broken(f"{interaction_id} has no admission, no run or no prompt")
    attempts, run_name = row[_ANSWER_WIDTH : _ANSWER_WIDTH + 2]
    return Interaction(
        interaction_id=interaction_id,
        epoch=row[_ANSWER_WIDTH - 1],
        attempts=attempts,
        prompt=rows.prompt(tx, row[_ANSWER_WIDTH + 2 :]),
        run_name=run_name,
        answer=_answer(tx, row),
    )


def _answer(tx: Tx, row: Row) -> PromptAnswer:
    """Read `_ANSWER`."""
    interaction_id, run_id, source, key, digest, prompt_id, option_id, outcome, principal, name, via, body, note = row[:13]
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


async def _found(tx: Tx, submission_id: str) -> AnswerReceipt:
    """Read what is stored of an answer."""
    row = await tx.one(_STORED, submission_id, KIND)
    if row is None:
        raise NotFound("submission", submission_id)
    run_id, outcome, detail, prompt_id = row
    if outcome is None:
        return _receipt(submission_id, AnswerStatus.PENDING, None, await prompt(tx, prompt_id))
    await tx.know(run_id)
    settled = rows.answer_result(tx.open_optional(run_id, detail, sealing.admission_detail(submission_id)))
    return _receipt(submission_id, settled.status, settled.reason, await prompt(tx, settled.prompt_id or prompt_id))


def _receipt(submission_id: str, status: AnswerStatus, reason: str | None, prompt: Prompt) -> AnswerReceipt:
    """Say what became of an answer, with the prompt as it stands: who settled it, or who is waited for."""
    return AnswerReceipt(status=status, submission_id=submission_id, run_id=prompt.run_id, reason=reason, prompt=prompt)
