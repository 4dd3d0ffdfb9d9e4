"""Where an author's steps are called: whatever they raise comes back as a value, and never passes for our own cancellation.

What lives here: tasks and threads around author code. What does not: what a failure means (steps.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from durable_core.lines import is_interrupt
from durable_core.registry import takes_loop

log = logging.getLogger("moorings.engine")

MOST_THREADS: Final = 64
"""How many plain functions run at the same time; a further one waits until one has ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How author code ended: with a value, or with an error of any kind."""

    value: Any = None
    error: BaseException | None = None


class Threads:
    """Threads for plain functions: daemons, so that one that never ends doesn't keep the process; at most so many at once."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._slots = asyncio.Semaphore(most)

    async def run(self, function: Callable[[], Any], name: str) -> Ended:
        """Run a function in a thread. A cancellation stops the waiting, not the thread: that keeps its place until it ends."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()
        context = contextvars.copy_context()

        def told(ended: Ended) -> None:
            self._slots.release()
            if not future.done():
                future.set_result(ended)

        def body() -> None:
            try:
                ended = Ended(context.run(function))
            except BaseException as error:  # noqa: BLE001 - handed on as a value
                ended = Ended(error=error)
            try:
                loop.call_soon_threadsafe(told, ended)
            except RuntimeError:
                log.debug("a thread ended after its loop was closed")

        try:
            threading.Thread(target=body, name=f"step-{name}", daemon=True).start()
        except BaseException:
            self._slots.release()
            raise
        return await future


async def called(function: partial[Any], *, name: str, threads: Threads) -> Ended:
    """Call author code, on the loop if it is a coroutine function, else in a thread."""
    code = getattr(function.func, "__code__", None)  # the sure sign, at a tenth of the cost of asking for all others
    if not (code is not None and code.co_flags & inspect.CO_COROUTINE) and not takes_loop(function.func):
        ended = await threads.run(function, name)
        if ended.error is not None or not inspect.isawaitable(ended.value):
            return ended
        return await ending(ended.value)  # a plain function that returns an awaitable, as wrappers do
    try:
        work = function()
    except Exception as error:  # noqa: BLE001 - handed on as a value
        return Ended(error=error)
    return await ending(work)


async def ending(work: Awaitable[Any]) -> Ended:
    """Await author code. SystemExit and KeyboardInterrupt must not reach the task: it would raise them out of the loop."""
    try:
        return Ended(await work)
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        return Ended(error=error)
    except BaseException as error:  # noqa: BLE001 - handed on as a value
        return Ended(error=error)


def being_cancelled() -> bool:
    """Tell whether somebody asked to cancel this task; a CancelledError without that has leaked from inside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def wording(error: BaseException) -> str:
    """Return an error's message; its own ``__str__`` may fail, and UTF-8 can't hold all that it may say."""
    try:
        message = str(error)
    except BaseException as worse:
        if is_interrupt(worse):
            raise
        message = "its message can't be shown"
    return storable(message)


def storable(text: str) -> str:
    """Return a text as it can be stored."""
    return text[:10_000].encode("utf-8", "replace").decode()
