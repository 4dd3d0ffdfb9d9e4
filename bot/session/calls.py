"""Running tool calls under a claim: started, run and recorded once; what was cut off is run again, asked about or reported.

What lives here: the calls of one step. What does not: gates (gates.py), waiting for a batch (batch.py), the commit (runner.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from bot.approvals import ApprovalRecord
from bot.connections.lent import Lent
from bot.context import ToolContext
from bot.edge import Threads
from bot.history import Call, ResultItem, ResultStatus, Trust, to_json
from bot.principal import Principal
from bot.session.batch import Batch, Grace, Reconsider, side_by_side
from bot.session.commits import event_draft
from bot.session.edits import run_call, told, told_again, voided
from bot.session.gates import Gates
from bot.session.live import LiveSession, again_key, refused_key
from bot.session.private import private_of
from bot.session.progress import PROGRESS_SECONDS, Progress
from bot.session.signing import Guarded, Refusal, Signing, Wanted, sign_ins
from bot.tools import Effect, Interrupt, Tool, ToolOutcome
from bot.turn.change import Draft, NewPrompt
from bot.turn.signing import unrun, was_cut_off
from bot.turn.state import Consent, Pending, Purpose, Turn
from channels.events import Standing
from durable_core import codec
from durable_core.claiming import Claimer
from durable_core.failpoints import hit
from durable_core.model import Record, RecordKind, Signals
from durable_core.retry import surely
from durable_core.store import Store


class AccessUnknown(Exception):
    """Whether the requester may still use the bot could not be found out; the call is tried again later."""


@dataclass(frozen=True, slots=True)
class Due:
    """A call that is to run now, and what it waited for, if it did."""

    call: Call
    waited: Pending | None = None

    @property
    def begun(self) -> int:
        """How often the call was begun in steps before this one."""
        if self.waited is None:
            return 0
        return max(self.waited.begun, 1) if self.again else self.waited.begun

    @property
    def consent(self) -> Consent | None:
        """Who let it run."""
        return self.waited.consent if self.waited is not None else None

    @property
    def again(self) -> bool:
        """Whether it was cut off before and is to run again."""
        return was_cut_off(self.waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls of one agent's tools.

    ``denied`` says why the requester may not use the bot any more, or None; it is asked before an approved call runs, which may
    be days after it was asked for. ``interrupted`` looks at what came in: must the step stop?
    """

    store: Store
    tools: Mapping[str, Tool]
    gates: Gates
    deps: object
    denied: Callable[[], Awaitable[str | None]]
    interrupted: Callable[[], Awaitable[bool]]
    signing: Signing = field(default_factory=Signing)
    threads: Threads = field(default_factory=Threads)
    grace: Grace = field(default_factory=Grace)
    progress_seconds: float = PROGRESS_SECONDS

    async def run(self, session: LiveSession, turn: Turn, due: Sequence[Due], *, waiting: Sequence[Pending] = ()) -> Batch:
        """Run calls side by side; each ends with a recorded result, or waits for a person.

        ``waiting`` are the calls that go on waiting: what one of them asks for is not asked for twice.
        Raises: Reconsider (the turn is being cancelled; what had begun is recorded or marked as started), AccessUnknown,
        LeaseLost.
        """
        batch = Batch()
        tasks: dict[asyncio.Task[None], bool] = {}
        for one in due:
            tool = self.tools.get(one.call.tool)
            task = asyncio.create_task(self._one(session, turn, one, batch), name=f"call-{one.call.call_id}")
            tasks[task] = tool is None or tool.effect is Effect.READ
        await side_by_side(tasks, batch, changed=session.held.changed, interrupted=self.interrupted, grace=self.grace)
        order = {one.call.call_id: place for place, one in enumerate(due)}
        batch.wanted.sort(key=lambda wanted: order[wanted.one.call.call_id])
        prompts, batch.joined = sign_ins(
            batch.wanted, turn, waiting, agent=session.held.claim.name, session_id=session.run_id, now=session.now
        )
        batch.again += prompts
        return batch

    async def _one(self, session: LiveSession, turn: Turn, due: Due, batch: Batch) -> None:
        call = due.call if due.waited is None else run_call(due.waited)
        due = replace(due, call=call)
        known = session.result(call.call_id)
        if known is not None:
            batch.results[call.call_id] = known
            return
        tool = self.tools.get(call.tool)
        if tool is None:
            await self._record(session, turn, call, _unavailable(due), batch)
            return
        begun = due.begun + session.begun(call.call_id, recorded=tool.effect is Effect.WRITE)
        started, refusal = session.started(call.call_id), session.refusal(call.call_id)
        if started and refusal is None and tool.on_interrupt is not Interrupt.RERUN:
            await self._cut_off(session, turn, due, tool, batch, begun=begun)
            return
        one = Guarded(call=call if due.waited is None else due.waited.call, waited=due.waited, tool=tool, begun=begun)
        shut: ResultItem | Wanted | None = await self.barred(turn, due, tool) if not started else None
        if refusal is not None and shut is None:
            shut = await self._refused(session, turn, one, refusal)
        shut = shut or await self.signing.gate(turn, one)
        if shut is not None:
            await self._shut(session, turn, call, shut, batch)
            return
        if tool.effect is Effect.WRITE and not started:
            await self._start(session, call)
        await self._body(session, turn, due, tool, batch, one=one)

    async def _shut(self, session: LiveSession, turn: Turn, call: Call, shut: ResultItem | Wanted, batch: Batch) -> None:
        """Keep what a call comes to that does not run now."""
        if isinstance(shut, Wanted):
            batch.wanted.append(shut)
        else:
            await self._record(session, turn, call, shut, batch)

    async def barred(self, turn: Turn, due: Due, tool: Tool) -> ResultItem | None:
        """Close a call that waited and may not begin: its requester may not use the bot any more, or it has changed."""
        reason = await self.denied() if due.waited is not None else None
        if reason is not None:
            return _denied(due, turn, reason)
        return voided(tool, due.waited) if due.waited is not None else None

    async def _body(self, session: LiveSession, turn: Turn, due: Due, tool: Tool, batch: Batch, *, one: Guarded) -> None:
        """Run a body; once more where an account was refused that is a newer one by now."""
        for attempt in (one.begun + 1, one.begun + 2):
            lent = self.signing.lend(turn, tool)
            outcome = await self._run(session, turn, due, tool, batch, attempt=attempt, lent=lent)
            if outcome.unauthorized is None:
                await self._record(session, turn, due.call, _item(session, turn, due, tool, outcome), batch)
                hit("tool.after_record")
                return
            refusal = Refusal.of(outcome.unauthorized, lent)
            await self._keep_refusal(session, due.call, refusal, batch)
            shut = await self._refused(session, turn, replace(one, begun=attempt), refusal, again=attempt > one.begun + 1)
            if shut is not None:
                await self._shut(session, turn, due.call, shut, batch)
                return

    async def _run(
        self, session: LiveSession, turn: Turn, due: Due, tool: Tool, batch: Batch, *, attempt: int, lent: Lent | None
    ) -> ToolOutcome:
        call = due.call
        me = asyncio.current_task()
        progress = self._progress(session, turn, due, tool, batch, on_lost=lambda: me is not None and me.cancel())
        context = self._context(session, turn, due, attempt, progress, lent=lent)
        try:
            outcome = await tool.run(context, call.raw if call.raw is not None else call.arguments, threads=self.threads)
            hit("tool.after_effect")
            await progress.finish()
        except asyncio.CancelledError:
            if progress.lost is not None:
                raise progress.lost from None
            raise
        finally:
            progress.close()
        return outcome

    async def _cut_off(self, session: LiveSession, turn: Turn, due: Due, tool: Tool, batch: Batch, *, begun: int) -> None:
        """Ask whether a call that died in its body may run again, or report it."""
        prompt = None
        if tool.on_interrupt is Interrupt.ASK:
            approved = due.consent is not None
            prompt = await self.gates.rerun(tool, due.call, turn, session.now, approved=approved, begun=begun)
        if prompt is None:
            await self._record(session, turn, due.call, _unknown(due.call), batch)
        else:
            batch.again.append(replace(prompt, signed_in=due.waited.signed_in if due.waited is not None else ()))

    async def _start(self, session: LiveSession, call: Call) -> None:
        """Make it known that a write begins. Raises: Reconsider (it must not)."""
        hit("tool.before_start")
        signals = await self._started(session, call)
        if signals.cancel_pending and await self.interrupted():
            session.unstarted.add(call.call_id)
            raise Reconsider
        session.unstarted.discard(call.call_id)
        hit("tool.started")

    async def _refused(
        self, session: LiveSession, turn: Turn, one: Guarded, refusal: Refusal, *, again: bool = False
    ) -> ResultItem | Wanted | None:
        """Say what comes after a refused token; None: the body runs again, and is one that may be cut off."""
        shut = await self.signing.refused(turn, one, refusal, again=again)
        if shut is None:
            await self._mark(session, again_key(one.call.call_id), {})
        return shut

    async def _keep_refusal(self, session: LiveSession, call: Call, refusal: Refusal, batch: Batch) -> None:
        """Make it known that a body ended since its account was refused: it is not one that was cut off."""
        if batch.closed:
            raise Reconsider
        if refused_key(call.call_id) not in session.records:
            await self._mark(session, refused_key(call.call_id), refusal.to_json())

    async def _started(self, session: LiveSession, call: Call) -> Signals:
        return await self._mark(session, f"started:{call.call_id}", {"call_id": call.call_id, "tool": call.tool})

    async def _mark(self, session: LiveSession, key: str, told: dict[str, JsonValue]) -> Signals:
        body = codec.encode(told)
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
        event = event_draft(_result_event(session, turn, call, item))

        async def write() -> Signals:
            if batch.closed:
                raise Reconsider
            return await self.store.record(
                session.run_id,
                session.epoch,
                step_n=session.step_no,
                key=key,
                kind=RecordKind.RESULT,
                input_hash="",
                body=body,
                events=(event,),
            )

        await surely(write)
        session.records[key] = Record(
            key=key, kind=RecordKind.RESULT, input_hash="", body=body, attempt=session.attempt, at=session.now
        )
        batch.results[call.call_id] = item

    def _progress(
        self, session: LiveSession, turn: Turn, due: Due, tool: Tool, batch: Batch, *, on_lost: Callable[[], object]
    ) -> Progress:
        call = due.call

        async def write(text: str) -> None:
            if batch.closed:
                return
            data: dict[str, JsonValue] = {
                "turn_id": turn.turn_id,
                "step_index": turn.step_index,
                "call_id": call.call_id,
                "tool": call.tool,
                "text": text,
                **_private(session, turn, _owner(turn, tool)),
            }
            draft = event_draft(Draft(type="action.partial", data=data))
            await self.store.append(session.run_id, session.epoch, (draft,))

        return Progress(write, on_lost=on_lost, every=self.progress_seconds)

    def _context(
        self, session: LiveSession, turn: Turn, due: Due, attempt: int, progress: Progress, *, lent: Lent | None
    ) -> ToolContext[object]:
        record = None
        consent = due.consent
        if consent is not None:
            responder = Principal(consent.principal, consent.name, Standing.UNKNOWN)
            record = ApprovalRecord(responder, consent.note, consent.at, edited=tuple(consent.edits or ()))
        claimer = Claimer(
            store=self.store,
            run_id=session.run_id,
            epoch=session.epoch,
            operation_id=due.call.call_id,
            attempt=attempt,
            loop=asyncio.get_running_loop(),
        )
        return ToolContext(
            session_id=session.run_id,
            principal=turn.requester,
            call_id=due.call.call_id,
            deps=self.deps,
            attempt=attempt,
            approval=record,
            on_progress=progress.tell,
            claimer=claimer,
            lent=lent,
        )


