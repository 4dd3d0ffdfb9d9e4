"""What the audit says of prompts and of claimed keys: entries before they are linked; the same for every database.

What lives here: an entry for each thing that leaves one. What does not: the chain (`durable_core/audit.py`), writing it.

Only ids of people stand in it, no names. What was shown is left empty where the prompt's body can't be opened any more. An answer
to a prompt that was settled before leaves no entry: it decided nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from durable_core.codec import decode
from durable_core.errors import DurableError
from durable_core.model import (
    AnswerStatus,
    AuditEntry,
    ClaimedKey,
    KeySettlement,
    Prompt,
    PromptAnswer,
    PromptOutcome,
    PromptSettlement,
    Vote,
)
from durable_core.stores.judging import Judged

SETTLED: Final = "settled"
COUNTED: Final = "counted"
REFUSED: Final = "refused"
OVERRIDDEN: Final = "overridden"
MOVED: Final = "moved"
ASIDE: Final = "aside"
LAPSED: Final = "lapsed"
DONE: Final = "done"
RELEASED: Final = "released"
CLAIM: Final = "claim"
SYSTEM: Final = "system"

_ACTS: Final[Mapping[AnswerStatus, str]] = {
    AnswerStatus.SETTLED: SETTLED,
    AnswerStatus.COUNTED: COUNTED,
    AnswerStatus.REFUSED: REFUSED,
    AnswerStatus.ASIDE: ASIDE,
}


def of_answer(prompt: Prompt, answer: PromptAnswer, judged: Judged, at: int) -> tuple[AuditEntry, ...]:
    """Tell of an answer that was decided; `outcome` is what was answered, also where that was refused."""
    act = _ACTS.get(judged.status)
    if act is None:
        return ()
    reason = judged.reason
    if act == SETTLED and answer.override:
        act, reason = OVERRIDDEN, _reason(answer.note)
    return (
        *(_lapsed(prompt, vote, at) for vote in prompt.votes if vote.principal in judged.lapsed),
        _entry(
            prompt,
            at,
            act,
            principal=answer.principal,
            via=answer.via,
            where=answer.where,
            option_id=answer.option_id,
            outcome=answer.outcome,
            reason=reason,
        ),
    )


def _lapsed(prompt: Prompt, vote: Vote, at: int) -> AuditEntry:
    """Tell of a vote that went, as its giver may not answer any more."""
    return _entry(prompt, at, LAPSED, principal=vote.principal, option_id=vote.option_id, reason="not_allowed")


def of_settlement(prompt: Prompt, item: PromptSettlement, at: int) -> AuditEntry:
    """Tell of a prompt that a commit ended."""
    return _entry(prompt, at, SETTLED, principal=item.by, via=item.via, outcome=item.outcome)


def of_end(prompt: Prompt, reason: str, at: int) -> AuditEntry:
    """Tell of a prompt that ended with its run, for the run's reason."""
    return _entry(prompt, at, SETTLED, outcome=PromptOutcome.CANCELLED, reason=reason)


def of_move(prompt: Prompt, at: int) -> AuditEntry:
    """Tell of a prompt that was handed to others; it says already whom it asks now."""
    return _entry(prompt, at, MOVED)


def of_dropped(prompts: Mapping[str, Prompt], dropped: Iterable[Sequence[Any]], at: int) -> list[AuditEntry]:
    """Tell of answers to these prompts that still waited for a worker when the run ended.

    Each has its prompt's id, its giver, way and place, the option and what it would have come to.
    """
    return [
        _entry(
            prompts[prompt_id],
            at,
            REFUSED,
            principal=principal,
            via=via,
            where=place,
            option_id=option_id,
            outcome=PromptOutcome(outcome),
            reason="ended",
        )
        for prompt_id, principal, via, place, option_id, outcome in sorted(tuple(row) for row in dropped)
        if prompt_id in prompts
    ]


def of_claim(claim: ClaimedKey, key: str, said: KeySettlement, *, creator: str, at: int) -> AuditEntry:
    """Tell of a claimed key that an operator settled; `key` is its stored form."""
    act = DONE if said.done else RELEASED
    return AuditEntry(
        n=0,
        at=at,
        act=act,
        run_id=claim.run_id,
        prompt_id=claim.claim_id,
        kind=CLAIM,
        requester=creator,
        asked=claim.operation_id,
        asked_at=claim.at,
        shown=key,
        principal=said.by,
        via=said.via,
        where=said.where,
        option_id=None,
        outcome=act,
        reason=said.reason,
        prev="",
        hash="",
    )


def _entry(
    prompt: Prompt,
    at: int,
    act: str,
    *,
    principal: str | None = None,
    via: str = SYSTEM,
    where: str = "",
    option_id: str | None = None,
    outcome: PromptOutcome | None = None,
    reason: str | None = None,
) -> AuditEntry:
    return AuditEntry(
        n=0,
        at=at,
        act=act,
        run_id=prompt.run_id,
        prompt_id=prompt.prompt_id,
        kind=prompt.kind,
        requester=prompt.requester,
        asked=prompt.asked,
        asked_at=prompt.created_at,
        shown=sha256(prompt.body).hexdigest() if prompt.body else "",
        principal=principal,
        via=via,
        where=where,
        option_id=option_id,
        outcome=None if outcome is None else outcome.value,
        reason=reason,
        prev="",
        hash="",
    )


def _reason(note: bytes | None) -> str | None:
    """Return the reason in the note of an override; a note that can't be read has none."""
    try:
        match decode(note) if note else None:
            case {"reason": str(reason)}:
                return reason
    except DurableError:
        return None
    return None
