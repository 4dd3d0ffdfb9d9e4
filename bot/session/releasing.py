"""Calls whose runs begin: sorted from those that run here, let through once more, and started; and what those come to.

What lives here: what the session runner does around bot/flows/begin.py. What does not: gates, calls that run here (calls.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.flows.begin import Beginning, begin
from bot.history import Call, ResultItem
from bot.session.calls import CallRunner, Due
from bot.session.edits import run_call, told
from bot.session.live import LiveSession
from bot.tools import Tool
from bot.turn.actions import Closed
from bot.turn.state import Pending, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Starts the runs of one step's calls. ``keep_ms`` is how long their content is kept."""

    tools: Mapping[str, Tool]
    keep_ms: int | None = None
    agent: str = ""

    def sort(self, run: Sequence[Pending]) -> tuple[list[Pending], list[Pending]]:
        """Part released calls: those that start a run, and those that run here."""
        flows = [pending for pending in run if self._is_flow(pending)]
        return flows, [pending for pending in run if not self._is_flow(pending)]

    def start(self, session: LiveSession, turn: Turn, calls: Sequence[Call]) -> Beginning:
        """Start runs for calls that need nobody."""
        return self._begin(session, turn, [(call, None) for call in calls])

    async def release(self, runner: CallRunner, session: LiveSession, turn: Turn, flows: Sequence[Pending]) -> Beginning:
        """Start runs for calls that somebody let run. Raises: AccessUnknown, LookUpFailed."""
        results: dict[str, ResultItem] = {}
        calls: list[tuple[Call, Pending | None]] = []
        for pending in flows:
            barred = await runner.barred(turn, Due(pending.call, pending), self.tools[pending.call.tool])
            if barred is None:
                calls.append((run_call(pending), pending))
            else:
                results[pending.call.call_id] = barred
        beginning = self._begin(session, turn, calls)
        return Beginning(flows=beginning.flows, results={**results, **beginning.results})

    def said(self, closed: Sequence[Closed]) -> tuple[Closed, ...]:
        """What runs came to as the model is told it, like the results of calls that ran here."""
        return tuple(self._said(one) if one.pending.child is not None else one for one in closed)

    def _said(self, closed: Closed) -> Closed:
        pending, tool = closed.pending, self.tools.get(closed.pending.call.tool)
        content = tool.scrubbed(closed.content, run_call(pending).arguments) if tool is not None else closed.content
        if pending.consent is not None and pending.consent.edits:
            content = told(content, pending.call, pending.consent)
        return replace(closed, content=content)

    def _begin(self, session: LiveSession, turn: Turn, calls: Sequence[tuple[Call, Pending | None]]) -> Beginning:
        deployment = session.held.claim.deployment
        return begin(
            self.tools,
            turn,
            calls,
            session_id=session.run_id,
            deployment=deployment,
            keep_ms=self.keep_ms,
            agent=self.agent,
        )

    def _is_flow(self, pending: Pending) -> bool:
        tool = self.tools.get(pending.call.tool)
        return tool is not None and tool.workflow is not None
