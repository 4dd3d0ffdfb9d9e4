"""An answer that was typed: a message given to a prompt as any other answer is, under the message's own key.

What lives here: giving it, and what became of it. What does not: whether a message is one (bot/turn/), who may (bot/answers.py).
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from bot.answers import Answers, Way
from bot.session.attempts import keep_answer
from bot.session.live import LiveSession
from bot.telling import explain
from bot.turn.actions import Answer
from durable_core.errors import Conflict, ContentGone, NotFound
from durable_core.model import AnswerReceipt
from durable_core.store import Store

SOURCE: Final = "text"


async def give(store: Store, answers: Answers, session: LiveSession, action: Answer) -> dict[str, JsonValue]:
    """Give a message to a prompt as its answer; doing it again is doing it once. What became of it is returned.

    The person is told privately where the answer settles nothing. Raises: LeaseLost, Stranded, Unavailable.
    """
    await keep_answer(store, session, action)
    message = action.message
    body = message.body
    at = (body.channel, body.address) if body.channel is not None and body.address is not None else None
    told: dict[str, JsonValue] = {"request_id": action.prompt_id}
    try:
        receipt = await answers.admit(
            action.prompt_id,
            action.option_id,
            principal=body.author,
            place=body.place,
            way=Way(
                via="text",
                source=SOURCE,
                key=message.submission_id,
                at=at,
                tell_at=at,
                where="" if at is not None else "api",
            ),
            run_id=session.run_id,
            words="" if action.option_id else body.text,
        )
    except (NotFound, ContentGone):
        return {**told, "status": "refused", "reason": "This request is no longer known."}
    except Conflict:  # it was given before its words were redacted
        given = await _given(store, message.submission_id)
        if given is None:
            return {**told, "status": "pending"}
        receipt = given
    reason = explain(receipt)
    return {
        **told,
        "submission_id": receipt.submission_id,
        "status": receipt.status.value,
        **({"reason": reason} if reason else {}),
    }


async def _given(store: Store, key: str) -> AnswerReceipt | None:
    """Return what became of the answer that was given under a key; None while it is pending."""
    sql = "SELECT submission_id FROM moor_admission WHERE source = :source AND key = :key"
    ((submission_id,),) = await store.rows(sql, {"source": SOURCE, "key": key})
    return await store.interaction_result(str(submission_id))
