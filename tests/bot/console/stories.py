"""Event lists that tell one story each, for the tests of the timeline and for looking at the page.

What lives here: events as the engine writes them. What does not: expectations.
"""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
Line = tuple[int, str, JsonObject, int]


def told(start: int, *lines: Line) -> list[JsonObject]:
    """Write events from (offset ms, type, data, attempt) lines."""
    return [
        {"type": kind, "data": data, "meta": {"id": f"evt_{index}", "index": index, "at": start + offset, "attempt": attempt}}
        for index, (offset, kind, data, attempt) in enumerate(lines)
    ]


def call(call_id: str, tool: str) -> JsonObject:
    """Return one requested action."""
    return {"call_id": call_id, "tool": tool, "input": {}}


def killed_then_parked(start: int, turn: str = "turn_2") -> list[JsonObject]:
    """Tell of a worker killed in a tool, a second attempt, and a wait for Finance."""
    prompt = {"request_id": "prm_1", "kind": "approval", "waiting_for": "Finance", "action": call("2.0.1", "refund_charge")}
    again = {
        "step_index": 0,
        "attempt": 2,
        "previous": "killed",
        "previous_at": start + 1300,
        "reused": {"model": True, "tools": []},
    }
    return told(
        start,
        (0, "turn.started", {"turn_id": turn}, 1),
        (1, "message.received", {"message": "refund 140 for ch_1"}, 1),
        (2, "step.started", {"step_index": 0}, 1),
        (414, "actions.requested", {"actions": [call("2.0.0", "find_charge")]}, 1),
        (2300, "step.started", again, 2),
        (2310, "actions.requested", {"actions": [call("2.0.0", "find_charge")]}, 2),
        (3410, "action.result", {"call_id": "2.0.0", "status": "completed"}, 2),
        (3420, "step.completed", {"step_index": 0}, 2),
        (3430, "step.started", {"step_index": 1}, 1),
        (3900, "actions.requested", {"actions": [call("2.0.1", "refund_charge")]}, 1),
        (3910, "input.requested", {"requests": [prompt]}, 1),
        (3920, "turn.waiting", {"on": "input"}, 1),
    )


def approved(start: int) -> list[JsonObject]:
    """Tell of the same turn, approved by Farah four minutes later, to its end."""
    later = 244_000
    return killed_then_parked(start) + told(
        start,
        (later, "input.resolved", {"request_id": "prm_1", "outcome": "approved", "responder": "console:farah"}, 1),
        (later + 10, "step.started", {"step_index": 2}, 1),
        (later + 260, "action.result", {"call_id": "2.0.1", "status": "completed"}, 1),
        (later + 700, "message.appended", {"message_delta": "Done"}, 1),
        (later + 900, "message.completed", {"message": "Done."}, 1),
        (later + 910, "step.completed", {"step_index": 2}, 1),
        (later + 920, "turn.completed", {"turn_id": "turn_2"}, 1),
    )


def killed_in_model(start: int) -> list[JsonObject]:
    """Tell of a worker killed while the model wrote; nothing was recorded."""
    return told(
        start,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (300, "message.appended", {"message_delta": "one two"}, 1),
        (1500, "step.started", {"step_index": 0, "attempt": 2, "previous": "killed"}, 2),
        (1800, "message.appended", {"message_delta": "one two three"}, 2),
        (2500, "message.completed", {"message": "one two three"}, 2),
        (2510, "step.completed", {"step_index": 0}, 2),
        (2520, "turn.completed", {"turn_id": "turn_0"}, 2),
    )


def fails_twice(start: int) -> list[JsonObject]:
    """Tell of a model that fails twice before it answers."""
    return told(
        start,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (100, "step.failed", {"code": "model_unavailable", "message": "The model answered 503."}, 1),
        (700, "step.started", {"step_index": 0, "attempt": 2, "previous": "error"}, 2),
        (800, "step.failed", {"code": "model_unavailable", "message": "The model answered 503."}, 2),
        (2000, "step.started", {"step_index": 0, "attempt": 3, "previous": "error"}, 3),
        (2400, "message.completed", {"message": "Here I am."}, 3),
        (2410, "step.completed", {"step_index": 0}, 3),
        (2420, "turn.completed", {"turn_id": "turn_0"}, 3),
    )


def recorded_before_the_kill(start: int) -> list[JsonObject]:
    """Tell of a tool whose result was recorded though its event was never written."""
    again = {"step_index": 0, "attempt": 2, "previous": "killed", "reused": {"model": True, "tools": ["0.0.0"]}}
    return told(
        start,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (200, "actions.requested", {"actions": [call("0.0.0", "slow")]}, 1),
        (3000, "step.started", again, 2),
        (3001, "actions.requested", {"actions": [call("0.0.0", "slow")]}, 2),
        (3002, "action.result", {"call_id": "0.0.0", "status": "completed", "reused": True}, 2),
        (3003, "step.completed", {"step_index": 0}, 2),
    )
