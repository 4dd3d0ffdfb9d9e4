"""A running app that says what is done to it, one line each."""

from __future__ import annotations

import asyncio
import os

from bot.app import Bot
from bot.processes import WorkerProcess
from bot.settings import Settings
from tests.bot.server.fake_sessions import FakeApp


def say(*words: object) -> None:
    line = " ".join(["STUB", *map(str, words)])
    os.write(1, f"{line}\n".encode())  # one write: two processes share the pipe


class Console:
    """What the page asks of the worker, and nothing else."""

    store: None = None
    _worker: WorkerProcess

    @property
    def worker(self) -> WorkerProcess:
        return self._worker

    @worker.setter
    def worker(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self.worker_changed()

    def worker_changed(self) -> None:
        say("worker", self._worker.state, self._worker.pid)


class Runtime(FakeApp):
    role: str = ""
    console: Console | None = None
    platform: None = None

    async def start(self) -> None:
        say(self.role, "started", os.getpid())

    async def drain(self, seconds: float) -> None:
        say(self.role, "drains")
        await asyncio.sleep(float(os.environ.get("STUB_DRAIN", "0")))
        say(self.role, "drained")

    async def close(self) -> None:
        say(self.role, "closed")


async def open_runtime(bot: Bot, settings: Settings, *, role: str, console: bool) -> Runtime:
    assert settings.encryption_keys
    runtime = Runtime()
    runtime.role = role
    runtime.console = Console() if console else None
    return runtime
