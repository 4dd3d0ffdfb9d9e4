"""From what happened to a commit: the entry, what the body asked for after it, what it dropped, the events.

What lives here: building commits. What does not: deciding what happened (inbox.py), writing it (runner.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from durable_core import codec, internal, versions
from durable_core.engine.handles import CANCELLED, COMPLETED
from durable_core.engine.inbox import Completion, about_answer, stale
from durable_core.engine.live import Asked, Live, is_start
from durable_core.engine.signals import HOOK
from durable_core.engine.starts import Parent, Start, child_admission
from durable_core.engine.surface import Asker, Surface
from durable_core.errors import TooLarge, Unstorable
from durable_core.ids import request_id
from durable_core.model import (
    Admission,
    Claim,
    CommandKind,
    EventDraft,
    OutboxDraft,
    Outcome,
    Phase,
    Prompt,
    PromptDraft,
    PromptOutcome,
    PromptSettlement,
    PromptUpdate,
    StepCommit,
    StepDraft,
    SubmissionOutcome,
)
from durable_core.operations import EntryKind, Operation, OpKind

_TYPES: Final = {
    EntryKind.STEP: "step.completed",
    EntryKind.FAILED: "step.failed",
    EntryKind.TIMER: "timer.fired",
    EntryKind.ANSWER: "input.resolved",
    EntryKind.SIGNAL: "signal.received",
    EntryKind.CHILD: "child.completed",
    EntryKind.WEBHOOK: "webhook.opened",
    EntryKind.CANCEL: "run.cancelling",
}
_SHOWS_VALUE: Final = frozenset({EntryKind.STEP, EntryKind.SIGNAL, EntryKind.CHILD})


@dataclass(slots=True)
class _Asking:
    """What the body asked for and dropped since the last entry."""

    prompts: list[PromptDraft] = field(default_factory=list)
    starts: list[Admission] = field(default_factory=list)
    addresses: list[tuple[str, str]] = field(default_factory=list)
    settle: list[PromptSettlement] = field(default_factory=list)
    outbox: list[OutboxDraft] = field(default_factory=list)
    events: list[EventDraft] = field(default_factory=list)


def entry_commit(live: Live, completion: Completion, *, at: int, keep_ms: int | None, surface: Surface) -> StepCommit:
    """Return the commit of an entry that the body was told of, with what it asked for then; `live` knows it already.

    Raises:
        Unstorable, TooLarge: something that the body asked for can't be kept.
    """
    asking = _asking(live, keep_ms, surface, told=completion.op)
    if completion.kind is EntryKind.ANSWER:
        asking.outbox.extend(_told_of_answer(live, completion, surface))
    if completion.reminds is not None:
        live.prompts[completion.op] = completion.reminds.reminded()
        asking.outbox.extend(surface.remind(asker(live), completion.reminds.prompt))
    consumed = _consumed(live, completion) if live.inbox else ()
    wake_at = live.wake_at()
    parks = live.replay.outcome is None and live.parks(wake_at) and len(consumed) == len(live.inbox)
    notes: dict[str, Any] = {"at": at}
    if marks := live.replay.take_marks():
        notes["marks"] = list(marks)
    if begun := live.steps.take_notes():
        notes["open"] = begun
    n = live.step_no
    events = [_started(live)] if n == 0 else []
    if (event := _event(completion, n)) is not None:
        events.append(event)
    return StepCommit(
        run_id=live.run_id,
        epoch=live.epoch,
        step_n=n,
        step=StepDraft(kind=completion.kind.value, name=completion.op, input=codec.encode(notes), output=completion.output),
        seen=live.seen,
        consumed=consumed,
        outcomes=_settled(live, consumed) if consumed else (),
        events=(*events, *asking.events),
        outbox=tuple(asking.outbox),
        prompts=tuple(asking.prompts),
        settle=(*completion.settle, *asking.settle),
        updates=() if completion.reminds is None else (_was_reminded(completion.reminds),),
        addresses=(*completion.addresses, *asking.addresses),
        starts=tuple(asking.starts),
        phase=Phase.WAITING if parks else Phase.RUNNING,
        timer_at=wake_at if parks else None,
        release=parks,
    )


def without_hook(live: Live, commit: StepCommit, name: str) -> StepCommit:
    """Return a commit without a hook that turned out to be another run's; the log says so until the body is told."""
    op = f"{OpKind.SIGNAL.value}:{name}"
    live.taken.add(name)
    live.wants.ask_again(op)
    notes = internal.read(commit.step.input)
    notes["taken"] = sorted({*notes.get("taken", ()), name})
    awaited = _awaited(name)
    return replace(
        commit,
        step=replace(commit.step, input=codec.encode(notes)),
        addresses=tuple(one for one in commit.addresses if one != (HOOK, name)),
        events=tuple(one for one in commit.events if one != awaited),
        phase=Phase.RUNNING,
        timer_at=None,
        release=False,
    )


