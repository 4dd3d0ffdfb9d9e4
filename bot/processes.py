"""The worker as a process of its own, and the signals that end one.

What lives here: starting, restarting and stopping the child; draining on SIGTERM. What does not: what a worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

QUICK_DEATHS = 5
QUICK_SECONDS = 10.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STOP_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_SECONDS = 1.0


class WorkerState(StrEnum):
    """Whether the child runs."""

    UP = "up"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class RestartPause:
    """How long to wait before the next start: not at all, unless it keeps dying at once."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=QUICK_DEATHS)
        self._row = 0

    def after(self, *, started: float, died: float) -> float:
        """Return the seconds to wait after a death; times are monotonic seconds."""
        if died - started >= QUICK_SECONDS:
            self._row = 0
        self._deaths.append(died)
        many = len(self._deaths) == QUICK_DEATHS and died - self._deaths[0] < QUICK_SECONDS
        if not many and not self._row:
            return 0.0
        pause: float = min(FIRST_PAUSE * 2**self._row, LONGEST_PAUSE)
        self._row += 1
        return pause


class WorkerProcess:
    """A child process that is there until it is told to stop: it is started again whenever it dies.

    The child is in a session of its own, so that Ctrl-C in a terminal reaches only the parent, which then stops it in order.
    `on_change` is called with the state and the pid (None unless up), in the loop.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        on_change: Callable[[WorkerState, int | None], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._command = tuple(command)
        self._env = dict(env) if env is not None else None
        self._on_change = on_change
        self._sleep = sleep
        self._child: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._state = WorkerState.STOPPED
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """Return the child's process id while it is up."""
        return self._child.pid if self._child is not None and self._state is WorkerState.UP else None

    @property
    def state(self) -> WorkerState:
        """Return whether the child runs."""
        return self._state

    def observe(self, on_change: Callable[[WorkerState, int | None], None]) -> None:
        """Set who is told of changes, in place of whoever was before."""
        self._on_change = on_change

    async def start(self) -> None:
        """Start the child; returns once it has a pid.

        Raises: OSError if there is no such program.
        """
        self._stopping = False
        await self._spawn()
        self._watch = asyncio.create_task(self._keep_up(), name="worker process")

    def kill(self) -> int | None:
        """Kill the child without a word and return its pid; None if there is none right now. It comes back by itself."""
        child, pid = self._child, self.pid
        if child is None or pid is None or child.returncode is not None:
            return None
        child.kill()
        return pid

    async def stop(self, *, seconds: float = STOP_SECONDS) -> int | None:
        """Ask the child to drain, wait, kill it if it takes longer; returns its exit code (None: it wasn't running)."""
        self._stopping = True
        watch, self._watch = self._watch, None
        if watch is None:
            return None
        child = self._child
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                async with asyncio.timeout(seconds):
                    await child.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        watch.cancel()
        await asyncio.wait({watch})
        self._become(WorkerState.STOPPED)
        return child.returncode if child is not None else None

    async def _spawn(self) -> None:
        self._child = await asyncio.create_subprocess_exec(*self._command, env=self._env, start_new_session=True)
        self._become(WorkerState.UP)

    async def _keep_up(self) -> None:
        pause = RestartPause()
        started = time.monotonic()
        while self._child is not None:
            await self._child.wait()
            if self._stopping:
                return
            self._become(WorkerState.RESTARTING)
            seconds = pause.after(started=started, died=time.monotonic())
            if seconds:
                await self._sleep(seconds)
            started = time.monotonic()
            await self._spawn_again(pause)

    async def _spawn_again(self, pause: RestartPause) -> None:
        """Start the child; no memory or no free process is a reason to wait, not to give up."""
        while True:
            try:
                await self._spawn()
            except OSError:
                now = time.monotonic()
                await self._sleep(max(FIRST_PAUSE, pause.after(started=now, died=now)))
            else:
                return

    def _become(self, state: WorkerState) -> None:
        self._state = state
        if self._on_change is not None:
            self._on_change(state, self.pid)


def worker_command(app: str, *, data: str | None = None, since: int = 0) -> list[str]:
    """Return the command line of a worker for an app; it ends when this process does.

    Unfinished runs to which nothing has happened since then are left alone, where that is not 0.
    """
    command = [sys.executable, "-m", "bot", "worker", "--app", app, "--parent", str(os.getpid())]
    if since:
        command += ["--since", str(since)]
    return [*command, "--data", data] if data is not None else command


def child_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a child finds the same packages, wherever this process was started from."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - no pathlib before the first check
    env = dict(environ)
    env.pop("PYTHONSAFEPATH", None)
    if not root.endswith(("site-packages", "dist-packages")):  # a checkout
        env["PYTHONPATH"] = os.pathsep.join(part for part in (root, env.get("PYTHONPATH", "")) if part)
    return env


def die_with_parent(parent: int) -> None:
    """End this process, without a word, when the one that started it is gone.

    On Linux the kernel does it (prctl(2), PR_SET_PDEATHSIG); elsewhere a thread looks once a second. A parent that died before
    this call is noticed by it.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    threading.Thread(target=_watch_parent, args=(parent,), name="parent watch", daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(0)


class StopSignal:
    """SIGTERM and SIGINT: the first asks to drain, the second ends the process at once.

    Make it before anything slow, so that a signal during start-up counts.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._seen = False
        self._last: Callable[[], object] | None = None

    def install(self, *, last: Callable[[], object] | None = None, first: Callable[[], object] | None = None) -> None:
        """Take over the signals of this process.

        `last` is called right before an exit at once, `first` at the first signal, even while something blocks the loop.
        """
        self._last = last
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)
            if first is not None:
                # In place of asyncio's handler, which does nothing: the loop hears of signals by the wake-up descriptor alone.
                signal.signal(number, lambda *_: self._at_once(first))

    async def wait(self) -> None:
        """Return once a signal came."""
        await self._event.wait()

    def is_set(self) -> bool:
        """Tell whether a signal came."""
        return self._event.is_set()

    def _at_once(self, first: Callable[[], object]) -> None:
        if not self._seen:
            self._seen = True
            first()

    def _received(self, number: int) -> None:
        if self._event.is_set():
            if self._last is not None:
                self._last()
            os._exit(128 + number)
        self._event.set()
