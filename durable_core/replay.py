"""Replay: drives one body by the entries of its log, to the same place every time.

What lives here: delivering entries, checking them against what the code asks, the body's outcome.
What does not: stores, I/O and time: an engine feeds entries and sees to what is wanted.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from durable_core.awaitables import DetTimer, OpFuture
from durable_core.context import WorkflowContext
from durable_core.failures import ChildFailed, Evicted, HookTaken, NonDeterminism, NotDurable, Poison, StepFailed
from durable_core.ledger import State
from durable_core.lines import home_of
from durable_core.loop import DetLoop
from durable_core.operations import Answer, Entry, EntryKind, Operation, OpKind, Raised, Returned, Webhook
from durable_core.registry import Workflow

_COMPLETES: Final = {
    EntryKind.STEP: OpKind.STEP,
    EntryKind.TIMER: OpKind.TIMER,
    EntryKind.ANSWER: OpKind.ASK,
    EntryKind.CHILD: OpKind.CHILD,
    EntryKind.WEBHOOK: OpKind.WEBHOOK,
}


class Replay:
    """One body on its deterministic loop.

    An engine sets `replaying` before `start()` where there is a log, feeds each entry by `deliver`, says `finish_replay`,
    and then delivers what happens, one entry at a time, seeing to what is `wanted` in between. The value of an entry must
    be the body's own copy: `decode(encode(x))`, live too (CORE, Replay 7). Any `Poison` raised here ends this body: it is
    closed and never driven again. One thread at a time.

    Args:
        workflow: whose body runs.
        args: positional arguments after `ctx`.
        kwargs: keyword arguments.
        run_id: seeds random numbers and the ids of children.
        started_at: milliseconds; the body's clock before the first entry.
        block_limit: seconds of real time that the body may hold the thread at a stretch.
        marks: the marks of all entries of the log: a patch asked for before the first entry is marked in that one.
    """

    def __init__(
        self,
        workflow: Workflow,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        run_id: str,
        started_at: int,
        block_limit: float = 2.0,
        marks: Iterable[str] = (),
    ) -> None:
        home = home_of(workflow.fn.__code__.co_filename) if hasattr(workflow.fn, "__code__") else ""
        self.run_id = run_id
        self.loop = DetLoop(run_id=run_id, now_ms=started_at, home=home, block_limit=block_limit)  # type: ignore[abstract]  # all of it
        self._workflow = workflow
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._main: asyncio.Task[Any] | None = None
        self.position = 0
        """The position after the last entry delivered: a warm body is good only where the log goes on there (CORE, Replay 10)."""
        self._closed = False
        self._replaying = False
        self._marks = set(marks)
        self._decided: dict[str, bool] = {}
        self._new_marks: list[str] = []
        self._progress: list[Any] = []

    @property
    def replaying(self) -> bool:
        """Whether entries are still being fed from the log."""
        return self._replaying

    @replaying.setter
    def replaying(self, value: bool) -> None:
        self._replaying = self.loop.quiet = value

    @property
    def wanted(self) -> tuple[Operation, ...]:
        """What is open, in the order it was asked for; what the body left open when it ended is still in it."""
        return tuple(self.loop.ledger.open.values())

    def take_touched(self) -> list[tuple[str, Operation | None]]:
        """Return what was opened or closed since the last call, by id: the operation where it is open now."""
        touched, self.loop.ledger.touched = self.loop.ledger.touched, {}
        return [(op, self.loop.ledger.open.get(op)) for op in touched]

    @property
    def now(self) -> int:
        """The body's clock, in milliseconds."""
        return self.loop.now_ms

    @property
    def poison(self) -> Poison | None:
        """What stops this body, once something does; may be read from any thread while it runs."""
        return self.loop.poison

    @property
    def outcome(self) -> Returned | Raised | None:
        """How the body ended; None while it goes on."""
        main = self._main
        if main is None or not main.done() or self.loop.poison is not None:
            return None
        if main.cancelled():
            return Raised(asyncio.CancelledError())
        error = main.exception()
        return Returned(main.result()) if error is None else Raised(error)

    def start(self) -> None:
        """Run the body until it waits.

        Raises:
            Poison: see `deliver`.
        """
        self._check_open()
        if self._main is not None:
            raise RuntimeError("this body was started already")
        self._run(self._begin)

    def deliver(self, entry: Entry) -> None:
        """Hand one entry to the body and run it until it waits again.

        A completion of something that the body cancelled meanwhile is ignored, as it will be in every replay.

        Raises:
            NonDeterminism: the entry completes what the code has not asked for, or comes after the code ended.
            NotDurable: the body waits for something that nobody records.
            BodyBlocked: the body held the thread for too long.
            Evicted: `close` was called.
        """
        self._check_open()
        if entry.n < self.position:
            raise ValueError(f"entry {entry.n} was delivered before; the next is {self.position}")
        self.position = entry.n + 1
        self._marks.update(entry.marks)
        if entry.kind is EntryKind.FAILED or entry.kind is EntryKind.ASKED:
            if entry.op and entry.op not in self.loop.ledger.states:
                self._mismatch(entry, "which the code has not asked for")
            return
        if entry.kind is EntryKind.END:
            if self.outcome is None:
                self._mismatch(entry, "where the code goes on")
            return
        if self.outcome is not None:
            self._mismatch(entry, "after the end of the code")
        self._run(self._delivery(entry))

    def finish_replay(self, asked: Iterable[str] = ()) -> None:
        """Say that the log is all fed; from here on things happen for the first time.

        Args:
            asked: ids of operations that the log knows to be open (its questions, its children).

        Raises:
            NonDeterminism: one of them was never asked for by the code.
        """
        self._check_open()
        self.replaying = False
        for op in asked:
            if op not in self.loop.ledger.states:
                raise self._poisoned(
                    NonDeterminism(
                        position=None, recorded=op, asked=list(self.loop.ledger.open), reason="which the code never asked for"
                    )
                )

    def take_marks(self) -> tuple[str, ...]:
        """Return the patches newly asked for since the last call, to be written with the next entry."""
        taken, self._new_marks = tuple(self._new_marks), []
        return taken

    def take_progress(self) -> tuple[Any, ...]:
        """Return what the body showed since the last call."""
        taken, self._progress = tuple(self._progress), []
        return taken

    def close(self) -> None:
        """Drop the body from memory: its `finally` blocks run, and durable operations in them do nothing."""
        if not self._closed:
            self._closed = True
            self.loop.evict()

    # ── what the context asks (context.Host) ──

    def patched(self, patch: str) -> bool:
        """Decide a patch once per run; see `WorkflowContext.patched`."""
        decided = self._decided.get(patch)
        if decided is None:
            decided = self._decided[patch] = patch in self._marks or not self._replaying
            if decided and patch not in self._marks:
                self._new_marks.append(patch)
        return decided

    def progress(self, value: Any) -> None:
        """Keep what the body shows, unless it was shown before."""
        if not self._replaying and not self._closed:
            self._progress.append(value)

    # ── driving ──

    def _begin(self) -> None:
        try:
            coro = self._workflow.fn(WorkflowContext(self), *self._args, **self._kwargs)
        except TypeError as error:  # arguments that don't fit are the run's failure, not the worker's
            coro = _raise(error)
        self._main = self.loop.create_task(coro, name=self._workflow.name, context=contextvars.Context())

    def _delivery(self, entry: Entry) -> Callable[[], object]:
        if entry.kind is EntryKind.CANCEL:
            self._move_clock(entry.at)
            return self._main.cancel if self._main is not None else self._begin
        if entry.kind is EntryKind.SIGNAL:
            self._move_clock(entry.at)
            name = entry.op.partition(":")[2]
            if entry.ok:
                return lambda: self.loop.ledger.signal(name, entry.value)
            if entry.op not in self.loop.ledger.open:
                self._mismatch(entry, "which the code has not asked for")
            return lambda: self.loop.ledger.refuse(name, HookTaken(name))
        state = self.loop.ledger.states.get(entry.op)
        if state is None:
            self._mismatch(entry, "which the code has not asked for")
        if state is State.DONE:
            self._mismatch(entry, "which was completed before")
        if state is State.DROPPED:
            self._move_clock(entry.at)
            return _nothing
        if self.loop.ledger.open[entry.op].kind is not _COMPLETES[entry.kind]:
            self._mismatch(entry, f"which is completed by a {entry.kind.value}")
        operation, target = self.loop.ledger.complete(entry.op)
        self._move_clock(max(entry.at, operation.due_at or 0))
        return lambda: _complete(operation, target, entry)

    def _move_clock(self, at: int) -> None:
        self.loop.now_ms = max(self.loop.now_ms, at)

    def _run(self, first: Callable[[], object]) -> None:
        self.loop.run(first)
        main = self._main
        if main is not None and not main.done() and not self.loop.ledger.open:
            raise self._poisoned(
                NotDurable(
                    what="the body waits, and nothing durable is open that could wake it",
                    line=self.loop.where(),
                    use="wait for ctx.step, ctx.sleep, ctx.ask, ctx.wait_for or ctx.child, not for something of another loop",
                )
            )

    def _check_open(self) -> None:
        if self._closed:
            raise Evicted(self.run_id)
        if self.loop.poison is not None:
            raise self.loop.poison

    def _mismatch(self, entry: Entry, reason: str) -> NoReturn:
        recorded = entry.op or entry.kind.value
        raise self._poisoned(
            NonDeterminism(position=entry.n, recorded=recorded, asked=list(self.loop.ledger.open), reason=reason)
        )

    def _poisoned(self, poison: Poison) -> Poison:
        if self.loop.poison is None:
            self.loop.poison = poison
        return poison


async def _raise(error: Exception) -> NoReturn:
    raise error


def _nothing() -> None:
    """Do nothing: only the clock moved."""


def _complete(operation: Operation, target: OpFuture | DetTimer, entry: Entry) -> None:
    if isinstance(target, DetTimer):
        target._run()  # noqa: SLF001 - a handle is run by its loop
    elif target.done():
        return  # the body completed it itself
    elif entry.kind is EntryKind.ANSWER:
        target.set_result(Answer.of(entry.value))
    elif entry.kind is EntryKind.WEBHOOK:
        target.set_result(Webhook(operation.id, token=entry.value["token"], url=entry.value.get("url")))
    elif entry.ok:
        target.set_result(entry.value)
    elif operation.child is not None:
        target.set_exception(ChildFailed.of(operation.name, operation.child.run_id, entry.value))
    else:
        target.set_exception(StepFailed.of(operation.name, entry.value))
