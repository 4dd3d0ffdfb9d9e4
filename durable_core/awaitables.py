"""Awaitables: futures, tasks and callbacks of the deterministic loop.

What lives here: counted hashes, the guard that sees what a body awaits. What does not: scheduling (`loop`).
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from durable_core.lines import is_interrupt, suspended_line

if TYPE_CHECKING:
    from durable_core.loop import DetLoop


class DetFuture(asyncio.Future[Any]):
    """A future with a counted hash: sets of futures have one order in every process (CORE, Replay 1)."""

    def __init__(self, *, loop: DetLoop) -> None:
        self._hash = loop.future_hash()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._hash

    def add_done_callback(self, fn: Callable[..., object], /, *, context: contextvars.Context | None = None) -> None:
        """Register a callback; `asyncio.as_completed` is refused by its callback, it keeps sets of coroutines."""
        if getattr(fn, "__module__", None) == "asyncio.tasks":
            _refuse_as_completed(fn, self.get_loop())
        super().add_done_callback(fn, context=context)


class OpFuture(DetFuture):
    """The future of one durable operation; cancelling it closes the operation."""

    def __init__(self, *, loop: DetLoop) -> None:
        super().__init__(loop=loop)
        self.op = ""

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel, and tell the ledger that nobody waits any more."""
        if not super().cancel(msg=msg):
            return False
        self.get_loop().dropped(self)  # type: ignore[attr-defined]  # made by a DetLoop only
        return True


class DetTask(asyncio.Task[Any]):
    """A task with a counted hash and a guarded coroutine."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: DetLoop,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self._hash = number = loop.task_hash()
        self.inner = coro
        super().__init__(Guard(coro, loop), loop=loop, name=name or f"task-{number}", context=context)
        self._log_destroy_pending = False  # a body is dropped while it waits: that is no fault
        # asyncio keeps all tasks of the process in one set, whose order no log can hold: all_tasks() knows none of a body's.
        asyncio._unregister_task(self)  # noqa: SLF001 - CPython offers it to loops

    def __hash__(self) -> int:
        return self._hash

    def add_done_callback(self, fn: Callable[..., object], /, *, context: contextvars.Context | None = None) -> None:
        """Register a callback; see `DetFuture.add_done_callback`."""
        if getattr(fn, "__module__", None) == "asyncio.tasks":
            _refuse_as_completed(fn, self.get_loop())
        super().add_done_callback(fn, context=context)


def _refuse_as_completed(fn: Callable[..., object], loop: asyncio.AbstractEventLoop) -> None:
    name = getattr(fn, "__qualname__", "")
    if name.startswith(("as_completed.", "_AsCompletedIterator.")):
        loop.refuse("asyncio.as_completed() has another order in every process", "use ctx.as_completed(...)")  # type: ignore[attr-defined]


class Guard(Coroutine[Any, Any, Any]):
    """A task's coroutine, watched: a future of another loop poisons the body instead of being awaited (CORE, Replay 3).

    The body isn't told: it stays suspended where it is, so none of its handlers runs.
    """

    __slots__ = ("__name__", "__qualname__", "__weakref__", "_coro", "_loop", "_send")

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: DetLoop) -> None:
        self._coro = coro
        self._loop = loop
        self._send = coro.send
        self.__name__ = getattr(coro, "__name__", type(coro).__name__)
        self.__qualname__ = getattr(coro, "__qualname__", self.__name__)

    def send(self, value: Any, /) -> Any:
        try:
            awaited = self._send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            if is_interrupt(error):
                raise
            raise _exited(error) from error
        if awaited is None or (isinstance(awaited, asyncio.Future) and awaited.get_loop() is self._loop):
            return awaited
        raise self._foreign(awaited)

    def throw(self, *args: Any) -> Any:
        try:
            awaited = self._coro.throw(*args)
        except (SystemExit, KeyboardInterrupt) as error:
            if is_interrupt(error):
                raise
            raise _exited(error) from error
        if awaited is None or (isinstance(awaited, asyncio.Future) and awaited.get_loop() is self._loop):
            return awaited
        raise self._foreign(awaited)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # type: ignore[return-value]  # it has send, throw and close, which is all a task asks for

    @property
    def cr_frame(self) -> Any:
        """The frame of the coroutine, for `Task.print_stack`."""
        return getattr(self._coro, "cr_frame", None)

    @property
    def cr_code(self) -> Any:
        """Its code."""
        return getattr(self._coro, "cr_code", None)

    @property
    def cr_running(self) -> bool:
        """Whether it is running."""
        return bool(getattr(self._coro, "cr_running", False))

    @property
    def cr_await(self) -> Any:
        """What it awaits."""
        return getattr(self._coro, "cr_await", None)

    def _foreign(self, awaited: object) -> BaseException:
        line = suspended_line(self._coro, self._loop.home)
        if asyncio.isfuture(awaited):
            awaited._asyncio_future_blocking = False  # noqa: SLF001 - as it was before this body awaited it: its own loop goes on
        return self._loop.poisoned_by(f"the body awaited {named(awaited)}, which nobody records", "use ctx.step(...)", line=line)


def _exited(error: BaseException) -> RuntimeError:
    """Say that a body wanted to end the process. Such an error in a task would leave the loop, and the worker with it."""
    return RuntimeError(f"the body raised {error!r}; a workflow ends by returning or raising")


def named(awaited: object) -> str:
    """Say what a body awaited, in words that are the same each time."""
    if isinstance(awaited, asyncio.Task):
        return f"a task of another event loop ({getattr(awaited.get_coro(), '__qualname__', '?')})"
    if asyncio.isfuture(awaited):
        return f"a {type(awaited).__name__} of another event loop"
    return f"a {type(awaited).__module__}.{type(awaited).__qualname__}, which is no future"


class DetHandle(events.Handle):
    """A callback to run; made without asking the loop for its debug mode."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class DetTimer(events.TimerHandle):
    """A timer: known to the outside as an operation that is due at a time; never a row (CORE, Replay 8)."""

    __slots__ = ("op",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._scheduled = True  # so that cancelling tells the loop
        self.op = ""


async def awaiting(future: asyncio.Future[Any]) -> Any:
    """Await a future as a coroutine, for `TaskGroup.create_task(ctx.step(...))`."""
    return await future
