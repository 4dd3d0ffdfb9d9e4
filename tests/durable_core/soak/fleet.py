"""Worker processes under a test's hand: started, killed, frozen, started again.

What lives here: the processes. What does not: what they run (`app`), and any judgement.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
PATIENCE: Final = 60
"""Seconds until a process that says nothing is taken for hung."""


@dataclass(slots=True)
class Worker:
    """One process; `owner` names this start of it in the effects."""

    owner: str
    process: Process
    log: IO[bytes]

    async def heard(self) -> dict[str, Any]:
        """Read its next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise AssertionError(f"{self.owner} ended: {self.process.returncode} {self.log.read().decode()[-2000:]}")
        return dict(json.loads(line))

    async def heard_of(self, name: str) -> Any:
        """Read lines until one has this field."""
        while name not in (said := await self.heard()):
            pass
        return said[name]

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    async def tell(self, text: str) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        await self.process.stdin.drain()

    async def kill(self) -> None:
        """Kill -9, wait until it is gone, and read the rest, so that the pipe closes with the process."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()
        self.log.close()


@dataclass(slots=True)
class Fleet:
    """The workers of one test on one database."""

    url: str
    effects: str
    more: tuple[str, ...] = ()
    workers: list[Worker] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    count: int = 0

    async def start(self) -> Worker:
        """Start one more; it works when this returns."""
        self.workers.append(await self._launched())
        await self.workers[-1].heard_of("ready")
        return self.workers[-1]

    async def replace(self, place: int) -> None:
        """Kill one, and start another in its place."""
        old = self.workers[place]
        self.killed.add(old.owner)
        await old.kill()
        self.workers[place] = await self._launched()
        await self.workers[place].heard_of("ready")

    async def _launched(self) -> Worker:
        self.count += 1
        owner = f"w{self.count}"
        command = (sys.executable, "-m", "tests.durable_core.soak.app", self.url, self.effects, owner, *self.more)
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        return Worker(owner, await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=log, cwd=ROOT), log)

    async def close(self) -> None:
        """Kill all."""
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.send(signal.SIGCONT)
            await worker.kill()


@asynccontextmanager
async def fleet(url: str, effects: str, size: int, *more: str) -> AsyncIterator[Fleet]:
    """Run so many workers until the block ends."""
    found = Fleet(url, effects, more)
    try:
        for _ in range(size):
            await found.start()
        yield found
    finally:
        await found.close()
