"""Steps of one run: their attempts as tasks, what became of them, and how often each began.

What lives here: running attempts. What does not: which are wanted (replay), writing down what became of them (commits.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from durable_core import codec
from durable_core.authorizing import Lent
from durable_core.claiming import Claimer
from durable_core.context import StepContext, entering_step
from durable_core.engine.threads import Ended, Threads, called, storable, wording
from durable_core.errors import TooLarge, Unstorable
from durable_core.failures import Fatal
from durable_core.operations import Operation, own_copy
from durable_core.store import Store

VALUE_LIMIT: Final = codec.LIMIT - 16 * 1024
"""Largest result: what it is wrapped in has to fit as well."""
MAX_INTERRUPTED: Final = 4
"""Attempts of a step that may end with their worker before the step fails."""
_WRAPPED: Final = "$.value"
"""Where a value stands in what is stored of it."""
LEAVE_SECONDS: Final = 2.0
"""How long a stopped attempt is waited for when its run is given back."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed."""

    code: str
    message: str
    type: str = ""
    final: bool = False
    """No further attempt could mend it."""
    retry_after: float | None = None

    def data(self, attempts: int) -> dict[str, codec.Storable]:
        """What is stored and handed to the body."""
        return {"code": self.code, "type": self.type, "message": self.message, "attempts": attempts}


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt that ended: with its encoded output, or with a failure."""

    op: Operation
    number: int
    output: bytes
    told: dict[str, Any] | None = None
    """The output read again: what the body is told, its own copy."""
    failure: Failure | None = None


@dataclass(slots=True)
class Tries:
    """How often a step began, how many of these its workers didn't survive, and when it may begin again."""

    begun: int = 0
    interrupted: int = 0
    failed: int = 0
    again_at: int | None = None


@dataclass(slots=True)
class Steps:
    """The attempts of one run."""

    run_id: str
    threads: Threads
    moved: asyncio.Event
    """Set when an attempt ends."""
    tries: dict[str, Tries] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    ended: deque[Attempted] = field(default_factory=deque)
    stopped: set[asyncio.Task[None]] = field(default_factory=set)
    """Told to stop, and not yet ended."""
    unnoted: set[str] = field(default_factory=set)
    """Those whose log doesn't say yet that they began more than once."""
    fence: tuple[Store, int] | None = None
    """The store, and the epoch under which the run is held: what attempts begun from now on claim keys under."""
    deps: object = None
    origin: object = None
    lend: Callable[[str, Any], Lent] | None = None
    """What the layer above lends each attempt."""

    @property
    def idle(self) -> bool:
        """Whether no attempt runs, or has ended untold."""
        return not self.tasks and not self.ended

    def begin(self, op: Operation) -> None:
        """Begin the next attempt of a step, unless too many were cut off."""
        tries = self.tries.setdefault(op.id, Tries())
        if tries.interrupted >= MAX_INTERRUPTED:
            failure = Failure("interrupted", f"its worker stopped in the middle of it {tries.interrupted} times", final=True)
            self._end(failed(op, tries.begun, failure))
            return
        tries.begun += 1
        tries.again_at = None
        if tries.begun > 1:
            self.unnoted.add(op.id)
        self.tasks[op.id] = task = asyncio.create_task(self._attempt(op, tries.begun), name=f"step-{op.id}")
        task.add_done_callback(partial(self._done, op))

    def stop(self, op_id: str) -> None:
        """Stop an attempt that nobody waits for any more, if there is one."""
        self.tries.pop(op_id, None)
        self.unnoted.discard(op_id)
        self._stop(op_id)

    def let_go(self) -> None:
        """Stop all."""
        for op_id in list(self.tasks):
            self._stop(op_id)

    def take_notes(self) -> dict[str, list[int]]:
        """Return how often open steps began, where the log doesn't say, and how often their workers didn't survive it."""
        unnoted, self.unnoted = self.unnoted, set()
        return {op_id: [self.tries[op_id].begun, self.tries[op_id].interrupted] for op_id in sorted(unnoted)}

    async def left(self, seconds: float) -> None:
        """Wait for what was told to stop, but not for ever: one that doesn't heed it is left alone."""
        if self.stopped:
            await asyncio.wait(set(self.stopped), timeout=seconds)

    def _stop(self, op_id: str) -> None:
        task = self.tasks.pop(op_id, None)
        if task is not None:
            self.stopped.add(task)
            task.cancel()

    def _done(self, op: Operation, task: asyncio.Task[None]) -> None:
        op_id = op.id
        self.stopped.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"an attempt of {op_id} broke", "exception": error, "task": task}
            )
        if self.tasks.get(op_id) is task:  # no thread to be had, or an error that can't even be written down
            del self.tasks[op_id]
            broke = error or RuntimeError("it was cancelled from outside")
            self.ended.append(failed(op, self.tries[op_id].begun, Failure("error", wording(broke), type(broke).__name__)))
        self.moved.set()

    def _end(self, attempted: Attempted) -> None:
        self.ended.append(attempted)
        self.moved.set()

    async def _attempt(self, op: Operation, number: int) -> None:
        task = asyncio.current_task()
        if op.fn is None or op.options is None:
            raise RuntimeError(f"{op.id} is no step")
        call = partial(op.fn, *own_copy(op.args), **own_copy(op.kwargs))  # an attempt may change what it was given
        seconds = None if op.options.timeout is None else op.options.timeout.total_seconds()
        lent = self.lend(self.run_id, self.origin) if self.lend is not None else None
        with entering_step(self._facts(op, number, lent)):
            ended = await limited(call, name=op.name, threads=self.threads, seconds=seconds)
        if ended.error is not None and lent is not None:
            ended = Ended(error=await lent.failed(ended.error))
        if self.tasks.get(op.id) is task:
            attempted = _attempted(op, number, ended)
            del self.tasks[op.id]
            self._end(attempted)

    def _facts(self, op: Operation, number: int, lent: Lent | None) -> StepContext:
        claimer = None
        if self.fence is not None:
            store, epoch = self.fence
            loop = asyncio.get_running_loop()
            claimer = Claimer(store=store, run_id=self.run_id, epoch=epoch, operation_id=op.id, attempt=number, loop=loop)
        key = f"{self.run_id}:{op.id}"
        return StepContext(
            run_id=self.run_id,
            operation_id=op.id,
            attempt=number,
            idempotency_key=key,
            claimer=claimer,
            deps=self.deps,
            origin=self.origin,
            lent=lent,
        )


