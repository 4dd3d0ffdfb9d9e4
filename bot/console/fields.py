"""Reading fields of events, which any version may have written.

What lives here: small pure readers for the timeline. What does not: folding (timeline.py), words of rows (rows.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bot.display import within

if TYPE_CHECKING:
    from bot.console.port import JsonObject


def waiting_for(request: JsonObject, kind: str) -> str:
    """Say what a request waits for."""
    who = request.get("waiting_for") or request.get("who")
    if isinstance(who, str) and who:
        return f"Waiting for {within(who)}"
    words = {
        "approval": "approval",
        "question": "an answer",
        "sign-in": "sign-in",
        "session-limit": "a go-ahead",
        "rerun": "a go-ahead",
    }
    return f"Waiting for {words.get(kind, 'an answer')}"


def request_key(request: JsonObject) -> str:
    """Return what a request is known by."""
    return str(request.get("request_id") or request.get("challenge_id") or request.get("name") or "")


def who(resolution: JsonObject) -> str:
    """Name who answered; empty where nobody is known."""
    response = resolution.get("response") or {}
    who = (
        resolution.get("responder") or resolution.get("by") or (response.get("responder") if isinstance(response, dict) else None)
    )
    if isinstance(who, dict):
        who = who.get("name") or who.get("id")
    return str(who).rpartition(":")[2].capitalize() if who else ""


def join(names: list[str]) -> str:
    """Write names in a row, each once."""
    return ", ".join(dict.fromkeys(names)) or "nothing"


def moment(value: object, fallback: int) -> int:
    """Read a time in ms or ISO-8601."""
    if isinstance(value, bool):
        return fallback
    if isinstance(value, int | float):
        return int(value)
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except ValueError:
            return fallback
    return fallback
