"""Running tool calls under a claim: started, run and recorded once; what was cut off is run again, asked about or reported.

What lives here: one batch of calls of one step. What does not: gates (gates.py), the commit of the step (runner.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from bot.approvals import ApprovalRecord
from bot.context import ToolContext
from bot.history import Call, ResultItem, ResultStatus, Trust, to_json
from bot.principal import Principal
from bot.session.commits import event_draft
from bot.session.gates import Gates
from bot.session.live import LiveSession
from bot.tools import Effect, Interrupt, Tool
from bot.turn.change import Draft, NewPrompt
from bot.turn.state import Consent, Turn
from channels.events import Standing
from durable_core import codec
from durable_core.failpoints import hit
from durable_core.model import Record, RecordKind, Signals
from durable_core.store import Store

CANCEL_GRACE = 30.0
"""Seconds that a running write has to finish once its turn is cancelled; reads are stopped at once."""
PROGRESS_LIMIT = 2_000


class Reconsider(Exception):
    """Stop what the step does and decide anew."""


@dataclass(slots=True)
class Batch:
    """What became of a batch of calls."""

    results: dict[str, ResultItem] = field(default_factory=dict)
    again: list[NewPrompt] = field(default_factory=list)
    """Prompts for calls that were cut off and must not simply run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls of one agent's tools."""

    store: Store
    tools: Mapping[str, Tool]
    gates: Gates
    deps: object

    async def run(
        self,
        session: LiveSession,
        turn: Turn,
        calls: Sequence[tuple[Call, Consent | None]],
        *,
        interrupted: Callable[[], Awaitable[bool]],
        again: frozenset[str] = frozenset(),
    ) -> Batch:
        """Run calls side by side; each ends with a recorded result or a prompt. ``again`` names those cut off in a step before.

        Raises: Reconsider (the turn is being cancelled; what had begun is recorded or marked as started), LeaseLost.
        """
        batch = Batch()
        tasks: dict[asyncio.Task[None], Tool | None] = {}
        for call, consent in calls:
            attempt = session.attempt - session.begun_at(call.call_id) + (2 if call.call_id in again else 1)
            context = self._context(session, turn, call, consent, attempt)
            one = self._one(session, turn, call, context, batch, interrupted=interrupted)
            tasks[asyncio.create_task(one, name=f"call-{call.call_id}")] = self.tools.get(call.tool)
        try:
            await self._watch(session, tasks, interrupted)
        except BaseException:
            await _stop(tasks)
            raise
        for task in tasks:
            task.result()
        return batch

    async def _watch(
        self, session: LiveSession, tasks: Mapping[asyncio.Task[None], Tool | None], interrupted: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait for the calls; when something came in that stops the turn, let writes finish and raise Reconsider."""
        changed = session.held.changed
        waiting = set(tasks)
        while waiting:
            flag = asyncio.create_task(changed.wait())
            try:
                done, _ = await asyncio.wait({*waiting, flag}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                flag.cancel()
            waiting -= done
            over = [_was_stopped(task) for task in tasks if task in done]
            stops = any(over)
            if flag in done and waiting and not stops:
                changed.clear()
                stops = await interrupted()
            if stops:
                reads = {task for task in waiting if (tool := tasks[task]) is None or tool.effect is Effect.READ}
                await _stop(reads)
                writes = waiting - reads
                if writes:
                    await asyncio.wait(writes, timeout=CANCEL_GRACE)
                raise Reconsider

    async def _one(
        self,
        session: LiveSession,
        turn: Turn,
        call: Call,
        context: ToolContext[object],
        batch: Batch,
        *,
        interrupted: Callable[[], Awaitable[bool]],
    ) -> None:
        known = session.result(call.call_id)
        if known is not None:
            batch.results[call.call_id] = known
            return
        tool = self.tools.get(call.tool)
        if tool is None:
            await self._record(session, turn, call, _unavailable(call), batch)
            return
        if session.started(call.call_id):
            if tool.on_interrupt is Interrupt.ASK:
                batch.again.append(self.gates.rerun(tool, call, turn, session.now))
                return
            if tool.on_interrupt is Interrupt.REPORT:
                await self._record(session, turn, call, _unknown(call), batch)
                return
        elif tool.effect is Effect.WRITE:
            hit("tool.before_start")
            signals = await self._started(session, call)
            if signals.cancel_pending and await interrupted():
                session.unstarted.add(call.call_id)
                raise Reconsider
            session.unstarted.discard(call.call_id)
            hit("tool.started")
        outcome = await tool.run(context, call.raw if call.raw is not None else call.arguments)
        hit("tool.after_effect")
        item = ResultItem(call.call_id, call.tool, status=outcome.status, content=outcome.content, origin=f"tool:{call.tool}")
        await self._record(session, turn, call, item, batch)
        hit("tool.after_record")

    async def _started(self, session: LiveSession, call: Call) -> Signals:
        key = f"started:{call.call_id}"
        body = codec.encode({"call_id": call.call_id, "tool": call.tool})
        signals = await self.store.record(
            session.run_id,
            session.epoch,
            step_n=session.step_no,
            key=key,
            kind=RecordKind.STARTED,
            input_hash="",
            body=body,
        )
        session.records[key] = Record(
            key=key, kind=RecordKind.STARTED, input_hash="", body=body, attempt=session.attempt, at=session.now
        )
        return signals

    async def _record(self, session: LiveSession, turn: Turn, call: Call, item: ResultItem, batch: Batch) -> None:
        key = f"result:{call.call_id}"
        body = codec.encode(to_json(item))
        await self.store.record(
            session.run_id,
            session.epoch,
            step_n=session.step_no,
            key=key,
            kind=RecordKind.RESULT,
            input_hash="",
            body=body,
            events=(event_draft(_result_event(session, turn, call, item)),),
        )
        session.records[key] = Record(
            key=key, kind=RecordKind.RESULT, input_hash="", body=body, attempt=session.attempt, at=session.now
        )
        batch.results[call.call_id] = item

    def _context(
        self, session: LiveSession, turn: Turn, call: Call, consent: Consent | None, attempt: int
    ) -> ToolContext[object]:
        async def progress(text: str) -> None:
            data: dict[str, JsonValue] = {
                "turn_id": turn.turn_id,
                "step_index": turn.step_index,
                "call_id": call.call_id,
                "tool": call.tool,
                "text": text[:PROGRESS_LIMIT],
            }
            draft = event_draft(Draft(type="action.partial", data=data))
            await self.store.append(session.run_id, session.epoch, (draft,))

        record = None
        if consent is not None:
            responder = Principal(consent.principal, consent.name, Standing.UNKNOWN)
            record = ApprovalRecord(responder, consent.note, consent.at)
        return ToolContext(
            session_id=session.run_id,
            principal=turn.requester,
            call_id=call.call_id,
            deps=self.deps,
            attempt=attempt,
            approval=record,
            on_progress=progress,
        )


def _result_event(session: LiveSession, turn: Turn, call: Call, item: ResultItem) -> Draft:
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "step_index": turn.step_index,
        "call_id": call.call_id,
        "tool": call.tool,
        "status": item.status.value,
    }
    return Draft(type="action.result", data=data, refs=(("result", f"record:{session.step_no}:result:{call.call_id}#/content"),))


def _was_stopped(task: asyncio.Task[None]) -> bool:
    """Whether a call that is over was stopped before its body; raises what else went wrong."""
    try:
        task.result()
    except Reconsider:
        return True
    return False


async def _stop(tasks: Mapping[asyncio.Task[None], object] | set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


def _unavailable(call: Call) -> ResultItem:
    text = f"The tool {call.tool!r} is no longer offered. The call did not run."
    return ResultItem(call.call_id, call.tool, status=ResultStatus.FAILED, content=text, origin="framework", trust=Trust.SYSTEM)


def _unknown(call: Call) -> ResultItem:
    text = "It was cut off while it ran. Whether it took effect is not known."
    return ResultItem(call.call_id, call.tool, status=ResultStatus.UNKNOWN, content=text, origin="framework", trust=Trust.SYSTEM)