def with_answered(live: Live, commit: StepCommit, prompt: Prompt, surface: Surface) -> StepCommit:
    """Return a commit that leaves a question alone which it was to withdraw, and tells how that was answered meanwhile."""
    live.settled[prompt.prompt_id] = prompt
    withdrawn = _withdrawn(prompt.prompt_id)
    untrue = [draft.body for draft in surface.resolve(asker(live), prompt.prompt_id, PromptOutcome.CANCELLED, None)]
    told, owed = _answered(live, prompt, surface)
    return replace(
        commit,
        settle=tuple(one for one in commit.settle if one.prompt_id != prompt.prompt_id),
        events=tuple(told if one == withdrawn else one for one in commit.events),
        outbox=(*(one for one in commit.outbox if one.body not in untrue), *owed),
    )


# ── the end ──


def ends(live: Live, commit: StepCommit) -> bool:
    """Whether a run ends with what this entry told its body, and both can be committed as they are."""
    return live.replay.outcome is not None and live.cancel_at is None and not (commit.settle or commit.addresses)


@dataclass(frozen=True, slots=True)
class End:
    """How a run ends: `reason`, and the output that its log and its parent keep."""

    reason: str
    output: bytes

    @classmethod
    def of(cls, reason: str, *, code: str, message: str, type_name: str = "") -> End:
        """Return an end that is no result."""
        return cls(reason, codec.encode({"ok": False, "error": {"code": code, "type": type_name, "message": message}}))


def end_commit(
    claim: Claim,
    start: Start,
    end: End,
    *,
    step_no: int,
    seen: int,
    at: int,
    children: tuple[str, ...] = (),
    prompts: Sequence[str] = (),
    shown: Sequence[Any] = (),
    surface: Surface,
) -> StepCommit:
    """Return the commit that ends a run; its children and its questions that nobody waits for any more are cancelled.

    `prompts` are its open questions, `shown` is what the body showed since its last entry.
    """
    result = internal.read(end.output)
    outcome = {COMPLETED: Outcome.COMPLETED, CANCELLED: Outcome.ABORTED}.get(end.reason, Outcome.FAILED)
    part = "value" if result["ok"] else "error"
    events = [*_last_shown(shown), _event_of(f"run.{end.reason}", {}, refs=((part, f"step:{step_no}#/{part}"),))]
    if step_no == 0:
        events.insert(0, _event_of("run.started", {"workflow": claim.name}))
    who = Asker(run_id=claim.run_id, workflow=claim.name, origin=start.origin, now=at)
    outbox = [internal.child_cancel(child) for child in children]
    for prompt_id in prompts:
        events.insert(-1, _withdrawn(prompt_id))
        outbox += surface.resolve(who, prompt_id, PromptOutcome.CANCELLED, None)
    outbox += surface.end(who, end.reason)
    if start.parent is not None:
        outbox.append(internal.child_result(start.parent.run_id, start.parent.op, claim.run_id, result))
    return StepCommit(
        run_id=claim.run_id,
        epoch=claim.epoch,
        step_n=step_no,
        step=StepDraft(kind=EntryKind.END.value, name="", input=codec.encode({"at": at}), output=end.output),
        seen=seen,
        outcomes=(
            SubmissionOutcome(
                submission_id=start.submission,
                outcome=outcome,
                detail=None if result["ok"] else codec.encode(result["error"]),
                reply_step=step_no if result["ok"] else None,
            ),
        ),
        events=tuple(events),
        outbox=tuple(outbox),
        phase=Phase.IDLE,
        end=end.reason,
    )


