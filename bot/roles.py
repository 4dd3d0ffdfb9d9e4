"""What a process does until it is told to stop: serve, work, or both.

What lives here: opening the app, listening, draining. What does not: commands and their options (cli.py), checks (preflight.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from bot.processes import StopSignal, WorkerProcess
from bot.rolling import RollingWorker
from bot.settings import Role, Settings

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    from bot.app import Bot
    from bot.runtime import Runtime

_log = logging.getLogger("bot.roles")
_LAST_SECONDS = 4.0
"""After the drain: for what was told to stop, and for closing. Then the process ends, whatever hangs."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and with what beside the API."""

    socket: socket.socket
    _: KW_ONLY
    guards: Sequence[Middleware] = ()
    mount: Callable[[web.Application, Runtime], None] | None = None
    on_ready: Callable[[], None] | None = None


async def run(
    load: Callable[[], Bot],
    settings: Settings,
    *,
    role: Role,
    console: bool = False,
    listening: Listening | None = None,
    worker: WorkerProcess | RollingWorker | None = None,
) -> None:
    """Run until a signal comes, then drain: nothing new is taken, what runs finishes or is handed back.

    The process ends within `settings.drain_seconds` (25) and 5 s more, even if author code blocks a thread, the loop or an exit.

    `load` returns the bot; `console` gives it the console channel of demo and dev. `worker` is a child that works for this
    process; it is started before the bot is loaded, since it has to load it too.
    """
    stop = StopSignal()
    kill = worker.kill if worker is not None else None
    stop.install(last=kill, first=lambda: _end_within(settings.drain_seconds + _LAST_SECONDS, last=kill))
    try:
        if worker is not None:
            await worker.start()
        async with _opened(load(), settings, role=role, console=console) as runtime:
            if worker is not None and (board := runtime.console) is not None:
                board.worker = worker
                worker.observe(lambda *_: board.worker_changed())
            # the web server takes as long to import as all else; interrupted work starts again meanwhile
            web_server = asyncio.create_task(asyncio.to_thread(_import_server)) if listening is not None else None
            await runtime.start()
            if web_server is not None:
                await web_server
            runner = await _listen(runtime, settings, listening) if listening is not None else None
            _keep_imports_out_of_gc()
            await stop.wait()
            await _drain(runtime, runner, worker, seconds=settings.drain_seconds)
    finally:
        if worker is not None:
            await worker.stop(seconds=_LAST_SECONDS)
        if listening is not None:
            listening.socket.close()


def _import_server() -> None:
    import bot.server.app  # noqa: F401, PLC0415 - a worker serves nothing


def _keep_imports_out_of_gc() -> None:
    """What start-up made lives as long as the process: full collections needn't walk it, which they would for 20 ms or more."""
    gc.freeze()
    gc.enable()


@asynccontextmanager
async def _opened(app: Bot, settings: Settings, *, role: Role, console: bool) -> AsyncIterator[Runtime]:
    from bot.runtime import open_runtime  # noqa: PLC0415 - the engine, only where it is needed

    runtime = await open_runtime(app, settings, role=role.value, console=console)
    try:
        yield runtime
    finally:
        await runtime.close()


async def _listen(runtime: Runtime, settings: Settings, listening: Listening) -> web.AppRunner:
    from aiohttp import web  # noqa: PLC0415 - a worker serves nothing

    from bot.server.app import build_app, runner_of  # noqa: PLC0415

    app = build_app(runtime, tokens=settings.api_tokens, guards=listening.guards)
    if listening.mount is not None:
        listening.mount(app, runtime)
    runner = runner_of(app, drain=settings.drain_seconds)
    await runner.setup()
    await web.SockSite(runner, listening.socket).start()
    if listening.on_ready is not None:
        listening.on_ready()
    return runner


def _end_within(seconds: float, *, last: Callable[[], object] | None) -> None:
    """End this process after so long, whatever hangs: an exit of the author's, a thread of the loop's executor.

    What was not handed back by then is taken up as after a crash.
    """

    def end() -> None:
        if last is not None:
            last()
        sys.stderr.write("moorings: not everything ended in time; what is left is taken up by whoever runs next\n")
        sys.stderr.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.name = "end of drain"
    timer.start()


async def _drain(
    runtime: Runtime, runner: web.AppRunner | None, worker: WorkerProcess | RollingWorker | None, *, seconds: float
) -> None:
    """Stop listening, stop the child and let go of work, side by side: together they have one deadline."""
    endings: list[Awaitable[object]] = [runtime.drain(seconds)]
    if runner is not None:
        endings.append(runner.cleanup())
    if worker is not None:
        # the child has the same deadline; it is killed only if even its own end hangs
        endings.append(worker.stop(seconds=seconds + _LAST_SECONDS - 0.5))
    try:
        async with asyncio.timeout(seconds + _LAST_SECONDS):
            results = await asyncio.gather(*endings, return_exceptions=True)
    except TimeoutError:
        _log.warning("not everything ended in time; what is left is taken up by whoever runs next")
        return
    for result in results:
        if isinstance(result, BaseException):
            _log.error("stopping went wrong", exc_info=result)
