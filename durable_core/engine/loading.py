"""Bringing a run's body to where its log ends: from memory where it is warm, else by replay.

What lives here: reading the log, the cache of warm bodies. What does not: going on from there (runner.py).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from durable_core.clock import Clock
from durable_core.engine import formats
from durable_core.engine.live import Bell, Live
from durable_core.engine.starts import Start
from durable_core.engine.steps import Steps, Tries
from durable_core.engine.threads import Threads
from durable_core.engine.wants import Wants
from durable_core.model import Step
from durable_core.operations import Entry, EntryKind, Operation
from durable_core.registry import Workflow
from durable_core.replay import Replay
from durable_core.worker import Held

WARM: Final = 1_000
_BREATHE: Final = 200
"""Entries that are fed before the loop's other work gets its turn."""


class WarmBodies:
    """Bodies of runs that this process gave back lately; one is only as good as its position (CORE, Replay 10)."""

    def __init__(self, limit: int = WARM) -> None:
        self._limit = limit
        self._bodies: OrderedDict[str, tuple[int, int, Live]] = OrderedDict()

    def take(self, held: Held) -> Live | None:
        """Return the body of a claimed run, if nobody had the run since."""
        kept = self._bodies.pop(held.claim.run_id, None)
        if kept is None:
            return None
        epoch, step_no, live = kept
        if (held.claim.epoch, held.claim.step_no) == (epoch + 1, step_no):
            return live
        live.replay.close()
        return None

    def keep(self, live: Live) -> None:
        """Keep a body whose run was just given back."""
        self._bodies[live.run_id] = (live.epoch, live.step_no, live)
        while len(self._bodies) > self._limit:
            _, (_, _, oldest) = self._bodies.popitem(last=False)
            oldest.replay.close()

    def clear(self) -> None:
        """Drop all."""
        while self._bodies:
            self._bodies.popitem()[1][2].replay.close()


@dataclass(slots=True)
class _Log:
    """What a log says beside what the body is told."""

    failed: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By step: how many attempts failed, the last one's number, and when it is to be tried again."""
    results: dict[str, bytes] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    cancel_at: int | None = None
    at: int = 0
    open: dict[str, list[int]] = field(default_factory=dict)
    """By step that began more than once: how often, and how often its worker didn't survive it."""
    taken: Sequence[str] = ()
    """Hooks that were refused with the last entry, and of which the body wasn't told."""


def warm(live: Live, held: Held) -> Live:
    """Go on with a warm body under a new claim."""
    live.held = held
    live.worked = False
    _hang_bell(held, live)
    live.take_in(held.claim)
    return live


async def cold(held: Held, steps: Sequence[Step], start: Start, workflow: Workflow, *, clock: Clock, threads: Threads) -> Live:
    """Build a body and replay its log.

    Raises:
        Poison: the code can't go on from its log, or can't be replayed at all.
        Stranded: a newer version wrote it.
    """
    claim = held.claim
    started_at = steps[0].started_at if steps else (claim.step_started_at or claim.now)
    entries = [_entry(step, claim.run_id) for step in steps]
    marks = [mark for entry, _, _ in entries for mark in entry.marks]
    replay = Replay(workflow, start.args, start.kwargs, run_id=claim.run_id, started_at=started_at, marks=marks)
    try:
        log = _Log(at=started_at)
        replay.replaying = bool(entries)
        replay.start()
        before: set[str] = set()
        for place, (step, (entry, notes, output)) in enumerate(zip(steps, entries, strict=True)):
            if entry is entries[-1][0]:
                before = {op.id for op in replay.wanted}
            replay.deliver(entry)
            _note(log, entry, notes, output, step.output)
            if place % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        asked = [prompt.call_id for prompt in claim.prompts if prompt.outcome is None and prompt.call_id is not None]
        replay.finish_replay(asked)
    except BaseException:
        replay.close()
        raise
    live = Live(
        held=held,
        start=start,
        replay=replay,
        steps=Steps(claim.run_id, threads, asyncio.Event()),
        clock=clock,
        step_no=claim.step_no,
        at=log.at,
        wants=Wants(results=log.results),
        tokens=log.tokens,
        cancel_at=log.cancel_at,
    )
    _hang_bell(held, live)
    live.take_in(claim)
    live.look()
    live.dropped.clear()
    for op in list(live.wants.fresh.values()):
        _resume(live, op, _tries(live, log, op, was_open=op.id in before))
    if entries:  # whoever wrote the last one wrote down with it what the body asked for then
        for op in list(live.wants.unwritten.values()):
            if op.hook is not None and op.hook.name in log.taken:
                live.taken.add(op.hook.name)
            else:
                live.wants.write_down(op)
            if op.child is not None and not op.child.detached:
                live.children[op.id] = op.child.run_id
    return live


def _resume(live: Live, op: Operation, tries: Tries) -> None:
    live.steps.tries[op.id] = tries
    if tries.again_at is not None:
        live.wants.rest(op.id, tries.again_at)
    if tries.begun > 1 or tries.interrupted:
        live.steps.unnoted.add(op.id)


def _hang_bell(held: Held, live: Live) -> None:
    bell = Bell(live.steps.moved)
    if held.changed.is_set():
        bell.set()
    held.changed = bell


def _entry(step: Step, run_id: str) -> tuple[Entry, dict[str, Any], dict[str, Any]]:
    notes = formats.read(formats.Kind.STEP_INPUT, step.input, run_id=run_id)
    output = formats.read(formats.Kind.STEP, step.output, run_id=run_id)
    entry = Entry(
        n=step.n,
        kind=EntryKind(step.kind),
        op=step.name,
        ok=output["ok"],
        value=output["value"] if output["ok"] else output["error"],
        at=notes["at"],
        marks=tuple(notes.get("marks", ())),
    )
    return entry, notes, output


def _note(log: _Log, entry: Entry, notes: dict[str, Any], output: dict[str, Any], stored: bytes) -> None:
    log.open.update(notes.get("open", {}))
    log.taken = notes.get("taken", ())
    if entry.kind is EntryKind.FAILED:
        count = log.failed.get(entry.op, (0, 0, 0))[0]
        log.failed[entry.op] = (count + 1, output["error"]["attempts"], output["again_at"])
        return
    log.at = entry.at
    if entry.kind is EntryKind.CHILD:
        log.results[output["run_id"]] = stored
    elif entry.kind is EntryKind.WEBHOOK:
        log.tokens[entry.value["token"]] = entry.op
    elif entry.kind is EntryKind.CANCEL:
        log.cancel_at = entry.at


def _tries(live: Live, log: _Log, op: Operation, *, was_open: bool) -> Tries:
    """Say how often a step began: as the last entry tells, and once more in each claim since then that ended without one."""
    claim = live.held.claim
    failed, last, again_at = log.failed.get(op.id, (0, 0, None))
    begun, interrupted = log.open.get(op.id, [max(last, 1 if was_open else 0), 0])
    ran = was_open and begun > last
    before = claim.attempt - 1
    begun += max(0, before - 1) if ran else before
    interrupted = min(interrupted + claim.crashes, begun - failed)
    return Tries(begun=begun, interrupted=interrupted, failed=failed, again_at=again_at if begun == last else None)
