"""The tests' side of the processes: started through the zygote, watched, killed, started again.

What lives here: lives and deaths. What does not: what is said to a process (person.py), what has to be true afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.settings import DATABASE_FILE
from durable_core.schema import upgrade
from tests.e2e.data import name_database

STUCK_SECONDS = 16.0
"""A drain takes up to 10 s, and 5 more for what doesn't let go."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class Process:
    """One process from its start to its end."""

    id: str
    pid: asyncio.Future[int]
    port: asyncio.Future[int]
    ended: asyncio.Future[int]
    """The exit status; negative for a signal."""

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and wait for the end."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):  # it ended, and its end is about to be told
                os.kill(await self.pid, number)
        return await asyncio.shield(self.ended)


class Fleet:
    """The zygote and the processes it forked."""

    def __init__(self, zygote: asyncio.subprocess.Process) -> None:
        self._zygote = zygote
        self._ids = itertools.count()
        self._processes: dict[str, Process] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Fleet]:
        """Start the zygote; at the end it takes all its processes along."""
        pipe = asyncio.subprocess.PIPE
        zygote = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.e2e.process", stdin=pipe, stdout=pipe, cwd=ROOT, env=_clean_environment()
        )
        fleet = cls(zygote)
        listening = asyncio.create_task(fleet._listen())
        try:
            yield fleet
        finally:
            assert zygote.stdin is not None
            zygote.stdin.close()
            await listening
            await zygote.wait()

    async def start(self, folder: Path, env: Mapping[str, str]) -> Process:
        loop = asyncio.get_running_loop()
        process = Process(str(next(self._ids)), loop.create_future(), loop.create_future(), loop.create_future())
        self._processes[process.id] = process
        order = {"id": process.id, "folder": os.fspath(folder), "env": dict(env)}
        assert self._zygote.stdin is not None
        self._zygote.stdin.write((json.dumps(order) + "\n").encode())
        await process.pid
        return process

    async def _listen(self) -> None:
        assert self._zygote.stdout is not None
        async for text in self._zygote.stdout:
            line = json.loads(text)
            if "started" in line:
                self._processes[line["started"]].pid.set_result(line["pid"])
            elif "ready" in line:
                self._processes[line["ready"]].port.set_result(line["port"])
            else:
                process = self._processes.pop(line["ended"])
                process.port.cancel()
                process.ended.set_result(line["status"])


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MOORINGS_", "E2E_", "SLACK_"))}


class Crashed(AssertionError):
    """A process ended by itself, in another way than by SIGKILL or as it was told."""


@dataclass(slots=True)
class Server:
    """What runs on one folder: whenever it was killed it is started again, with the same environment."""

    fleet: Fleet
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    deaths: int = 0
    process: Process | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def up(self) -> Process:
        """Return a process that listens.

        Raises: Crashed.
        """
        async with self._starting:
            while True:
                if self.process is None:
                    self.process = await self.fleet.start(self.folder, self.env)
                await asyncio.wait({self.process.port, self.process.ended}, return_when=asyncio.FIRST_COMPLETED)
                if not self.process.ended.done():
                    return self.process
                self._bury(self.process)

    def _bury(self, process: Process) -> None:
        status = process.ended.result()
        if status != -signal.SIGKILL:
            raise Crashed(f"a process ended with {status}: {self.log()[-2000:]}")
        self.deaths += 1
        self.process = None

    async def kill(self) -> None:
        """SIGKILL, now; the next `up` starts it again."""
        if self.process is not None:
            await self.process.kill()

    async def stop(self) -> bool:
        """SIGTERM, and wait until it has drained; False if it was killed meanwhile, and is up again.

        Raises: Crashed.
        """
        if self.process is None:
            return True
        process = self.process
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                status = await process.kill(signal.SIGTERM)
        except TimeoutError:
            os.kill(await process.pid, signal.SIGUSR1)  # its threads' stacks, into the log
            await asyncio.wait({process.ended}, timeout=1)
            await process.kill()
            raise Crashed(f"a process does not end: {self.log()[-6000:]}") from None
        if status == -signal.SIGKILL:
            await self.up()
            return False
        self.process = None
        if status:
            raise Crashed(f"a drained process ended with {status}: {self.log()[-2000:]}")
        return True

    def log(self) -> str:
        path = self.folder / "process.log"
        return path.read_text() if path.exists() else ""


def make_template(folder: Path) -> Path:
    """Make a migrated, empty database that each folder gets a copy of."""
    path = folder / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


Origin = Path | Callable[[], str]
"""Where a folder's data comes from: a file to be copied, or what makes a PostgreSQL database and returns its URL."""


def make_folder(parent: Path, name: str, origin: Origin) -> Path:
    """Make a process's folder; its name is short, so that sockets fit."""
    folder = parent / name
    folder.mkdir(mode=0o700)
    if isinstance(origin, Path):
        shutil.copyfile(origin, folder / DATABASE_FILE)
    else:
        name_database(folder, origin())
    return folder
