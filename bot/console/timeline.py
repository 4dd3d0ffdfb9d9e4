"""What happened in a thread, told from its events.

What lives here: a pure fold of events into turns and rows. What does not: their words (rows.py), reading events, HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.console.fields import join, moment, request_key, waiting_for, who
from bot.console.rows import OPEN, Row, RowKind, RowState, Turn, ending, marked, render, settled
from bot.moved import MarkKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from bot.console.port import JsonObject
    from bot.moved import Mark

_TURN_ENDS = {"turn.completed": RowState.RECORDED, "turn.failed": RowState.FAILED, "turn.cancelled": RowState.CUT}
_KINDS = {"approval": "approval", "sign-in": "sign-in", "session-limit": "a go-ahead", "rerun": "a go-ahead"}
_RESULTS = {"failed": "failed", "rejected": "not run: denied", "cancelled": "cancelled", "expired": "not run: expired"}


def timeline(
    events: Sequence[JsonObject], *, now: int, zone: tzinfo | None = None, marks: Sequence[Mark] = ()
) -> list[JsonObject]:
    """Fold a session's events into its turns, oldest first, each with its steps.

    `now` (ms) measures what is still open; `zone` is used for times of day, UTC if None. Unknown event types are passed over.
    `marks`, oldest first, are what was moved meanwhile: each stands in the turn that it came in, or came after. Once there was
    more than one deployment, each row says which one it is of.
    """
    fold = _Fold(zone=zone)
    ahead = list(marks)
    for event in events:
        at = moment(event.get("meta", {}).get("at"), 0)
        while ahead and ahead[0].at <= at:
            fold.mark(ahead.pop(0))
        fold.take(event)
    for mark in ahead:
        fold.mark(mark)
    several = len({row.by for turn in fold.turns for row in turn.rows if row.by}) > 1
    told = several or any(mark.kind is MarkKind.DEPLOY for mark in marks)
    return [render(turn, now=now, deployments=told) for turn in fold.turns]


@dataclass(slots=True)
class _Fold:
    """The turns so far and the step that is open."""

    zone: tzinfo | None
    turns: list[Turn] = field(default_factory=list)
    index: int = 0
    attempt: int = 1
    by: str = ""
    """The deployment of the worker that the step is with."""
    step_started_at: int = 0
    last_at: int = 0
    in_step: bool = False
    reused_model: bool = False
    reused_tools: frozenset[str] = frozenset()
    tools: dict[str, str] = field(default_factory=dict)
    approved: list[str] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    """Calls by the request that they wait for."""
    resumed: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    def take(self, event: JsonObject) -> None:
        """Apply one event."""
        kind = str(event.get("type", ""))
        data: JsonObject = event.get("data") or {}
        at = moment(event.get("meta", {}).get("at"), self.last_at)
        if kind == "turn.started" or (kind == "step.started" and not self.turns):
            self._start_turn(data, at)
        if not self.turns:
            return
        if kind in _TURN_ENDS:
            self._end_turn(kind, data, at)
        elif kind == "step.started":
            self._start_step(data, event.get("meta", {}), at)
        else:
            self._apply(kind, data, at)
        self.last_at = at

    def _apply(self, kind: str, data: JsonObject, at: int) -> None:
        match kind:
            case "message.received":
                self.turn.message = self.turn.message or str(data.get("message", ""))
            case "message.appended" | "reasoning.appended":
                self._model_row(at)
            case "actions.requested":
                self._request(data.get("actions") or [], at)
            case "action.result":
                self._result(data, at)
            case "task.started" | "action.partial":
                self._run_apart(kind, data)
            case "message.completed":
                self._model_done(at, "answered")
            case _ if kind == "turn.waiting" or kind.startswith(("input.", "authorization.")):
                self._wait(kind, data, at)
            case "step.completed":
                self._put_off()
                self._close(at, RowState.RECORDED)
                self.in_step = False
            case "step.failed":
                self._close(at, RowState.FAILED, str(data.get("message") or data.get("code") or ""))

    @property
    def turn(self) -> Turn:
        """The turn that is open, or was last."""
        return self.turns[-1]

    def mark(self, mark: Mark) -> None:
        """Put down what was moved; before the first turn it is of no interest."""
        if self.turns:
            self.turn.rows.append(marked(mark))

    # Turns

    def _start_turn(self, data: JsonObject, at: int) -> None:
        turn_id = str(data.get("turn_id", f"turn_{len(self.turns)}"))
        if self.turns and self.turn.id == turn_id:
            return  # a later attempt says it again
        tail = turn_id.rpartition("_")[2]
        number = int(tail) + 1 if tail.isascii() and tail.isdigit() else len(self.turns) + 1
        self.turns.append(Turn(id=turn_id, started_at=at, number=number))
        self.index, self.attempt, self.in_step = -1, 1, False
        self.tools, self.approved, self.resumed, self.tasks, self.waiting = {}, [], [], [], {}

    def _end_turn(self, kind: str, data: JsonObject, at: int) -> None:
        turn = self.turn
        turn.state, turn.ended_at = kind.removeprefix("turn."), at
        turn.error = str(data.get("message") or data.get("code") or "")
        note = {"turn.failed": turn.error, "turn.cancelled": "cancelled"}.get(kind, "")
        for row in turn.rows:
            row.end(at, _TURN_ENDS[kind], note)
        self.in_step = False

    # Steps and attempts

    def _start_step(self, data: JsonObject, meta: JsonObject, at: int) -> None:
        self.by = str(data.get("deployment") or "")
        index = int(data.get("step_index", self.index + 1))
        attempt = int(data.get("attempt") or meta.get("attempt") or 1)
        if index == self.index and attempt > self.attempt:
            self._cut(data, at)
        self.turn.state = "running"
        self.turn.attempts = max(self.turn.attempts, attempt)
        self.index, self.attempt, self.step_started_at, self.in_step = index, attempt, at, True
        reused = data.get("reused") or {}
        self.reused_model = bool(reused.get("model"))
        self.reused_tools = frozenset(str(call) for call in reused.get("tools") or ())
        self._keep_recorded()
        self.resumed, self.approved = self.approved, []
        for call_id in self.resumed:
            self._tool_row(call_id, at)
        if not self.reused_model and not self.resumed:
            self._open(RowKind.MODEL, "Model call", at)
        elif attempt > 1:
            self._run_again(at)

    def _cut(self, data: JsonObject, at: int) -> None:
        """Close what the attempt before left open; where nothing was, say that there was one."""
        previous = str(data.get("previous") or "")
        when = moment(data["previous_at"], at) if data.get("previous_at") is not None else None
        note = ending(previous, when, self.zone) if when is not None else ending(previous, at, self.zone, exact=False)
        end = when if when is not None else at
        mine = [row for row in self.turn.rows if row.index == self.index and row.attempt == self.attempt]
        still_open = [row for row in mine if row.state in OPEN and row.kind is not RowKind.WAIT]
        for row in still_open:
            row.numbered = True
            row.end(end, RowState.CUT, note)
        for row in mine:
            row.numbered = row.numbered or row.state is RowState.FAILED
        if not still_open and not any(row.state is RowState.FAILED for row in mine):
            gap = Row(self.index, RowKind.ATTEMPT, "Attempt", self.attempt, self.last_at or at, key="gap")
            gap.name, gap.state, gap.ended_at = f"Attempt {self.attempt}", RowState.CUT, end
            gap.say(note)
            self.turn.rows.append(gap)

    def _run_again(self, at: int) -> None:
        """Open the calls that the attempt before was cut in: a reused reply asks for them without saying so again."""
        cut = [
            row.key
            for row in self.turn.rows
            if row.index == self.index and row.kind is RowKind.TOOL and row.attempt < self.attempt and row.state is RowState.CUT
        ]
        for call_id in dict.fromkeys(cut):
            if call_id not in self.reused_tools and self._current(RowKind.TOOL, call_id) is None:
                self._tool_row(call_id, at)

    def _keep_recorded(self) -> None:
        """Mark what was cut but had been recorded before: its record counts, not the missing event."""
        for row in self.turn.rows:
            if row.index != self.index or row.state is not RowState.CUT:
                continue
            kept = row.kind is RowKind.MODEL if self.reused_model else False
            if kept or (row.kind is RowKind.TOOL and row.key in self.reused_tools):
                row.state, row.numbered = RowState.RECORDED, False
                row.notes.insert(0, "recorded in time")
                row.say("result reused" if row.kind is RowKind.TOOL else "reply reused")

    # Rows

    def _open(self, kind: RowKind, name: str, at: int, key: str = "") -> Row:
        earlier = [
            row
            for row in self.turn.rows
            if row.index == self.index and row.kind is kind and row.key == key and row.attempt < self.attempt
        ]
        by = "" if kind is RowKind.WAIT else self.by
        row = Row(self.index, kind, name, self.attempt, at, key=key, numbered=bool(earlier), by=by)
        self.turn.rows.append(row)
        return row

    def _current(self, kind: RowKind, key: str = "") -> Row | None:
        for row in reversed(self.turn.rows):
            if row.index == self.index and row.attempt == self.attempt and row.kind is kind and row.key == key:
                return row
        return None

    def _model_row(self, at: int) -> Row | None:
        """Find the model call of this attempt; one that follows resumed tools shows only by what it says."""
        if self.reused_model:
            return None
        return self._current(RowKind.MODEL) or self._open(RowKind.MODEL, "Model call", min(at, self.last_at or at))

    def _model_done(self, at: int, note: str) -> None:
        row = self._model_row(at)
        if row is not None:
            row.end(at, RowState.RECORDED, note)
        elif self._current(RowKind.TOOL) is None and self._current(RowKind.MODEL) is None:
            reused = self._open(RowKind.MODEL, "Model call", self.step_started_at)
            reused.numbered = True
            reused.end(at, RowState.RECORDED, "reply reused, not asked again")

    def _request(self, actions: list[Any], at: int) -> None:
        names: list[str] = []
        for action in actions:
            call_id, tool = str(action.get("call_id", "")), str(action.get("tool") or action.get("tool_name") or "tool")
            self.tools[call_id] = tool
            names.append(tool)
        if not self.reused_model:
            self._model_done(at, f"asked for {join(names)}")
        for action in actions:
            call_id = str(action.get("call_id", ""))
            if call_id not in self.reused_tools and self._current(RowKind.TOOL, call_id) is None:
                self._tool_row(call_id, at)

    def _tool_row(self, call_id: str, at: int) -> Row:
        row = self._open(RowKind.TOOL, self.tools.get(call_id, "tool"), at, key=call_id)
        if row.numbered:
            row.say("model reply reused" if self.reused_model else "model asked again")
            row.say("tool ran again with the same key")
        return row

    def _result(self, data: JsonObject, at: int) -> None:
        call_id, status = str(data.get("call_id", "")), str(data.get("status", "completed"))
        if data.get("tool"):
            self.tools[call_id] = str(data["tool"])
        if data.get("reused") or call_id in self.reused_tools:
            return
        row = self._task(call_id) or self._current(RowKind.TOOL, call_id)
        answered = not self.in_step and call_id in self.approved
        if answered:
            self.approved.remove(call_id)
        if row is None and (answered or status in {"rejected", "expired", "cancelled"}):
            return  # the answer is the result, or it never ran: the wait's row says so
        row = row or self._tool_row(call_id, self.step_started_at if self.in_step else at)
        if call_id in self.tasks:
            row.notes.clear()
        row.end(at, RowState.FAILED if status == "failed" else RowState.RECORDED, _RESULTS.get(status, ""))

    def _close(self, at: int, state: RowState, note: str = "") -> None:
        for row in self.turn.rows:
            if row.index == self.index and row.kind is not RowKind.WAIT and row.key not in self.tasks:
                row.end(at, state, note)

    def _task(self, call_id: str) -> Row | None:
        """Find the call that a run of its own works for: no step of the turn's ends it."""
        open_rows = (row for row in self.turn.rows if row.kind is RowKind.TOOL and row.key == call_id and row.state in OPEN)
        return next(open_rows, None) if call_id in self.tasks else None

    def _run_apart(self, kind: str, data: JsonObject) -> None:
        call_id = str(data.get("call_id", ""))
        if kind == "task.started":
            self.tasks.append(call_id)
        elif (row := self._task(call_id)) is not None:
            row.notes = [str(data.get("text") or "")]

    def _put_off(self) -> None:
        """Leave approved calls that this step did not come to yet to the next one."""
        for row in [row for row in self.turn.rows if row.index == self.index and row.state in OPEN]:
            if row.kind is RowKind.TOOL and row.key in self.resumed and row.key not in self.tasks:
                self.turn.rows.remove(row)
                self.approved.append(row.key)

    # Waits

    def _wait(self, kind: str, data: JsonObject, at: int) -> None:
        match kind:
            case "turn.waiting":
                self._waiting()
            case "input.escalated":
                self._hand_on(data)
            case "input.requested":
                self._park(data.get("requests") or [data], at)
            case "authorization.required":
                self._join(request_key(data), data.get("call_ids") or [])
            case "input.resolved":
                self._resolve(data.get("resolutions") or [data], at)

    def _park(self, requests: list[Any], at: int) -> None:
        for request in requests:
            action = request.get("action") or {}
            call_id = str(action.get("call_id") or request.get("call_id") or "")
            self._not_begun(call_id)
            kind = str(request.get("kind") or "approval")
            row = self._open(RowKind.WAIT, waiting_for(request, kind), at, key=request_key(request))
            row.state = RowState.WAITING
            if call_id:
                self.tools.setdefault(call_id, str(action.get("tool") or "tool"))
                self.waiting.setdefault(row.key, []).append(call_id)

    def _not_begun(self, call_id: str) -> None:
        gated = self._current(RowKind.TOOL, call_id)
        if gated is not None and gated.state in OPEN and call_id not in self.tasks:
            self.turn.rows.remove(gated)

    def _join(self, key: str, call_ids: list[Any]) -> None:
        """Have all calls wait that one sign-in is asked for."""
        calls = self.waiting.setdefault(key, [])
        for call_id in [str(one) for one in call_ids if str(one) not in calls]:
            self._not_begun(call_id)
            calls.append(call_id)

    def _waiting(self) -> None:
        self.turn.state = "waiting"
        for row in self.turn.rows:
            if row.state is RowState.WAITING:
                row.say("parked: no process, no memory")

    def _hand_on(self, data: JsonObject) -> None:
        for row in self.turn.rows:
            if row.key == request_key(data) and row.state is RowState.WAITING:
                row.name = waiting_for(data, str(data.get("kind") or "approval"))

    def _resolve(self, resolutions: list[Any], at: int) -> None:
        for resolution in resolutions:
            key = request_key(resolution)
            outcome = str(resolution.get("outcome") or "answered")
            for row in self.turn.rows:
                if row.kind is RowKind.WAIT and row.key == key and row.state is RowState.WAITING:
                    row.notes.clear()
                    row.name = row.name.replace("Waiting for", "Waited for", 1)
                    ended = "connected" if (resolution.get("kind"), outcome) == ("sign-in", "approved") else outcome
                    row.end(at, RowState.RECORDED, settled(ended, who(resolution)))
                    row.say("held nothing meanwhile")
            if outcome in {"approved", "answered"}:
                self.approved += [call_id for call_id in self.waiting.get(key, ()) if call_id not in self.tasks]
