"""What readers of a session's events are told of an answer, and who gave it, as it is stored.

What lives here: events and values, pure. What does not: admitting answers (answers.py), words for people (telling.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from bot.cards import prompt_body
from bot.principal import Principal
from bot.turn.signing import completed_data
from bot.turn.state import Purpose
from channels.events import Place
from durable_core import codec
from durable_core.model import EventDraft, Prompt, PromptOutcome


def settled_events(
    prompt: Prompt, principal: Principal, outcome: PromptOutcome, *, reason: str | None = None
) -> tuple[EventDraft, ...]:
    """The events that tell readers who settled a prompt and how; an override with its reason."""
    body = prompt_body(prompt)
    turn_id = body.get("turn_id")
    here: dict[str, JsonValue] = {"turn_id": turn_id, "request_id": prompt.prompt_id, "kind": prompt.kind}
    override: dict[str, JsonValue] = {} if reason is None else {"override": reason}
    resolution: dict[str, JsonValue] = {
        "request_id": prompt.prompt_id,
        "kind": prompt.kind,
        "outcome": outcome.value,
        "responder": {"id": principal.id, "name": shown_name(principal, body)},
        **override,
    }
    if prompt.kind == Purpose.SIGN_IN.value:
        signed_in = completed_data(turn_id, prompt.prompt_id, body.get("connection"), outcome) | {"responder": principal.id}
        completed = EventDraft(type="authorization.completed", body=codec.encode({**signed_in, **override}))
        return completed, _resolved_event(turn_id, resolution)
    settled = {**here, "responder": principal.id, "outcome": outcome.value, **override}
    return (
        EventDraft(type="approval.settled", body=codec.encode(settled)),
        _resolved_event(turn_id, resolution),
    )


def _resolved_event(turn_id: JsonValue, resolution: dict[str, JsonValue]) -> EventDraft:
    return EventDraft(type="input.resolved", body=codec.encode({"turn_id": turn_id, "resolutions": [resolution]}))


def counted_events(prompt: Prompt, principal: Principal) -> tuple[EventDraft, ...]:
    """The event that an answer counts, for each place that it may have among the votes."""
    body = prompt_body(prompt)
    about: dict[str, JsonValue] = {
        "turn_id": body.get("turn_id"),
        "request_id": prompt.prompt_id,
        "kind": prompt.kind,
        "responder": {"id": principal.id, "name": shown_name(principal, body)},
        "quorum": prompt.quorum,
    }
    return tuple(
        EventDraft(type="approval.candidate", body=codec.encode({**about, "count": count})) for count in range(1, prompt.quorum)
    )


def shown_name(principal: Principal, body: Mapping[str, Any]) -> str:
    """The name that goes on the card: of the requester the one that the conversation knows."""
    requester = body.get("requester") or {}
    return str(requester["name"]) if principal.id == requester.get("id") else principal.name


def giver_json(
    principal: Principal, place: Place, tell_at: tuple[str, str] | None, together: Sequence[str] = ()
) -> dict[str, JsonValue]:
    """Turn who answered, and where, into what an interaction keeps; ``together`` are all answers of the same click."""
    where: dict[str, JsonValue] = {"kind": place.kind, "shared_outside": place.shared_outside, "title": place.title}
    told: dict[str, JsonValue] = {"together": list[JsonValue](together)} if together else {}
    at: JsonValue = list[JsonValue](tell_at) if tell_at is not None else None
    return {"principal": principal.to_json(), "place": where, "tell_at": at, **told}


def giver(stored: Mapping[str, Any]) -> tuple[Principal, Place, tuple[str, str] | None, tuple[str, ...]]:
    """Read what `giver_json` wrote."""
    where, at = stored["place"], stored["tell_at"]
    place = Place(where["kind"], where["shared_outside"], title=where["title"])
    told_at = None if at is None else (str(at[0]), str(at[1]))
    return Principal.from_json(stored["principal"]), place, told_at, tuple(map(str, stored.get("together") or ()))
