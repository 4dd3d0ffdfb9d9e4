"""What readers are told when a session is ended from outside of its turns.

What lives here: the events, and the end of runs that work for it. What does not: turns that end by themselves (bot/turn/).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from bot import formats
from bot.cards import prompt_body
from bot.formats import Kind
from bot.turn.signing import completed_data
from bot.turn.state import Purpose
from durable_core import codec
from durable_core.engine.signals import cancel_admission
from durable_core.errors import NotFound, RunChanged, SessionEnded
from durable_core.model import EventDraft, Prompt, PromptOutcome, Run, RunStatus, SeenOpen
from durable_core.store import Store


async def end_session(store: Store, run: Run, *, reason: str, by: str, note: str | None = None) -> bool:
    """End a session whoever owns it, and stop the runs that work for it; False when it had ended already."""
    for call in await _at_work(store, run):
        child = str(call["child"])
        with contextlib.suppress(NotFound, SessionEnded):
            await store.admit(cancel_admission(child, reason=f"its conversation was ended: {reason}", by=by, key="parent"))
            await store.unstrand(child)
    while True:
        current = await store.run(run.run_id)
        prompts = await store.open_prompts(run.run_id)
        seen = SeenOpen(turn_id=current.turn_id, prompts=frozenset(prompt.prompt_id for prompt in prompts))
        calls = await _at_work(store, current)
        events = [*_stopped(calls, current.turn_id), *ending_events(current, prompts, reason=reason, by=by, note=note)]
        try:
            return await store.end(run.run_id, reason=reason, events=events, seen=seen)
        except RunChanged:  # somebody answered, or a turn went on: readers must not be told otherwise
            continue


async def _at_work(store: Store, run: Run) -> list[dict[str, Any]]:
    """The calls of a session's turn that runs work for, as its last step says."""
    if run.status is not RunStatus.OPEN or run.turn_id is None or run.step_no == 0:
        return []
    steps = await store.steps(run.run_id, start=run.step_no - 1)
    turn = (formats.show(Kind.STEP, steps[-1].output).get("state") or {}).get("turn") if steps else None
    return [one for one in (turn or {}).get("pending") or () if one.get("child")]


def ending_events(run: Run, prompts: Sequence[Prompt], *, reason: str, by: str, note: str | None = None) -> list[EventDraft]:
    """Tell that nobody has to answer any more, that the turn is over, and that the session is."""
    events = [event for prompt in prompts for event in _withdrawn(prompt)]
    if run.turn_id is not None:
        events.append(EventDraft(type="turn.cancelled", body=codec.encode({"turn_id": run.turn_id})))
    data: dict[str, JsonValue] = {"reason": reason, "by": by, "note": note}
    events.append(EventDraft(type="session.completed", body=codec.encode(data)))
    return events


def _stopped(calls: Sequence[dict[str, Any]], turn_id: str | None) -> list[EventDraft]:
    """Tell that runs are waited for no longer, nor whoever they ask."""
    told: list[EventDraft] = []
    for call in calls:
        here: dict[str, JsonValue] = {"turn_id": turn_id, "call_id": str(call["call"]["call_id"])}
        for request in call.get("requests") or ():
            resolution: dict[str, JsonValue] = {
                "request_id": str(request["prompt_id"]),
                "kind": Purpose.QUESTION.value,
                "outcome": "cancelled",
            }
            told.append(EventDraft(type="input.resolved", body=codec.encode({**here, "resolutions": [resolution]})))
        task: dict[str, JsonValue] = {"tool": str(call["call"]["tool"]), "run_id": str(call["child"]), "status": "cancelled"}
        told.append(EventDraft(type="task.settled", body=codec.encode({**here, **task})))
    return told


def _withdrawn(prompt: Prompt) -> list[EventDraft]:
    body = prompt_body(prompt)
    resolution: dict[str, JsonValue] = {"request_id": prompt.prompt_id, "kind": prompt.kind, "outcome": "cancelled"}
    told = EventDraft(type="input.resolved", body=codec.encode({"turn_id": body.get("turn_id"), "resolutions": [resolution]}))
    if prompt.kind != Purpose.SIGN_IN.value:
        return [told]
    data = completed_data(body.get("turn_id"), prompt.prompt_id, body.get("connection"), PromptOutcome.CANCELLED)
    return [EventDraft(type="authorization.completed", body=codec.encode(data)), told]