def with_end(last: StepCommit, end: StepCommit) -> StepCommit:
    """Return the commit of a run's last entry together with its end: one transaction, two rows of the log."""
    return replace(
        end,
        step_n=last.step_n,
        before=last.step,
        consumed=last.consumed,
        outcomes=(*last.outcomes, *end.outcomes),
        events=(*last.events, *end.events),
        outbox=(*last.outbox, *end.outbox),
        starts=last.starts,
    )


# ── parts ──


def _consumed(live: Live, completion: Completion) -> tuple[int, ...]:
    """Return which commands an entry uses up: all of them are in the inbox."""
    starts = (command.seq for command in live.inbox.values() if is_start(command))
    return tuple(sorted({*completion.consumed, *stale(live), *starts}))


def _settled(live: Live, consumed: Sequence[int]) -> tuple[SubmissionOutcome, ...]:
    return tuple(
        SubmissionOutcome(submission_id=command.submission_id, outcome=Outcome.COMPLETED)
        for seq in consumed
        if (command := live.inbox[seq]).kind in {CommandKind.SIGNAL, CommandKind.CANCEL}
    )


def _last_shown(values: Sequence[Any]) -> list[EventDraft]:
    """Tell what a body showed before it ended; what can't be kept must not hold the end up."""
    told = []
    for value in values:
        with suppress(Unstorable, TooLarge):
            told.append(_event_of("progress", {"value": value}))
    return told


def asker(live: Live) -> Asker:
    """Say which run asks or shows something."""
    return Asker(run_id=live.run_id, workflow=live.held.claim.name, origin=live.start.origin, now=live.replay.now)


def _told_of_answer(live: Live, completion: Completion, surface: Surface) -> tuple[OutboxDraft, ...]:
    about = completion.about
    by = about.get("by")
    outcome = PromptOutcome(str(about["outcome"]))
    return surface.resolve(asker(live), str(about["request_id"]), outcome, None if by is None else str(by))


def _was_reminded(asked: Asked) -> PromptUpdate:
    return PromptUpdate(prompt_id=asked.prompt_id, expires_at=asked.expires_at, remind_at=None)


def _asking(live: Live, keep_ms: int | None, surface: Surface, *, told: str) -> _Asking:
    asking = _Asking()
    for op in list(live.wants.unwritten.values()):
        _ask(live, op, asking, keep_ms, surface)
        live.wants.write_down(op)
    for answered in [one for one in live.settled.values() if one.call_id in live.dropped and one.call_id != told]:
        event, owed = _answered(live, answered, surface)
        asking.events.append(event)
        asking.outbox.extend(owed)
    if live.replay.outcome is None:
        for op_id in live.dropped:
            _withdraw(live, op_id, asking, surface)
    live.dropped = []
    shown = live.replay.take_progress()
    asking.events.extend(_event_of("progress", {"value": value}) for value in shown)
    if shown:
        asking.outbox.extend(surface.show(asker(live), shown))
    return asking


