"""Ending a session by SQL alone: what its readers are told.

What lives here: the events of such an end. What does not: the end itself (the store), a turn's own end (turn/changes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

from bot.cards import prompt_body
from durable_core import codec
from durable_core.model import EventDraft, Prompt

if TYPE_CHECKING:
    from durable_core.store import Store


async def end_events(store: Store, run_id: str, turn_id: str | None, data: dict[str, JsonValue]) -> list[EventDraft]:
    """Return what readers are told when a session ends from outside: nobody has to answer any more, the turn and all is over."""
    prompts = await store.open_prompts(run_id)
    events = [EventDraft(type="input.resolved", body=codec.encode(_withdrawn(prompt))) for prompt in prompts]
    if turn_id is not None:
        events.append(EventDraft(type="turn.cancelled", body=codec.encode({"turn_id": turn_id})))
    return [*events, EventDraft(type="session.completed", body=codec.encode(data))]


def _withdrawn(prompt: Prompt) -> dict[str, JsonValue]:
    resolution: dict[str, JsonValue] = {"request_id": prompt.prompt_id, "kind": prompt.kind, "outcome": "cancelled"}
    return {"turn_id": prompt_body(prompt).get("turn_id"), "resolutions": [resolution]}
