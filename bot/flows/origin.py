"""Where a workflow run comes from: the conversation and the call that started it.

What lives here: the value, its JSON, and how a step reads it. What does not: starting runs (begin.py), showing them (surface.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from bot.principal import Principal
from durable_core.context import step_context


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The session and the call that a run was started by; it runs as ``requester``.

    ``channel`` and ``address`` are where the answer goes; None for a session that is only read.
    """

    session_id: str
    turn_id: str
    call_id: str
    tool: str
    requester: Principal
    channel: str | None = None
    address: str | None = None
    agent: str = ""
    direct: bool = False
    """It is a place for the requester alone."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return plain JSON."""
        return {
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "call_id": self.call_id,
            "tool": self.tool,
            "requester": self.requester.to_json(),
            "channel": self.channel,
            "address": self.address,
            "agent": self.agent,
            "direct": self.direct,
        }


def read_origin(stored: Any) -> Conversation | None:
    """Read what `to_json` wrote; None for a run that no conversation started."""
    if not isinstance(stored, dict):
        return None
    return Conversation(
        session_id=str(stored["session_id"]),
        turn_id=str(stored["turn_id"]),
        call_id=str(stored["call_id"]),
        tool=str(stored["tool"]),
        requester=Principal.from_json(stored["requester"]),
        channel=stored["channel"],
        address=stored["address"],
        agent=str(stored.get("agent") or ""),
        direct=bool(stored.get("direct", False)),
    )


def conversation() -> Conversation | None:
    """Return, within a step, the conversation that the run was started by; None for a run that was started otherwise.

    Raises:
        RuntimeError: it is called outside a step.
    """
    return read_origin(step_context().origin)
