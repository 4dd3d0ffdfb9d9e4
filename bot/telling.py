"""What a person is told, alone, of an answer that settled nothing: one true sentence.

What lives here: the words, and the delivery that will bear them. What does not: deciding (answers.py), sending (egress.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from pydantic import JsonValue

from bot.cards import prompt_body, settled_words
from bot.display import within
from bot.leftovers import DORMANT
from bot.principal import Principal
from durable_core import codec
from durable_core.ids import new_id
from durable_core.model import AnswerReceipt, AnswerStatus, OutboxDraft, Prompt, PromptOutcome

NOTHING_DONE: Final = "Nothing was done with your answer."
ELSEWHERE: Final = "elsewhere"
ENDED: Final = "ended"
UNKNOWN_AUTHOR: Final = "unknown_author"
UNKNOWN_OPTION: Final = "unknown_option"
NOT_ALLOWED: Final = "not_allowed"
NOT_YOURS: Final = "not_yours"
NO_LINK_HERE: Final = "no_link_here"
NO_WORDS: Final = "no_words"
UNCHANGED_OVERRIDE: Final = "unchanged_override"
TOO_OFTEN: Final = "too_often"

REASONS: Final[dict[str, str]] = {
    NOT_YOURS: "Only the person who asked may answer this.",
    NOT_ALLOWED: "You may not answer this.",
    UNKNOWN_AUTHOR: "Who you are could not be found out just now. Try again later.",
    ELSEWHERE: "This request is not known here. Answer it where it was asked.",
    "moved": f"This request was handed on before your answer was looked at. {NOTHING_DONE}",
    "expired": f"This request has expired. {NOTHING_DONE}",
    "cancelled": f"This request was cancelled. {NOTHING_DONE}",
    ENDED: f"This conversation has ended. {NOTHING_DONE}",
    "session_stranded": "This conversation can't be gone on with in this version. Write a message to begin anew.",
    "session_dormant": DORMANT,
    TOO_OFTEN: f"That was too often within a minute. {NOTHING_DONE} Wait a minute, then try again.",
    UNKNOWN_OPTION: "That is not one of the options of this request.",
    NO_LINK_HERE: "A link is given where it was asked for, or by POST /v1/prompts/{request_id}/connect.",
    NO_WORDS: "Write your answer first: it was empty.",
    UNCHANGED_OVERRIDE: "An override approves what was shown: nothing can be changed with it.",
}
_BY_NOBODY: Final = frozenset({PromptOutcome.EXPIRED, PromptOutcome.CANCELLED, PromptOutcome.IGNORED})


def explain(receipt: AnswerReceipt, *, said: Callable[[str], str] = str) -> str | None:
    """Say in words, for the person alone, what became of an answer that settled nothing; ``said`` writes names of people."""
    prompt = receipt.prompt
    match receipt.status:
        case AnswerStatus.SETTLED | AnswerStatus.ASIDE:
            return None
        case AnswerStatus.ALREADY_SETTLED if prompt is not None:
            return _settled_before(prompt, said)
        case AnswerStatus.COUNTED if prompt is not None:
            return _counted(prompt, said)
    if prompt is not None and receipt.reason == "already_voted":
        return f"You approved this before, and each person counts once. {_missing(prompt)}"
    if prompt is not None and (receipt.reason == NOT_ALLOWED or (receipt.reason == NOT_YOURS and prompt.answerers)):
        return f"Only {said(_asked(prompt))} may answer this."
    return REASONS.get(receipt.reason or "", receipt.reason or None)


def explain_all(receipts: Sequence[AnswerReceipt], *, said: Callable[[str], str] = str) -> str | None:
    """Say in one what became of answers to all questions of a card; None where each of them settled its question."""
    settled = sum(receipt.status is AnswerStatus.SETTLED for receipt in receipts)
    told: dict[str, int] = {}
    for receipt in receipts:
        words = explain(receipt, said=said) or ("Not decided yet." if receipt.status is AnswerStatus.PENDING else None)
        if words is not None:
            told[words] = told.get(words, 0) + 1
    if not told:
        return None
    if len(receipts) == 1:
        return next(iter(told))
    lines = [f"{settled} of {len(receipts)} settled."] if settled else []
    return " ".join([*lines, *(words if count == len(receipts) else f"{count}: {words}" for words, count in told.items())])


def tell(at: tuple[str, str] | None, submissions: Sequence[str], principal: Principal) -> OutboxDraft | None:
    """What the person is owed, alone, when an answer settles nothing; the words are found when it is sent.

    The answers of one click name the same delivery: it is owed once.
    """
    if at is None or principal.anonymous:
        return None
    body: dict[str, JsonValue] = {"kind": "answer", "submission_id": submissions[0], "private_to": principal.id}
    delivery_id = new_id("dlv")
    if len(submissions) > 1:
        body["submissions"] = list[JsonValue](submissions)
        delivery_id = f"dlv_{sha256(':'.join(submissions).encode()).hexdigest()[:26]}"
    return OutboxDraft(delivery_id=delivery_id, channel=at[0], address=at[1], body=codec.encode(body))


def link(prompt: Prompt, at: tuple[str, str], principal: Principal) -> OutboxDraft:
    """What somebody is owed, alone, who asked for the link of a sign-in; it is made when it is sent.

    The delivery names no prompt: it is no copy of the card, which is redrawn when the prompt is settled.
    """
    body: dict[str, JsonValue] = {"kind": "connect", "prompt_id": prompt.prompt_id, "private_to": principal.id}
    return OutboxDraft(delivery_id=new_id("dlv"), channel=at[0], address=at[1], body=codec.encode(body))


def _settled_before(prompt: Prompt, said: Callable[[str], str]) -> str:
    words = said(settled_words(prompt, prompt_body(prompt))).removesuffix(".")
    return f"{words}. {NOTHING_DONE}" if prompt.outcome in _BY_NOBODY else f"This was settled before: {words}."


def _counted(prompt: Prompt, said: Callable[[str], str]) -> str:
    if prompt.outcome is not None:
        return f"Your answer was counted. {said(settled_words(prompt, prompt_body(prompt))).removesuffix('.')}."
    return f"Counted: {len(prompt.votes)} of {prompt.quorum}. {_missing(prompt)}"


def _missing(prompt: Prompt) -> str:
    missing = prompt.quorum - len(prompt.votes)
    return f"{missing} more {'person has' if missing == 1 else 'people have'} to approve."


def _asked(prompt: Prompt) -> str:
    """Name who may answer by now."""
    return within(
        str((prompt.asked if prompt.level else "") or prompt_body(prompt).get("waiting_for") or prompt.asked or "others")
    )
