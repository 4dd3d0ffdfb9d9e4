"""The rows of the timeline and the words in them.

What lives here: turns and rows as values, durations and sentences. What does not: reading events (timeline.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.moved import MarkKind

if TYPE_CHECKING:
    from datetime import tzinfo

    from bot.console.port import JsonObject
    from bot.moved import Mark

_ENDINGS = {
    "killed": "worker killed",
    "crash": "worker killed",
    "error": "failed, tried again",
    "timeout": "took too long, tried again",
    "stalled": "went silent, tried again",
    "lease_lost": "another worker took over",
    "deploy": "worker restarted for a deploy",
    "stopped": "worker stopped",
    "released": "handed over by its worker",
}
_OUTCOMES = {"authorized": "done", "answered": "answered", "ignored": "left unanswered", "invalid": "refused"}
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


class RowState(StrEnum):
    """What became of a row."""

    RECORDED = "recorded"
    CUT = "cut"
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


class RowKind(StrEnum):
    """What a row stands for."""

    MODEL = "model"
    TOOL = "tool"
    WAIT = "wait"
    ATTEMPT = "attempt"
    MARK = "mark"


OPEN = frozenset({RowState.RUNNING, RowState.WAITING})
_NO_WORK = frozenset({RowKind.WAIT, RowKind.MARK})
_NO_STEP = frozenset({RowKind.ATTEMPT, RowKind.MARK})


@dataclass(slots=True)
class Row:
    """One knob: a model call, a tool call or a wait, in one attempt."""

    index: int
    kind: RowKind
    name: str
    attempt: int
    started_at: int
    key: str = ""
    state: RowState = RowState.RUNNING
    ended_at: int | None = None
    notes: list[str] = field(default_factory=list)
    numbered: bool = False
    by: str = ""
    """The deployment of whoever was at work."""

    def end(self, at: int, state: RowState, note: str = "") -> None:
        """Close the row; a second end changes nothing."""
        if self.state in OPEN:
            self.state, self.ended_at = state, at
            self.say(note)

    def say(self, note: str) -> None:
        """Add a note, once."""
        if note and note not in self.notes:
            self.notes.append(note)

    @property
    def label(self) -> str:
        """Name the row, with its attempt where there are several."""
        return f"{self.name}, attempt {self.attempt}" if self.numbered else self.name

    def duration(self, now: int) -> int:
        """Measure it, up to now while it is open."""
        return max(0, (self.ended_at if self.ended_at is not None else now) - self.started_at)


@dataclass(slots=True)
class Turn:
    """One turn with its rows, in order."""

    id: str
    started_at: int
    number: int
    state: str = "running"
    ended_at: int | None = None
    message: str = ""
    error: str = ""
    attempts: int = 1
    rows: list[Row] = field(default_factory=list)


def marked(mark: Mark) -> Row:
    """Make a row of what was moved."""
    if mark.kind is MarkKind.CLOCK:
        name, note = f"Clock moved on {span(mark.to)}", "what was due by then came due"
    else:
        name, note = f"v{mark.to} deployed", f"v{mark.to - 1} finished its work or handed it over"
    return Row(-1, RowKind.MARK, name, 1, mark.at, key=mark.kind, state=RowState.RECORDED, ended_at=mark.at, notes=[note])


def render(turn: Turn, *, now: int, deployments: bool = False) -> JsonObject:
    """Show a turn as the page reads it; with `deployments`, whose each row is."""
    working = sum(row.duration(now) for row in turn.rows if row.kind not in _NO_WORK) or 1
    return {
        "turn_id": turn.id,
        "number": turn.number,
        "state": turn.state,
        "message": turn.message,
        "started_at": turn.started_at,
        "ended_at": turn.ended_at,
        "summary": _summary(turn, now),
        "steps": [_render_row(row, now, working) | {"by": row.by if deployments else ""} for row in turn.rows],
    }


def _render_row(row: Row, now: int, working: int) -> JsonObject:
    duration = row.duration(now)
    return {
        "index": row.index,
        "kind": row.kind.value,
        "label": row.label,
        "state": row.state.value,
        "attempt": row.attempt,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "duration_ms": duration,
        "note": ", ".join(row.notes),
        "share": 0.0 if row.kind in _NO_WORK else round(min(1.0, duration / working), 4),
    }


def _summary(turn: Turn, now: int) -> str:
    distinct = len({(row.index, row.kind, row.key) for row in turn.rows if row.kind not in _NO_STEP})
    words = [f"{distinct} {'step' if distinct == 1 else 'steps'}"]
    if turn.attempts > 1:
        words.append(f"{turn.attempts} attempts")
    spent = span(max(0, (turn.ended_at if turn.ended_at is not None else now) - turn.started_at))
    waiting = [row for row in turn.rows if row.state is RowState.WAITING]
    match turn.state:
        case "completed":
            words.append(f"done in {spent}")
        case "failed":
            words.append(f"failed after {spent}" + (f": {turn.error}" if turn.error else ""))
        case "cancelled":
            words.append(f"cancelled after {spent}")
        case "waiting":
            since = min((row.started_at for row in waiting), default=now)
            # its row counts the seconds, so these words don't have to
            words += [f"waiting {span(now - since)}" if now - since >= _MINUTE else "waiting", "nothing held in memory"]
        case _:
            words.append("running")
    return ", ".join(words)


def span(ms: int) -> str:
    """Write a duration in the shortest honest form."""
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE} min"
    if ms < _DAY:
        return f"{ms // _HOUR} h {ms % _HOUR // _MINUTE} min"
    days = ms // _DAY
    return f"{days} {'day' if days == 1 else 'days'}"


def ending(previous: str, at: int, zone: tzinfo | None, *, exact: bool = True) -> str:
    """Say how an attempt ended and when, or, not `exact`, before when."""
    return f"{_ENDINGS.get(previous, 'worker lost')} {'at' if exact else 'before'} {clock_time(at, zone)}"


def settled(outcome: str, who: str) -> str:
    """Say how a prompt was settled, and by whom if that is known."""
    words = _OUTCOMES.get(outcome, outcome)
    return f"{words} by {who}" if who else words


def clock_time(at: int, zone: tzinfo | None) -> str:
    """Write a moment as the clock shows it."""
    return f"{datetime.fromtimestamp(at / _SECOND, zone or UTC):%H:%M:%S}"
