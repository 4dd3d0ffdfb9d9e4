"""Interactions: answers that wait for a worker to say who may give them, without the run's lease (CORE 8).

What lives here: taking them, giving them back, deciding them. What does not: leaving them there, and what a decision does
(`prompts.py`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from operator import itemgetter
from typing import Final

from durable_core.errors import Broken, LeaseLost, NotFound
from durable_core.model import AnswerReceipt, Interaction, Outcome, PromptAnswer, PromptOutcome, SubmissionOutcome, Verdict
from durable_core.stores import history, judging, rows, sealing
from durable_core.stores.postgres import events, outbox, prompts, submissions, votes
from durable_core.stores.postgres.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

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
    i.body, i.note, i.place, i.override, i.aside, i.epoch
"""
_ANSWER_WIDTH: Final = 17
_UNDECIDED: Final = f"""
    SELECT {_ANSWER}, i.owner, i.status
    FROM moor_interaction i JOIN moor_admission a ON a.run_id = i.run_id AND a.submission_id = i.interaction_id
    WHERE i.run_id = $1 AND i.interaction_id = $2 FOR UPDATE OF i
"""
_TAKEN: Final = f"""
    SELECT {_ANSWER}, i.attempts, r.name, {votes.PROMPT}
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
    """Settle, count or refuse an interaction, under the same compare-and-set as an answer at once.

    Raises:
        NotFound: no such interaction.
        LeaseLost: another worker has it, or it is decided.
    """
    of = await tx.one(_OF_INTERACTION, verdict.interaction_id)
    if of is None:
        raise NotFound("interaction", verdict.interaction_id)
    run_id, prompt_id = of
    asked = await prompts.locked(tx, prompt_id)
    row = await tx.one(_UNDECIDED, run_id, verdict.interaction_id)
    if row is None:
        raise NotFound("interaction", verdict.interaction_id)
    epoch, owner, decided = row[_ANSWER_WIDTH - 1 :]
    if epoch != verdict.epoch or owner is None or decided is not None:
        raise LeaseLost(verdict.interaction_id, verdict.epoch)
    answer = _answer(tx, row)
    answer = replace(answer, name=verdict.name or answer.name)
    judged = judging.by_worker(asked, answer, verdict)
    seq, prompt = await prompts.carry_out(tx, asked, answer, judged, settled=verdict.events, counted=verdict.counted)
    if seq:
        await tx.run("UPDATE moor_admission SET seq = $1 WHERE submission_id = $2", seq, verdict.interaction_id)
    if judged.status in judging.IDLE:
        await events.append(tx, run_id, (history.of_answer(answer, judged.status),))
    await tx.run(_DECIDE, run_id, verdict.interaction_id, judged.status.value, judged.reason)
    outcome = SubmissionOutcome(
        submission_id=verdict.interaction_id,
        outcome=Outcome.COMPLETED,
        detail=judging.answer_detail(prompt_id, judged.status, judged.reason),
    )
    await submissions.settle(tx, run_id, (outcome,), asked.at)
    await prompts.tell(tx, run_id, judged, verdict.tell, asked.at)
    tx.changed.add(run_id)
    return prompts.receipt(verdict.interaction_id, judged, prompt)


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
    interaction_id, run_id, source, key, digest, prompt_id, option_id, outcome, principal, name, via, body, note, *rest = row
    place, override, aside = rest[:3]
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
        where=place,
        override=bool(override),
        aside=bool(aside),
    )
