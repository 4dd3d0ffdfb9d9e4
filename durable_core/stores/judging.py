"""Judging answers: what comes of one, by what its prompt, its run and the votes so far say; the same for every database.

What lives here: those decisions. What does not: reading what they are made of, and doing what they say (`prompts.py` of a store).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from durable_core.codec import decode, encode
from durable_core.model import AnswerPolicy, AnswerStatus, EventDraft, Prompt, PromptAnswer, PromptOutcome, Verdict, Vote

NOT_YOURS: Final = "not_yours"
ALREADY_VOTED: Final = "already_voted"
MOVED: Final = "moved"
TOO_OFTEN: Final = "too_often"
LATELY_MS: Final = 60_000
"""Within which it is counted how often somebody answers in vain."""
CHANGING: Final = frozenset({AnswerStatus.SETTLED, AnswerStatus.COUNTED})
"""The prompt is another one afterwards, and its cards show it."""
IDLE: Final = frozenset({AnswerStatus.REFUSED, AnswerStatus.ALREADY_SETTLED, AnswerStatus.ASIDE})
"""Whoever answered so changed nothing."""
TOLD: Final = IDLE | {AnswerStatus.COUNTED}
"""Whoever answered so is owed a word."""
_YES: Final = frozenset({PromptOutcome.APPROVED, PromptOutcome.ANSWERED})


_BOUNDED: Final = frozenset({AnswerStatus.REFUSED, AnswerStatus.ASIDE, AnswerStatus.PENDING})


class Asked(NamedTuple):
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


class Judged(NamedTuple):
    """What comes of an answer, and why where it is refused."""

    status: AnswerStatus
    reason: str | None = None
    lapsed: tuple[str, ...] = ()
    """Whose earlier votes don't count any more, and go."""


_PENDING: Final = Judged(AnswerStatus.PENDING)
REFUSED_UNSEEN: Final = Judged(AnswerStatus.REFUSED, TOO_OFTEN)
"""Of an answer of which nothing is kept."""


def on_arrival(asked: Asked, answer: PromptAnswer) -> Judged:
    """Judge an answer as it comes in; one that a worker has to look at is pending."""
    if answer.refused is not None:
        return Judged(AnswerStatus.REFUSED, answer.refused)
    found = _by_state(asked, answer)
    if found is not None:
        return found
    if answer.judge or (asked.prompt.policy is AnswerPolicy.FUNCTION and not answer.override):
        return _PENDING
    return _weighed(asked.prompt, answer)


def bound(judged: Judged, answer: PromptAnswer) -> int | None:
    """Return how many like it are taken within a while; None for one that changes something, or is taken whenever it comes."""
    return answer.most if judged.status in _BOUNDED else None


def by_worker(asked: Asked, answer: PromptAnswer, verdict: Verdict) -> Judged:
    """Judge an answer that a worker has looked at, by what is true by now."""
    if not verdict.allowed:
        return Judged(AnswerStatus.REFUSED, verdict.reason or NOT_YOURS)
    found = _by_state(asked, answer)
    if found is None and verdict.level not in (None, asked.prompt.level):
        return Judged(AnswerStatus.REFUSED, MOVED)
    return found or _weighed(asked.prompt, answer, verdict.lapsed)


def leaves_vote(prompt: Prompt, answer: PromptAnswer) -> bool:
    """Tell whether an answer that counts or settles is kept as a vote: of a prompt for one person, `settled_by` says it all."""
    return prompt.quorum > 1 and answer.outcome in _YES and not answer.override and not answer.aside


def standing(prompt: Prompt, lapsed: Collection[str]) -> Prompt:
    """Return a prompt without the votes that don't count any more."""
    return replace(prompt, votes=tuple(vote for vote in prompt.votes if vote.principal not in lapsed)) if lapsed else prompt


def voted(prompt: Prompt, answer: PromptAnswer, at: int) -> Prompt:
    """Return a prompt with one vote more."""
    vote = Vote(principal=answer.principal, name=answer.name, option_id=answer.option_id, via=answer.via, at=at)
    return replace(prompt, votes=in_order((*prompt.votes, vote)))