def _result_event(session: LiveSession, turn: Turn, call: Call, item: ResultItem) -> Draft:
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "step_index": turn.step_index,
        "call_id": call.call_id,
        "tool": call.tool,
        "status": item.status.value,
    }
    data |= _private(session, turn, item.private_to)
    return Draft(type="action.result", data=data, refs=(("result", f"record:{session.step_no}:result:{call.call_id}#/content"),))


def _item(session: LiveSession, turn: Turn, due: Due, tool: Tool, outcome: ToolOutcome) -> ResultItem:
    """What a body returned, as the model is told it."""
    call = due.call
    content = tool.scrubbed(outcome.content, call.arguments)
    if due.waited is not None and due.consent is not None and due.consent.edits:
        content = told(content, due.waited.call, due.consent)
    elif due.again:
        content = told_again(content, session.history, call)
    return ResultItem(
        call.call_id,
        call.tool,
        status=outcome.status,
        content=content,
        origin=f"tool:{call.tool}",
        private_to=_owner(turn, tool),
    )


def _owner(turn: Turn, tool: Tool) -> str | None:
    """Whose alone it is what a body finds; None where it is everybody's."""
    return turn.requester.id if tool.acts_as_requester else None


def _private(session: LiveSession, turn: Turn, owner: str | None) -> dict[str, JsonValue]:
    if owner is None:
        return private_of(session.history, turn)
    return {"private_to": {"id": owner, "name": turn.requester.name}}