async def limited(call: partial[Any], *, name: str, threads: Threads, seconds: float | None) -> Ended:
    """Call author code, left alone after so many seconds (a TimeoutError), even if it doesn't heed its cancellation."""
    if seconds is None:
        return await called(call, name=name, threads=threads)
    task = asyncio.create_task(called(call, name=name, threads=threads))
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        return Ended(error=_TimedOut(f"no result within {seconds:g} seconds"))
    return task.result()


class _TimedOut(TimeoutError):
    """A step's own limit; a TimeoutError of its code is another thing."""


def _attempted(op: Operation, number: int, ended: Ended) -> Attempted:
    if ended.error is not None:
        return failed(op, number, failure_of(ended.error))
    try:
        output, told = codec.encode_own({"ok": True, "value": ended.value}, limit=VALUE_LIMIT)
    except (Unstorable, TooLarge) as error:
        return failed(op, number, unstorable(error))
    except Exception as error:  # noqa: BLE001 - a subclass of dict or str may do anything when it is read
        return failed(op, number, Failure("unstorable", wording(error), type(error).__name__, final=True))
    return Attempted(op, number, output, cast("dict[str, Any]", told))


def failed(op: Operation, number: int, failure: Failure) -> Attempted:
    """Return an attempt that failed."""
    return Attempted(op, number, codec.encode({"ok": False, "error": failure.data(number)}), failure=failure)


def unstorable(error: Unstorable | TooLarge) -> Failure:
    """Say that a value can't be kept."""
    if isinstance(error, Unstorable) and error.path.startswith(_WRAPPED):  # in what is none of the author's business
        error = Unstorable(f"${error.path.removeprefix(_WRAPPED)}", error.type_name)
    code = "unstorable" if isinstance(error, Unstorable) else "too_large"
    return Failure(code, wording(error), type(error).__name__, final=True)


def failure_of(error: BaseException) -> Failure:
    """Say what an error that left a step means."""
    if isinstance(error, _TimedOut):
        return Failure("timeout", wording(error), "TimeoutError")
    fatal = _fatal(error)
    if fatal is not None:
        return Failure(storable(str(fatal.code or "fatal")), wording(fatal), type(fatal).__name__, final=True)
    return Failure("error", wording(error), type(error).__name__, retry_after=_retry_after(error))


def _fatal(error: BaseException) -> Fatal | None:
    """Find the author's word that no attempt helps; a task group wraps it."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _fatal(one)) is not None), None)
    return error if isinstance(error, Fatal) else None


def _retry_after(error: BaseException) -> float | None:
    """Return what an error says of when to come again; it may be a property that fails, or a number that is none."""
    try:
        after = getattr(error, "retry_after", None)
        return float(after) if isinstance(after, (int, float)) else None
    except Exception:  # noqa: BLE001 - see above
        return None
