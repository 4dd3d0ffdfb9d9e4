"""The reply that is being written, folded from a session's events.

What lives here: which text a page shows while it streams. What does not: reading events, the message that stays (the platform's).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.console.port import JsonObject
from durable_core.streams import EventView


@dataclass(slots=True)
class LiveFold:
    """One thread's live text. It stays until its message stands in the thread, so that nothing flickers."""

    thread_id: str
    position: int = 0
    _run_id: str | None = None
    _turn_id: str | None = None
    _text: str = ""
    _attempt: int = 1
    _done: bool = False
    _told: tuple[str | None, int] | None = field(default=None)

    def session(self, run_id: str) -> None:
        """Begin again when another session has the thread."""
        if run_id != self._run_id:
            self._run_id, self.position, self._text, self._done = run_id, 0, "", False

    def take(self, event: EventView) -> None:
        """Apply one event; a new attempt voids what an earlier one wrote."""
        self.position = (event.index or 0) + 1
        match event.type:
            case "step.started":
                self._text, self._done, self._attempt = "", False, event.attempt
                self._turn_id = event.data.get("turn_id")
            case "message.appended":
                self._text += str(event.data.get("delta", ""))
            case "message.completed":
                self._done = True
            case "turn.completed" | "turn.failed" | "turn.cancelled" | "session.completed":
                self._done = True
            case _:
                pass

    def changed(self, *, messages_moved: bool) -> JsonObject | None:
        """The live text if it is another than the last one told; None when nothing changed."""
        if self._done and messages_moved:
            self._text = ""
        shown = self._text or None
        if (shown, self._attempt) == self._told or (shown is None and self._told is None):
            return None
        self._told = (shown, self._attempt) if shown is not None else None
        return {
            "kind": "live",
            "thread": self.thread_id,
            "turn_id": self._turn_id,
            "text": shown,
            "attempt": self._attempt,
        }
