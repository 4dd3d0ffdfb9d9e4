"""What readers are told when a session is ended from outside of its turns.

What lives here: the events. What does not: ending (the store does), turns that end by themselves (bot/turn/).
"""

from __future__ import annotations

from pydantic import JsonValue

from bot.cards import prompt_body
from durable_core import codec
from durable_core.model import EventDraft, Prompt, Run
from durable_core.store import Store


async def ending_events(store: Store, run: Run, *, reason: str, by: str, note: str | None = None) -> list[EventDraft]:
    """Tell that nobody has to answer any more, that the turn is over, and that the session is."""
    prompts = await store.open_prompts(run.run_id)
    events = [EventDraft(type="input.resolved", body=codec.encode(_withdrawn(prompt))) for prompt in prompts]
    if run.turn_id is not None:
        events.append(EventDraft(type="turn.cancelled", body=codec.encode({"turn_id": run.turn_id})))
    data: dict[str, JsonValue] = {"reason": reason, "by": by, "note": note}
    events.append(EventDraft(type="session.completed", body=codec.encode(data)))
    return events


def _withdrawn(prompt: Prompt) -> dict[str, JsonValue]:
    resolution: dict[str, JsonValue] = {"request_id": prompt.prompt_id, "kind": prompt.kind, "outcome": "cancelled"}
    return {"turn_id": prompt_body(prompt).get("turn_id"), "resolutions": [resolution]}
