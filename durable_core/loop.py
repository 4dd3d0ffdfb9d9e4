"""Loop: the deterministic event loop on which a workflow's body runs.

What lives here: scheduling in one order, durable timers, refusing what can't be replayed, running inside another loop.
What does not: what completes operations and when (`replay`), their bookkeeping (`ledger`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine
from math import ceil
from types import CodeType
from typing import Any, Final, NoReturn, TypeVarTuple

from durable_core.awaitables import DetFuture, DetHandle, DetTask, DetTimer, OpFuture, awaiting, named
from durable_core.failures import BodyBlocked, Evicted, NotDurable, Poison
from durable_core.ledger import Ledger
from durable_core.lines import is_interrupt, running_line, stands_in, suspended_line
from durable_core.operations import Hook, Operation, OpKind
from durable_core.watchdog import Watch, watchdog

_Ts = TypeVarTuple("_Ts")

log = logging.getLogger("moorings.replay")

_UNWINDS: Final = 8
"""How often a suspended coroutine is told to leave: each time reaches one more `finally` that awaits (CORE, Replay 5)."""
_FOREVER: Final = 200 * 365 * 86_400.0
"""Seconds; what an infinite delay comes to, so that it is a time that a database takes."""
_LOOK_AT_CLOCK_EVERY: Final = 1024
_WAIT: Final[CodeType | None] = getattr(getattr(tasks, "_wait", None), "__code__", None)
_swap_current_task: Final = getattr(tasks, "_swap_current_task", None)  # 3.12+


class DetLoop(asyncio.AbstractEventLoop):
    """An event loop without I/O, threads or a clock of its own; its time moves when a completion is delivered.

    It runs only within `window()`s. Whatever schedules work on it from elsewhere poisons it.
    """

    def __init__(self, *, run_id: str, now_ms: int, home: str = "", block_limit: float = 2.0) -> None:
        self.home = home
        self.now_ms = now_ms
        self.ledger = Ledger()
        self.poison: Poison | None = None
        self.evicting = False
        self.quiet = False
        """Set while replaying: what a body's lost tasks say was said before."""
        self._started_ms = now_ms
        self._limit = block_limit
        self._ready: deque[events.Handle] = deque()
        self._tasks: list[DetTask] = []
        self._sweep_at = 64
        self._futures_made = 0
        self._tasks_made = 0
        self._thread: int | None = None
        self._watch = Watch(run_id, home, block_limit, self._blocked)

    # ── hashes, poison ──

    def future_hash(self) -> int:
        """Return the hash of the next future."""
        self._futures_made += 1
        return self._futures_made

    def task_hash(self) -> int:
        """Return the hash of the next task, its number: counted apart, since asyncio's own futures differ by version."""
        self._tasks_made += 1
        return self._tasks_made

    def poisoned_by(self, what: str, use: str, *, line: str | None = None) -> Poison:
        """Poison the loop, and return what to raise; the first poison stays."""
        line = line or running_line(sys._getframe(1), self.home) or self.where()  # noqa: SLF001 - the way to a line
        error = NotDurable(what=what, line=line, use=use)
        if self.poison is None:
            self.poison = error
        return error

    def refuse(self, what: str, use: str) -> NoReturn:
        """Poison the loop and raise in the body."""
        raise self.poisoned_by(what, use)

    def _blocked(self, line: str | None, seconds: float) -> None:
        if self.poison is None:
            self.poison = BodyBlocked(line=line or self.where(), seconds=seconds, limit=self._limit)

    # ── what asyncio asks of a loop ──

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.Handle:
        """Run a callback after those that wait already."""
        handle = DetHandle(callback, args, self, context)
        if self._thread != threading.get_ident() and not self.evicting:
            self.poisoned_by(
                f"{getattr(callback, '__qualname__', callback)!s} was scheduled from outside the body",
                "what comes from outside comes by ctx.step(...) or ctx.wait_for(Hook(...))",
            )
        elif not self.evicting:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.Handle:
        """Refuse: threads belong in steps."""
        if not self.evicting:
            self.refuse("call_soon_threadsafe() on a workflow's loop", "threads belong in ctx.step(...)")
        return DetHandle(callback, args, self, context)

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        """Run a callback when a durable timer fires."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        """Run a callback when a durable timer is due; at once where that is past."""
        timer = DetTimer(when, callback, args, self, context)
        if self.evicting:
            return timer
        # Floats miss by less than 10 µs; nothing is due early.
        due_ms = self._started_ms + ceil(min(when, _FOREVER) * 1000 - 0.01)
        if due_ms <= self.now_ms:
            self._ready.append(timer)
        else:
            self.open_timer(due_ms, timer)
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        if isinstance(handle, DetTimer):
            self.ledger.drop(handle.op)

    def time(self) -> float:
        """Return the seconds since the body began, by the log's clock."""
        return (self.now_ms - self._started_ms) / 1000

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future with a counted hash."""
        caller = sys._getframe(1)  # noqa: SLF001 - asyncio.wait() has no other place where its set can be seen
        if caller.f_code is _WAIT:
            self._check_waited(caller.f_locals.get("fs", ()))
        return DetFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        """Return a task; a future is awaited by it. Tasks never start eagerly, whatever 3.12's options say."""
        if asyncio.isfuture(coro):
            coro = awaiting(coro)
        task = DetTask(coro, loop=self, name=name, context=context)
        if len(self._tasks) > self._sweep_at and not self.evicting:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._sweep_at = 2 * len(self._tasks) + 64
        self._tasks.append(task)
        return task

    def is_running(self) -> bool:
        """Return whether this thread is within a window."""
        return self._thread is not None

    def is_closed(self) -> bool:
        """Return False: it is dropped, never closed."""
        return False

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode measures real time."""
        return False

    def get_task_factory(self) -> None:
        """Return None: tasks are ours."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what a task or callback of the body left behind."""
        if not self.quiet and not self.evicting and self.poison is None:
            log.error("%s (workflow %s)", context.get("message"), self._watch.run_id, exc_info=context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Do as `call_exception_handler` does."""
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        """Return None: there is no other than the default."""

    # ── durable operations ──

    def check_inside(self) -> None:
        """Refuse a durable call from a step, a thread or another body: no replay would make it. Raises: RuntimeError."""
        if self._thread == threading.get_ident() or self.evicting:
            return
        if stands_in((task.inner for task in self._tasks), sys._getframe(1)):  # noqa: SLF001 - the collector closes the body
            self.evicting = True
            return
        raise RuntimeError(
            f"this ctx belongs to the body of {self._watch.run_id}, and works in no step, thread or other body; "
            "return what you know from the step, and call ctx in the body"
        )

    def next_id(self, kind: OpKind, name: str) -> str:
        """Return the identity of what the body asks for next. Raises: RuntimeError, Unstorable."""
        self.check_inside()
        return self.ledger.next_id(kind, name)

    def open_operation(self, operation: Operation) -> OpFuture:
        """Open an operation and return its future; while evicting nothing opens and it never completes."""
        future = OpFuture(loop=self)
        if not self.evicting:
            self.ledger.add(operation, future)
        return future

    def open_timer(self, due_ms: int, target: OpFuture | DetTimer) -> None:
        """Open a timer, named by its delay."""
        name = str(due_ms - self.now_ms)
        op = Operation(id=self.ledger.next_id(OpKind.TIMER, name), kind=OpKind.TIMER, name=name, due_at=due_ms)
        self.ledger.add(op, target)

    def sleep(self, delay_ms: int) -> OpFuture:
        """Return a future that completes when a timer fires; on the next turn where there is nothing to wait for."""
        self.check_inside()
        future = OpFuture(loop=self)
        if self.evicting:
            return future
        if delay_ms > 0:
            self.open_timer(self.now_ms + delay_ms, future)
        else:
            self.call_soon(_finish, future)
        return future

    def next_signal(self, hook: Hook) -> OpFuture:
        """Return the next payload of a hook."""
        self.check_inside()
        future = OpFuture(loop=self)
        if not self.evicting:
            self.ledger.wait(hook, future)
        return future

    def dropped(self, future: OpFuture) -> None:
        """Close the operation whose future the body cancelled."""
        if future.op.startswith("signal:"):
            self.ledger.leave(future)
        elif future.op:
            self.ledger.drop(future.op)

    def _check_waited(self, waited: Any) -> None:
        for one in waited:
            if getattr(one, "get_loop", lambda: self)() is not self:
                self.refuse(f"asyncio.wait() on {named(one)}", "use ctx.step(...)")
            if len(waited) > 1 and not isinstance(one, DetFuture | DetTask):
                self.refuse(
                    f"asyncio.wait() on several with a {type(one).__name__}, whose order differs between processes",
                    "make it a task of the body: asyncio.create_task(...)",
                )

    # ── running ──

    def run(self, first: Callable[[], object]) -> None:
        """Call `first` and what it makes ready, until nothing is; raise the poison if there is one.

        It may be called inside another loop's callback: that loop's running state is put aside meanwhile.
        """
        if self._thread is not None:
            raise RuntimeError("a workflow's loop is driven by one caller at a time")
        dog = watchdog()
        outer_loop = events._get_running_loop()  # noqa: SLF001 - CPython offers it to loops
        outer_task = _swap_current_task(outer_loop, None) if _swap_current_task and outer_loop else None
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)  # noqa: SLF001 - same
        # An abandoned generator's `finally` would run when the collector comes, in no order that a log could hold.
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_leave_alone)
        self._thread = threading.get_ident()
        outer_watch = dog.enter(self._watch)
        try:
            first()
            self._drain()
        except BaseException:  # Ctrl-C, or an entry that can't be read: what the body saw of it is not known
            self.poison = self.poison or Evicted(self._watch.run_id)
            raise
        finally:
            seconds = dog.leave(self._watch, outer_watch)
            self._thread = None
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer_loop)  # noqa: SLF001 - same
            if _swap_current_task and outer_loop:
                _swap_current_task(outer_loop, outer_task)
        if seconds > self._limit and not self.evicting:
            self._blocked(self._watch.line, seconds)
        if self.poison is not None and not self.evicting:
            raise self.poison

    def _drain(self) -> None:
        ready = self._ready
        turns = 0
        while ready:
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001 - as BaseEventLoop does
                self._call(handle)
            if self.poison is not None:
                ready.clear()
                return
            turns += 1
            if not turns % _LOOK_AT_CLOCK_EVERY and (seconds := self._watch.held()) > self._limit:
                self._blocked(self._watch.line, seconds)

    def _call(self, handle: events.Handle) -> None:
        try:
            handle._run()  # noqa: SLF001 - as BaseEventLoop does
        except (SystemExit, KeyboardInterrupt) as error:
            if is_interrupt(error):
                raise
            self.poisoned_by(f"a callback raised {error!r}", "a workflow ends by returning or raising")

    def where(self) -> str | None:
        """Return the line on which the body's first unfinished task waits."""
        return next((suspended_line(task.inner, self.home) for task in self._tasks if not task.done()), None)

    def evict(self) -> None:
        """Drop the body: its `finally` blocks run, durable operations in them are inert, nothing of it is raised."""
        self.evicting = True
        self._ready.clear()
        self.run(self._close_all)
        self._tasks.clear()

    def _close_all(self) -> None:
        for task in self._tasks:  # it grows while closing
            # A task that is done may have left its coroutine waiting: for something foreign, which poisoned the loop.
            waits = getattr(task.inner, "cr_frame", None) is not None
            if (waits or not task.done()) and not self._unwind(task):
                # Its next `finally` runs when it is collected, outside the window; operations stay inert there too.
                line = suspended_line(task.inner, self.home)
                log.warning("the body of %s swallows its end at %s", self._watch.run_id, line)

    def _unwind(self, task: DetTask) -> bool:
        """Leave a coroutine by `Evicted`; return whether it is left.

        Not by `close()`: where an inner coroutine awaits in a `finally`, that raises RuntimeError in the outer ones, which
        handlers of `Exception` take for a failure, and drops the inner one half-way.
        """
        for _ in range(_UNWINDS):
            try:
                asyncio._enter_task(self, task)  # noqa: SLF001 - CPython offers it to loops; timeouts ask for the task
                task.inner.throw(Evicted(self._watch.run_id))
            except BaseException as error:  # noqa: BLE001 - it is over, by whatever the author raises at last
                if not isinstance(error, Evicted | StopIteration):
                    log.debug("dropping a task of %s raised %r", self._watch.run_id, error)
                return True
            finally:
                asyncio._leave_task(self, task)  # noqa: SLF001 - same
        return False


def _finish(future: OpFuture) -> None:
    if not future.done():
        future.set_result(None)


def _leave_alone(generator: Any) -> None:
    """Leave an abandoned async generator alone."""


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refused(self: DetLoop, *args: Any, **kwargs: Any) -> NoReturn:
        for one in args:
            if isinstance(one, Coroutine):
                one.close()
        self.refuse(f"loop.{name}() in a workflow body", _USE.get(name, "I/O belongs in ctx.step(...)"))

    return refused


_USE: Final = {
    "run_in_executor": "use ctx.step(fn, ...): sync functions run in a thread",
    "run_until_complete": "await it",
    "run_forever": "await instead",
    "stop": "return from the workflow",
    "close": "return from the workflow",
    "add_signal_handler": "signals belong to the app",
    "remove_signal_handler": "signals belong to the app",
    "set_debug": "the loop of a workflow has no options",
    "set_task_factory": "the loop of a workflow has no options",
    "set_exception_handler": "the loop of a workflow has no options",
}

for _name, _value in vars(asyncio.AbstractEventLoop).items():
    if not _name.startswith("_") and callable(_value) and _name not in vars(DetLoop):
        setattr(DetLoop, _name, _refusal(_name))
del _name, _value
