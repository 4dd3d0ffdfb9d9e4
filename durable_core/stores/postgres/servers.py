"""Servers: of those that a URL names, the one that takes writes; after a failover, the new one and never the old one.

What lives here: asking them all, and choosing. What does not: a single connection (`connect.py`), reading URLs (`hosts.py`).

All are asked at once: one that is gone without a word answers nobody for seconds. Each promotion of a standby begins a new
timeline. So of two that take writes, which should never be, the newer one is right; and one that is older than what this process
has been on before is an old primary that came back, where whatever is written would be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import asyncpg

from durable_core.errors import Broken, DurableError, Unavailable

_OLD: Final = (
    "it takes writes on timeline {}, and this process has been on timeline {}: it is an old primary that came back; stop it, or"
    " make it a standby"
)
OTHERS_SECONDS: Final = 0.5
"""How long the others are waited for once one takes writes: one of them may be newer."""
AGAIN_SECONDS: Final = 1.0
"""After how long one that took no writes is asked again, while another one says nothing."""


class Answer(NamedTuple):
    """A connection to a server that takes writes, and its timeline; 0 where that isn't told."""

    connection: asyncpg.Connection
    timeline: int


class Seen:
    """The newest timeline that this process has been on."""

    __slots__ = ("timeline",)

    def __init__(self) -> None:
        self.timeline = 0


Ask = Callable[[str], Coroutine[Any, Any, Answer]]


async def newest(urls: Mapping[str, str], ask: Ask, seen: Seen) -> asyncpg.Connection:
    """Connect to the newest of several servers that takes writes; `ask` raises what a store may.

    Raises:
        Unavailable: none does now; what each says.
        Broken: none ever will, as for a wrong password.
    """
    pending = {asyncio.create_task(ask(url)): name for name, url in urls.items()}
    found: dict[str, Answer] = {}
    errors: dict[str, DurableError] = {}
    until: float | None = None
    clock = asyncio.get_running_loop().time
    try:
        while found.keys() | errors.keys() < urls.keys():
            left = None if until is None else max(0.0, until - clock())
            done, _ = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                name = pending.pop(task)
                answer = _judged(task, seen)
                if isinstance(answer, Answer):
                    found[name] = answer
                    until = until or clock() + OTHERS_SECONDS
                    continue
                errors[name] = answer
                if answer.retryable and not found:  # while another one says nothing, this one may be promoted
                    pending[asyncio.create_task(_again(ask, urls[name]))] = name
        if not found:
            raise _none({name: errors[name] for name in urls})
        chosen = found.pop(max(found, key=lambda name: found[name].timeline))
        seen.timeline = max(seen.timeline, chosen.timeline)
        return chosen.connection
    finally:
        for answer in found.values():
            answer.connection.terminate()
        for task in pending:
            task.cancel()
            task.add_done_callback(_let_go)


async def _again(ask: Ask, url: str) -> Answer:
    await asyncio.sleep(AGAIN_SECONDS)
    return await ask(url)


def _judged(task: asyncio.Task[Answer], seen: Seen) -> Answer | DurableError:
    """Return what a server answered; an old primary's answer is an error."""
    error = task.exception()
    if isinstance(error, DurableError):
        return error
    answer = task.result()
    if 0 < answer.timeline < seen.timeline:
        answer.connection.terminate()
        return Unavailable(_OLD.format(answer.timeline, seen.timeline))
    return answer


def _let_go(task: asyncio.Task[Answer]) -> None:
    """Close a connection that isn't needed."""
    if not task.cancelled() and task.exception() is None:
        task.result().connection.terminate()


def _none(errors: Mapping[str, DurableError]) -> DurableError:
    """Say what all said; it passes if any of it does. Its cause is the one that a caller may know."""
    text = "; ".join(f"{name}: {getattr(error, 'reason', error)}" for name, error in errors.items())
    made = Unavailable(text) if any(error.retryable for error in errors.values()) else Broken(text)
    causes = [error.__cause__ for error in errors.values()]
    made.__cause__ = next((cause for cause in causes if isinstance(cause, asyncpg.PostgresError)), causes[0])
    return made