def _unavailable(due: Due) -> ResultItem:
    call = due.call
    text = f"The tool {call.tool!r} is no longer offered. The call did not run."
    if due.consent is not None:
        text = f"{due.consent.name} approved this call, but {text[0].lower()}{text[1:]}"
    return ResultItem(call.call_id, call.tool, status=ResultStatus.FAILED, content=text, origin="framework", trust=Trust.SYSTEM)


def _unknown(call: Call) -> ResultItem:
    text = "It was cut off while it ran. Whether it took effect is not known."
    return ResultItem(call.call_id, call.tool, status=ResultStatus.UNKNOWN, content=text, origin="framework", trust=Trust.SYSTEM)


def _denied(due: Due, turn: Turn, reason: str) -> ResultItem:
    """Close a call that was let run and whose requester may not use the bot any more."""
    why = f"{turn.requester.name} may not use this bot here any more: {reason}"
    text = f"The call was approved, but it did not run. {why}" if due.consent is not None else f"The call did not run. {why}"
    status = ResultStatus.REJECTED
    if due.again:
        text = f"It was cut off while it ran, and was not run again. {why} Whether it took effect is not known."
        status = ResultStatus.UNKNOWN
    return ResultItem(due.call.call_id, due.call.tool, status=status, content=text, origin="framework", trust=Trust.SYSTEM)


def unasked(prompt: NewPrompt | Pending) -> ResultItem:
    """Close a call for which nobody is asked, since the requester wrote on before the question could be put."""
    call = prompt.call
    text = "Not asked: the person wrote on. The call did not run."
    status = ResultStatus.REJECTED
    if prompt.purpose is Purpose.SIGN_IN:
        cut_off = prompt.earlier is not None and prompt.earlier.purpose is Purpose.RERUN
        words = f"Nobody was asked to connect {prompt.connection}: the person wrote on."
        status, text = unrun(words, status, begun=prompt.begun, cut_off=cut_off)
    if prompt.purpose is Purpose.RERUN:
        text = "It was cut off while it ran. Whether to run it again was not asked: the person wrote on. "
        text += "Whether it took effect is not known."
        status = ResultStatus.UNKNOWN
    return ResultItem(call.call_id, call.tool, status=status, content=text, origin="framework", trust=Trust.SYSTEM)
