"""Interactions: answers that wait for a worker to say who may give them, without the run's lease (CORE 8).

What lives here: taking them, giving them back, deciding them. What does not: leaving them there, and what a decision does
(`prompts.py`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from durable_core.errors import Broken, DurableError, LeaseLost, NotFound
from durable_core.model import AnswerReceipt, Interaction, Outcome, PromptAnswer, PromptOutcome, SubmissionOutcome, Verdict
from durable_core.stores import history, judging, sealing
from durable_core.stores.sqlite import events, prompts, submissions
from durable_core.stores.sqlite.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

_DUE: Final = """
    SELECT run_id, interaction_id FROM moor_interaction WHERE status IS NULL AND due_at <= ? ORDER BY due_at LIMIT ?
"""
# Until it is decided, `due_at` is when the lease of whoever has it is over.
_TAKE: Final = """
    UPDATE moor_interaction SET owner = ?, epoch = epoch + 1, attempts = attempts + 1, due_at = ?
    WHERE run_id = ? AND interaction_id = ?
    RETURNING epoch, attempts, prompt_id
"""
_LEAVE: Final = "UPDATE moor_interaction SET due_at = ?, owner = NULL WHERE run_id = ? AND interaction_id = ?"
_POSTPONE: Final = """
    UPDATE moor_interaction SET due_at = ?, owner = NULL
    WHERE interaction_id = ? AND epoch = ? AND owner IS NOT NULL AND status IS NULL
    RETURNING run_id
"""
_ANSWER: Final = """
    i.run_id, a.source, a.key, a.digest, i.prompt_id, i.option_id, i.outcome, i.principal, i.name, i.via, i.body, i.note,
    i.place, i.override, i.aside
"""
_ANSWER_WIDTH: Final = 15
_UNDECIDED: Final = f"""
    SELECT {_ANSWER}, i.epoch, i.owner, i.status
    FROM moor_admission a JOIN moor_interaction i ON i.run_id = a.run_id AND i.interaction_id = a.submission_id
    WHERE a.submission_id = ?
"""


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
    """Settle, count or refuse an interaction, under the same compare-and-set as an answer at once.

    Raises:
        NotFound: no such interaction.
        LeaseLost: another worker has it, or it is decided.
    """
    row = tx.one(_UNDECIDED, (verdict.interaction_id,))
    if row is None:
        raise NotFound("interaction", verdict.interaction_id)
    epoch, owner, decided = row[_ANSWER_WIDTH:]
    if epoch != verdict.epoch or owner is None or decided is not None:
        raise LeaseLost(verdict.interaction_id, verdict.epoch)
    answer = _answer_of(tx, verdict.interaction_id, row)
    answer = replace(answer, name=verdict.name or answer.name)
    asked = prompts.find(tx, answer.prompt_id)
    run_id = asked.prompt.run_id
    judged = judging.by_worker(asked, answer, verdict)
    seq, prompt = prompts.carry_out(tx, asked, answer, judged, settled=verdict.events, counted=verdict.counted)
    if seq:
        tx.run("UPDATE moor_admission SET seq = ? WHERE submission_id = ?", (seq, verdict.interaction_id))
    if judged.status in judging.IDLE:
        events.append(tx, run_id, (history.of_answer(answer, judged.status),))
    tx.run(
        "UPDATE moor_interaction SET status = ?, reason = ?, owner = NULL WHERE run_id = ? AND interaction_id = ?",
        (judged.status.value, judged.reason, run_id, verdict.interaction_id),
    )
    outcome = SubmissionOutcome(
        submission_id=verdict.interaction_id,
        outcome=Outcome.COMPLETED,
        detail=judging.answer_detail(answer.prompt_id, judged.status, judged.reason),
    )
    submissions.settle(tx, run_id, (outcome,), asked.at)
    prompts.tell(tx, run_id, judged, verdict.tell, asked.at)
    tx.changed.add(run_id)
    return prompts.receipt(verdict.interaction_id, judged, prompt)


def _interaction(tx: Tx, at: tuple[str, str], row: Row) -> Interaction:
    run_id, interaction_id = at
    epoch, attempts, prompt_id = row
    found = tx.one(_UNDECIDED, (interaction_id,))
    name = tx.one("SELECT name FROM moor_run WHERE run_id = ?", (run_id,))
    if found is None or name is None:
        raise Broken(f"{interaction_id} has no admission or no run")
    return Interaction(
        interaction_id=interaction_id,
        epoch=epoch,
        attempts=attempts,
        prompt=prompts.prompt(tx, prompt_id),
        run_name=name[0],
        answer=_answer_of(tx, interaction_id, found),
    )


def _answer_of(tx: Tx, interaction_id: str, row: Row) -> PromptAnswer:
    """Read `_ANSWER`."""
    run_id, source, key, digest, prompt_id, option_id, outcome, principal, name, via, body, note, place, override, aside = row[
        :_ANSWER_WIDTH
    ]
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