def counted_as(before: Prompt, drafts: tuple[EventDraft, ...]) -> tuple[EventDraft, ...]:
    """Return the event for the place that a vote takes; where there are fewer, the last."""
    return (drafts[min(len(before.votes), len(drafts) - 1)],) if drafts else ()


def in_order(votes: Iterable[Vote]) -> tuple[Vote, ...]:
    """Return votes with the first ones first; of one millisecond, by who gave them."""
    return tuple(sorted(votes, key=lambda vote: (vote.at, vote.principal)))


def settled(prompt: Prompt, answer: PromptAnswer, at: int) -> Prompt:
    """Return a prompt as an answer leaves it that settles it."""
    return replace(
        prompt,
        outcome=answer.outcome,
        option_id=answer.option_id,
        settled_by=answer.principal,
        settled_name=answer.name,
        settled_via=answer.via,
        settled_at=at,
        note=answer.note,
    )


def card(prompt: Prompt) -> str:
    """Return the prompt whose id the posted copies bear."""
    return prompt.group or prompt.prompt_id


def _by_state(asked: Asked, answer: PromptAnswer) -> Judged | None:
    """Judge by where the prompt stands and whom it names; None where nothing is in the way."""
    reason = asked.refusal()
    if reason is not None:
        return Judged(AnswerStatus.REFUSED, reason)
    if asked.prompt.outcome is not None:
        return Judged(AnswerStatus.ALREADY_SETTLED)
    if answer.override:
        return None
    if not _is_named(asked.prompt, answer.principal):
        return Judged(AnswerStatus.REFUSED, NOT_YOURS)
    if answer.aside:
        return None
    # who has approved may still deny: a yes that was a mistake must not stand until others have joined it
    if answer.outcome in _YES and any(vote.principal == answer.principal for vote in asked.prompt.votes):
        return Judged(AnswerStatus.REFUSED, ALREADY_VOTED)
    return None


def _is_named(prompt: Prompt, principal: str) -> bool:
    match prompt.policy:
        case AnswerPolicy.REQUESTER:
            return principal == prompt.requester
        case AnswerPolicy.LISTED:
            return principal in prompt.answerers
        case AnswerPolicy.FUNCTION:
            return True


def _weighed(prompt: Prompt, answer: PromptAnswer, lapsed: Collection[str] = ()) -> Judged:
    """Judge an answer of somebody who may: whether more have to say the same, of those who may answer by now."""
    if answer.aside:
        return Judged(AnswerStatus.ASIDE)
    if not leaves_vote(prompt, answer):
        return Judged(AnswerStatus.SETTLED)
    gone = tuple(who for who in (vote.principal for vote in prompt.votes) if who in lapsed or not _is_named(prompt, who))
    more = len(prompt.votes) - len(gone) + 1 < prompt.quorum
    return Judged(AnswerStatus.COUNTED if more else AnswerStatus.SETTLED, lapsed=gone)


class AnswerResult(NamedTuple):
    """What is kept of an answer beside its submission."""

    status: AnswerStatus
    reason: str | None
    prompt_id: str | None


def answer_detail(prompt_id: str, status: AnswerStatus, reason: str | None) -> bytes:
    """Write what became of an answer, for its submission."""
    return encode({"status": status.value, "reason": reason, "prompt_id": prompt_id})


def answer_result(detail: bytes | None) -> AnswerResult:
    """Read what became of an answer; one whose run ended first says so."""
    match decode(detail) if detail else None:
        case {"status": str(status), "reason": str(reason), "prompt_id": str(prompt_id)}:
            return AnswerResult(AnswerStatus(status), reason, prompt_id)
        case {"status": str(status), "prompt_id": str(prompt_id)}:
            return AnswerResult(AnswerStatus(status), None, prompt_id)
        case _:
            return AnswerResult(AnswerStatus.REFUSED, "ended", None)
