"""The pending step's attempts: told to readers, kept as far as they came, charged when they fail.

What lives here: what is written between two commits. What does not: the model call (thinking.py), tool calls (calls.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from bot.errors import ModelFailed
from bot.history import ResultItem
from bot.model import ModelReply, reply_to_json
from bot.session.commits import event_draft
from bot.session.gates import shown_actions
from bot.session.live import ANSWER_KEY, REPLY_KEY, LiveSession
from bot.session.private import private_of
from bot.session.replies import calls_of
from bot.turn.actions import Answer
from bot.turn.change import Begun, Draft
from bot.turn.state import Turn
from durable_core import codec
from durable_core.model import EventDraft, Record, RecordKind
from durable_core.retry import RetryPolicy, surely

if TYPE_CHECKING:
    from bot.tools import Tool
    from durable_core.store import Store


async def announce(store: Store, session: LiveSession, turn: Turn, *, reused: bool, deployment: str = "") -> None:
    """Tell readers that an attempt begins, by whose worker, and what it found recorded; it voids what an earlier one streamed."""
    if session.announced:
        return
    claim = session.held.claim
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "step_index": turn.step_index,
        "sequence": session.state.sequence,
    }
    if deployment:
        data["deployment"] = deployment
    if session.attempt > 1 and not session.worked:
        tools: list[JsonValue] = [key.removeprefix("result:") for key in session.records if key.startswith("result:")]
        data["reused"] = {"model": reused, "tools": tools}
        data["previous"] = "killed" if claim.interrupted else "error" if claim.last_error else "released"
    signals = await store.append(session.run_id, session.epoch, (event_draft(Draft(type="step.started", data=data)),))
    session.announced = True
    session.worked = True
    if signals.inbox_seq > session.seen or signals.cancel_pending:
        session.held.changed.set()


def begun(session: LiveSession, turn: Turn) -> Begun:
    """What the pending step had done, for a turn that ends now."""
    reply = session.reply()
    calls = calls_of(turn, reply) if reply is not None else turn.open_calls
    results: dict[str, ResultItem] = {}
    for call in calls:
        result = session.result(call.call_id)
        if result is not None:
            results[call.call_id] = result
    return Begun(
        reply=reply,
        calls=calls,
        results=results,
        started=frozenset(call.call_id for call in calls if session.started(call.call_id)),
        announced=session.announced,
    )


async def keep_reply(store: Store, session: LiveSession, turn: Turn, reply: ModelReply, tools: Mapping[str, Tool]) -> None:
    """Keep a paid reply before any tool starts; a reply without calls is kept by the step's own commit."""
    actions = shown_actions(tools, calls_of(turn, reply))
    body = codec.encode({"reply": reply_to_json(reply), "actions": actions}, limit=codec.MOST)
    data: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": session.state.sequence}
    data |= private_of(session.history, turn)
    event = Draft(type="actions.requested", data=data, refs=(("actions", f"record:{session.step_no}:{REPLY_KEY}#/actions"),))
    await _keep(
        store, session, REPLY_KEY, RecordKind.REPLY, body, input_hash=f"{len(session.history)}", events=(event_draft(event),)
    )


async def keep_answer(store: Store, session: LiveSession, action: Answer) -> None:
    """Keep that a message is taken for an answer, before it is given: it must not be taken for anything else after a crash."""
    body = codec.encode({"seq": action.message.seq, "prompt_id": action.prompt_id, "option_id": action.option_id})
    await _keep(store, session, ANSWER_KEY, RecordKind.STARTED, body)


async def _keep(
    store: Store,
    session: LiveSession,
    key: str,
    kind: RecordKind,
    body: bytes,
    *,
    input_hash: str = "",
    events: tuple[EventDraft, ...] = (),
) -> None:
    await surely(
        lambda: store.record(
            session.run_id,
            session.epoch,
            step_n=session.step_no,
            key=key,
            kind=kind,
            input_hash=input_hash,
            body=body,
            events=events,
        )
    )
    session.records[key] = Record(key=key, kind=kind, input_hash=input_hash, body=body, attempt=session.attempt, at=session.now)


async def charge(store: Store, session: LiveSession, turn: Turn, error: ModelFailed, *, retry: RetryPolicy) -> None:
    """Give the session back to be tried again later; a wait holds no worker."""
    retry_at = await store.now() + retry.delay_ms(session.charged + 1, retry_after=error.retry_after)
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "step_index": turn.step_index,
        "code": error.code,
        "message": error.message,
        "retry_at": retry_at,
    }
    await store.charge(
        session.run_id,
        session.epoch,
        error=f"{error.code}: {error.message}",
        retry_at=retry_at,
        seen=session.seen,
        events=(event_draft(Draft(type="step.failed", data=data)),),
    )
