"""Where author code is called: whatever it raises comes back as a value, and never passes for our own cancellation.

What lives here: tasks and threads around tools, models and policies. What does not: what a failure means to the caller.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger("moorings.edge")

MOST_THREADS: Final = 64
"""How many plain functions run at the same time; a further one waits until one has ended."""


class AuthorCodeBroke(Exception):
    """Author code raised what would have ended the process or a task of ours."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(wording(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How author code ended: with a result, or with an error of any kind."""

    result: T | None
    error: BaseException | None = None

    def value(self) -> T:
        """Return the result. Raises: what the code raised if that is an Exception, else AuthorCodeBroke."""
        if isinstance(self.error, Exception):
            raise self.error
        if self.error is not None:
            raise AuthorCodeBroke(self.error) from self.error
        return self.result  # type: ignore[return-value]


def being_cancelled() -> bool:
    """Tell whether somebody asked to cancel this task; a CancelledError without that has leaked from inside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def contained(work: Awaitable[T]) -> Ended[T]:
    """Await author code in a task of its own; only a cancellation of the calling task is raised."""
    task = asyncio.create_task(_ending(work))
    try:
        return await task
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        return Ended(None, error)


async def limited(work: Awaitable[T], seconds: float | None) -> Ended[T]:
    """As ``contained``, but left alone after so many seconds (a TimeoutError), even if it doesn't heed its cancellation."""
    task = asyncio.create_task(_ending(work))
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        return Ended(None, TimeoutError(f"no answer within {seconds:g} seconds"))
    return Ended(None, asyncio.CancelledError()) if task.cancelled() else task.result()


async def _ending(work: Awaitable[T]) -> Ended[T]:
    # SystemExit and KeyboardInterrupt must not reach the task: it would raise them out of the event loop.
    try:
        return Ended(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - handed on as a value
        return Ended(None, error)


class Threads:
    """Threads for plain functions: daemons, so that one that never ends doesn't keep the process; at most so many at once.

    Not the loop's executor: its threads are waited for at exit, and a few that block would hold up everything else.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._slots = asyncio.Semaphore(most)

    async def run(self, function: Callable[..., T], *arguments: Any) -> Ended[T]:
        """Run a function in a thread. A cancellation stops the waiting, not the thread: that keeps its place until it ends."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended[T]] = loop.create_future()
        context = contextvars.copy_context()

        def told(ended: Ended[T]) -> None:
            self._slots.release()
            if not future.done():
                future.set_result(ended)

        def body() -> None:
            try:
                ended = Ended(context.run(function, *arguments))
            except BaseException as error:  # noqa: BLE001 - handed on as a value
                ended = Ended(None, error)
            try:
                loop.call_soon_threadsafe(told, ended)
            except RuntimeError:
                log.debug("a thread ended after its loop was closed")

        try:
            threading.Thread(target=body, name=f"author-{getattr(function, '__name__', 'code')}", daemon=True).start()
        except BaseException:
            self._slots.release()
            raise
        return await future


def is_async(function: object) -> bool:
    """Tell whether calling it makes a coroutine, which is true whatever it would have answered."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - a callable object's own method is looked at


def misfit(function: object, *parameters: str) -> str | None:
    """Say that an author's function can't be called with these; None if it can, or if what it takes can't be seen.

    Of a decorated one it is the outer function that counts: what that passes on is its own affair.
    """
    if not callable(function):
        return None
    try:
        inspect.signature(function, follow_wrapped=False).bind(*parameters)
    except TypeError:
        return f"is called with ({', '.join(parameters)}), which this function does not take"
    except ValueError:
        pass
    return None


async def asked(function: Callable[..., Any], *arguments: Any, threads: Threads, seconds: float | None) -> Ended[Any]:
    """Ask an author's function, plain or async: a plain one in a thread; left alone after so many seconds."""
    return await limited(_answer(function, arguments, threads), seconds)


async def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], threads: Threads) -> Any:
    if is_async(function):
        answer: Any = function(*arguments)
    else:
        answer = (await threads.run(function, *arguments)).value()
    return await answer if inspect.isawaitable(answer) else answer


def storable(text: str) -> str:
    """Replace what UTF-8 can't hold: halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def wording(error: BaseException) -> str:
    """Name an error by type and message; its own ``__str__`` may fail."""
    try:
        message = storable(str(error))
    except Exception:  # noqa: BLE001 - see above
        message = "its message can't be shown"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
