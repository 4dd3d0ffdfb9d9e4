"""A running app that says what is done to it, one line each."""

from __future__ import annotations

import asyncio
import os

from bot.processes import WorkerProcess, WorkerState
from bot.settings import Settings
from tests.bot.server.fake_sessions import FakeApp


def say(*words: object) -> None:
    print("STUB", *words, flush=True)


class Runtime(FakeApp):
    role: str = ""
    console = None

    def attach_worker(self, worker: WorkerProcess) -> None:
        self.changed(worker.state, worker.pid)
        worker.observe(self.changed)

    def changed(self, state: WorkerState, pid: int | None) -> None:
        say("worker", state, pid)

    async def start(self) -> None:
        say(self.role, "started", os.getpid())

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - the seam's name
        say(self.role, "drains")
        await asyncio.sleep(float(os.environ.get("STUB_DRAIN", "0")))
        say(self.role, "drained")

    async def close(self) -> None:
        say(self.role, "closed")


async def open_runtime(bot: object, settings: Settings, *, role: str) -> Runtime:
    assert settings.encryption_keys
    runtime = Runtime()
    runtime.role = role
    return runtime