def _withdraw(live: Live, op_id: str, asking: _Asking, surface: Surface) -> None:
    """Take back a question or a child that the body wants no more."""
    prompt, child = live.prompts.pop(op_id, None), live.children.pop(op_id, None)
    if prompt is not None and prompt.prompt_id not in live.settled:
        asking.settle.append(PromptSettlement(prompt_id=prompt.prompt_id, outcome=PromptOutcome.CANCELLED))
        asking.events.append(_withdrawn(prompt.prompt_id))
        asking.outbox.extend(surface.resolve(asker(live), prompt.prompt_id, PromptOutcome.CANCELLED, None))
    if child is not None and child not in live.wants.results and child not in live.wants.children:
        asking.outbox.append(internal.child_cancel(child))


def _answered(live: Live, prompt: Prompt, surface: Surface) -> tuple[EventDraft, tuple[OutboxDraft, ...]]:
    """Tell of an answer that the body doesn't want any more: whoever gave it was told that it counts."""
    outcome = prompt.outcome or PromptOutcome.ANSWERED
    owed = surface.resolve(asker(live), prompt.prompt_id, outcome, prompt.settled_name)
    return _event_of("input.resolved", about_answer(prompt)), owed


def _withdrawn(prompt_id: str) -> EventDraft:
    return _event_of("input.resolved", {"request_id": prompt_id, "outcome": PromptOutcome.CANCELLED.value})


def _ask(live: Live, op: Operation, asking: _Asking, keep_ms: int | None, surface: Surface) -> None:
    """Write down one thing that the body asked for."""
    if op.question is not None:
        put = surface.ask(asker(live), op.id, op.question, request_id())
        prompt = put.prompt
        asking.outbox.extend(put.outbox)
        live.prompts[op.id] = Asked(prompt)
        asking.prompts.append(prompt)
        data = {"op": op.id, "request_id": prompt.prompt_id}
        asking.events.append(_event_of("input.requested", data, refs=(("request", f"prompt:{prompt.prompt_id}#"),)))
    elif op.child is not None:
        if not op.child.detached:
            live.children[op.id] = op.child.run_id
        claim, parent = live.held.claim, Parent(live.run_id, op.id)
        asking.starts.append(
            child_admission(
                op.child,
                parent=parent,
                creator=claim.creator,
                deployment=claim.deployment,
                keep_ms=keep_ms,
                origin=live.start.origin,
            )
        )
        begun: dict[str, Any] = {"op": op.id, "run_id": op.child.run_id, "workflow": op.name}
        if op.child.detached:
            begun["detached"] = True
        asking.events.append(_event_of("child.started", begun))
    elif op.hook is not None and op.hook.name not in live.tokens.values():
        live.taken.discard(op.hook.name)
        asking.addresses.append((HOOK, op.hook.name))
        asking.events.append(_awaited(op.hook.name))


def _started(live: Live) -> EventDraft:
    return _event_of("run.started", {"workflow": live.held.claim.name})


def _event(completion: Completion, n: int) -> EventDraft | None:
    type_ = _TYPES.get(completion.kind) if completion.reminds is None else "input.reminded"
    if type_ is None:
        return None
    if completion.kind is EntryKind.STEP and not completion.ok:
        type_ = "step.failed"
    shown = "value" if completion.ok else "error"
    refs: tuple[tuple[str, str], ...] = ()
    if completion.kind in _SHOWS_VALUE or not completion.ok:
        refs = ((shown, f"step:{n}#/{shown}"),)
    if completion.op and not completion.about:  # as of nearly every step: the same few names again and again
        return EventDraft(type=type_, body=_named(completion.op, versions.CURRENT_SPEC), refs=refs)
    return _event_of(type_, {"op": completion.op, **completion.about} if completion.op else {**completion.about}, refs=refs)


@lru_cache(maxsize=1_000)
def _named(op: str, spec: int) -> bytes:
    return codec.encode({"op": op}, written=spec)


def _awaited(name: str) -> EventDraft:
    return _event_of("signal.awaited", {"name": name})


def _event_of(type_: str, data: dict[str, Any], *, refs: tuple[tuple[str, str], ...] = ()) -> EventDraft:
    return EventDraft(type=type_, body=codec.encode(data), refs=refs)
