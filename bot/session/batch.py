"""Calls side by side: what is stopped when something stops one of them, and what may finish.

What lives here: waiting for a batch's tasks and letting go of them. What does not: a single call (calls.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bot.edge import being_cancelled
from bot.history import ResultItem
from bot.session.signing import Wanted
from bot.turn.change import NewPrompt
from bot.turn.state import Pending

Tasks: TypeAlias = Mapping[asyncio.Task[None], bool]
"""The calls' tasks, and whether each is a read."""


class Reconsider(Exception):
    """Stop what the step does and decide anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """Seconds that what runs has to end, once it is to."""

    write: float = 30.0
    """A write, when its turn is cancelled or a sibling failed; reads are stopped at once."""
    stop: float = 5.0
    """Whatever was told to stop. Then it is left alone: nothing that it does is recorded any more."""
    drain: float = 2.0
    """As ``stop``, where the process is about to end."""


@dataclass(slots=True)
class Batch:
    """What became of a batch of calls."""

    results: dict[str, ResultItem] = field(default_factory=dict)
    again: list[NewPrompt] = field(default_factory=list)
    """Prompts for calls that were cut off and must not simply run again, and for accounts that calls act with."""
    wanted: list[Wanted] = field(default_factory=list)
    """Calls that wait for an account."""
    joined: list[Pending] = field(default_factory=list)
    """Calls that wait for what was asked on behalf of another."""
    closed: bool = False
    """The batch is over: a call that was left alone may record nothing."""

    @property
    def asks(self) -> tuple[NewPrompt | Pending, ...]:
        """Everything that waits for a person."""
        return (*self.again, *self.joined)

    def ask_nobody(self) -> None:
        """Forget what was to be asked."""
        self.again.clear()
        self.joined.clear()


async def side_by_side(
    tasks: Tasks, batch: Batch, *, changed: asyncio.Event, interrupted: Callable[[], Awaitable[bool]], grace: Grace
) -> None:
    """Wait for all calls.

    When one fails or ``interrupted`` says so, reads are stopped and writes get to finish: an effect that is half done, or done
    and not recorded, is the worst of all. When this task is cancelled everything is stopped.
    Raises: what a call raised (anything before Reconsider), Reconsider.
    """
    try:
        await _wait(tasks, changed, interrupted)
    except Exception:
        reads = [task for task, read in tasks.items() if read]
        await let_go(reads, seconds=grace.stop)
        writes = [task for task, read in tasks.items() if not read and not task.done()]
        if writes:
            await asyncio.wait(writes, timeout=grace.write)
        _raise_first(tasks)
        raise
    finally:
        try:
            await let_go(tasks, seconds=grace.drain if being_cancelled() else grace.stop)
        finally:
            batch.closed = True


async def let_go(tasks: Iterable[asyncio.Task[Any]], *, seconds: float) -> None:
    """Cancel tasks and wait for their ends, but not for ever: one that swallows its cancellation is left alone."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=seconds)


async def _wait(tasks: Tasks, changed: asyncio.Event, interrupted: Callable[[], Awaitable[bool]]) -> None:
    waiting = set(tasks)
    while waiting:
        flag = asyncio.create_task(changed.wait())
        try:
            done, _ = await asyncio.wait({*waiting, flag}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            flag.cancel()
        waiting -= done
        _raise_first(tasks)
        if flag in done and waiting:
            changed.clear()
            if await interrupted():
                raise Reconsider


def _raise_first(tasks: Tasks) -> None:
    """Raise what the first failed call raised; one that was merely stopped counts last."""
    errors = [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, Reconsider))
    if errors:
        raise errors[0]
