"""Event streams over HTTP: NDJSON, or Server-Sent Events for who accepts them.

What lives here: writing, heartbeats, and letting go of whoever left or doesn't read. What does not: where events come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import orjson
from aiohttp import web

from bot.errors import Problem
from bot.server.limits import Limits
from bot.session_api import JsonObject

STREAM_VERSION = "1"
_log = logging.getLogger("bot.server")
_T = TypeVar("_T")


class Stopped(Exception):
    """The server stops."""


class Followers:
    """The requests that wait for something: how many there are, and an end to all of them when the server stops."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._stopping = False
        self._waiting: set[asyncio.Task[Any]] = set()
        self._count = 0

    @property
    def count(self) -> int:
        """Tell how many there are."""
        return self._count

    def stop(self) -> None:
        """Let every waiting request end; later ones end at their first wait."""
        self._stopping = True
        for task in self._waiting:
            task.cancel()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places.

        Raises: Problem (503) when there is none.
        """
        if self._count >= self._limit:
            raise Problem(503, "too_many_followers", "Too many requests wait on this server. Try again soon.", retryable=True)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @contextlib.asynccontextmanager
    async def started(self, call: Coroutine[Any, Any, _T]) -> AsyncIterator[asyncio.Task[_T]]:
        """Run a call as a task that ends with the server, or with the block."""
        task = asyncio.ensure_future(call)
        self._waiting.add(task)
        if self._stopping:
            task.cancel()
        try:
            yield task
        finally:
            self._waiting.discard(task)
            task.cancel()
            await asyncio.wait({task})

    async def wait(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a call.

        Raises: Stopped when the server stops first.
        """
        async with self.started(call) as task:
            await asyncio.wait({task})
            if task.cancelled():
                raise Stopped
            return task.result()


async def write_stream(
    request: web.Request, events: AsyncIterator[JsonObject], *, follow: bool, followers: Followers, limits: Limits
) -> web.StreamResponse:
    """Write events until they end, the reader leaves or the server stops; the iterator is closed whatever happens.

    An error in the middle cuts the connection, so that a reader can't take what it has for the whole; so does a stop, unless the
    reader follows: then the end says nothing, and it reads on from its last index.
    """
    sse = accepts_sse(request)
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream" if sse else "application/x-ndjson",
            "x-moorings-stream-version": STREAM_VERSION,
            "X-Accel-Buffering": "no",
        }
    )
    try:
        await response.prepare(request)
        try:
            await _copy(request, response, events, sse=sse, followers=followers, limits=limits)
        except Stopped:
            if not follow:
                raise
        await _bounded(response.write_eof(), limits)
    except (Stopped, ConnectionError, TimeoutError):
        _cut(request)
    except Exception:  # noqa: BLE001 - the status is out already, the boundary can't answer any more
        _log.exception("a stream broke off: %s", request.rel_url.raw_path)
        _cut(request)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
    return response


async def _copy(
    request: web.Request,
    response: web.StreamResponse,
    events: AsyncIterator[JsonObject],
    *,
    sse: bool,
    followers: Followers,
    limits: Limits,
) -> None:
    """Write each event as it comes, and a heartbeat when none does: only a write tells that the reader has left."""
    heartbeat = b":\n\n" if sse else b"\n"
    while True:
        async with followers.started(_next(events)) as task:
            while not task.done():
                await asyncio.wait({task}, timeout=limits.heartbeat)
                if not task.done():
                    await _write(request, response, heartbeat, limits)
            if task.cancelled():
                raise Stopped
            event = task.result()
        if event is None:
            return
        await _write(request, response, _framed(event, sse=sse), limits)


async def _next(events: AsyncIterator[JsonObject]) -> JsonObject | None:
    return await anext(events, None)


async def _write(request: web.Request, response: web.StreamResponse, data: bytes, limits: Limits) -> None:
    if request.transport is None or request.transport.is_closing():
        raise ConnectionResetError
    await _bounded(response.write(data), limits)


async def _bounded(writing: Coroutine[Any, Any, None], limits: Limits) -> None:
    """A reader that doesn't read is let go: what it hasn't taken would stay in memory."""
    async with asyncio.timeout(limits.stalled_reader):
        await writing


def _framed(event: JsonObject, *, sse: bool) -> bytes:
    line = orjson.dumps(event)
    if not sse:
        return line + b"\n"
    return b"id: %d\ndata: %s\n\n" % (int(event["meta"]["index"]), line)


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def accepts_sse(request: web.Request) -> bool:
    """Tell whether the reader asks for Server-Sent Events."""
    accept = ",".join(request.headers.getall("Accept", []))
    return any(part.partition(";")[0].strip().lower() == "text/event-stream" for part in accept.split(","))
