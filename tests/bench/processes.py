"""Real server processes under measurement: started, watched through /proc, killed.

What lives here: `start` and `demo` as child processes. What does not: what is asked of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from durable_core import schema
from durable_core.crypto import new_key_entry
from tests.bench.http import connected

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.bench.bots:bot"
_TICKS = os.sysconf("SC_CLK_TCK")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(\S*)")


@dataclass(slots=True)
class Server:
    """A running server: its port, and the lines it printed with the moment each was read (monotonic seconds)."""

    process: asyncio.subprocess.Process
    started: float
    port: int = 0
    path: str = ""
    lines: list[tuple[float, str]] = field(default_factory=list)
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def children(self) -> list[int]:
        """Its child processes."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    async def line(self, start: str, *, after: int = 0) -> tuple[float, str]:
        """Wait for a line that begins so, from the `after`-th on."""
        async with asyncio.timeout(60):
            while True:
                for found in self.lines[after:]:
                    if found[1].startswith(start):
                        return found
                if self.process.returncode is not None:
                    raise RuntimeError(f"the server ended: {self.process.returncode} {self.lines[-5:]}")
                self._heard.clear()
                await self._heard.wait()

    def listen(self) -> None:
        """Begin to read what it prints."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        if self.process.stdout is None:
            return
        async for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.decode().rstrip()))
            self._heard.set()
        await self.process.wait()
        self._heard.set()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        await self.process.wait()
        if self._reading is not None:
            await self._reading


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss(pid: int) -> float:
    """Resident megabytes of a process (VmRSS)."""
    return _status(pid, "VmRSS:") / 1024


def written(pid: int) -> int:
    """Bytes that a process sent to the disk."""
    found = re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def environment(folder: Path, *, root: Path = ROOT) -> dict[str, str]:
    """Return what a server finds in its environment; the key is kept in the folder, so that a restart opens its data."""
    keys = folder / "key"
    if not keys.exists():
        keys.write_text(new_key_entry())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOORINGS_")}
    return kept | {
        "MOORINGS_DATABASE_URL": f"sqlite:///{folder / 'moorings.db'}",
        "MOORINGS_ENCRYPTION_KEYS": keys.read_text(),
        "PYTHONPATH": str(root),
    }


def prepare(folder: Path) -> None:
    """Make the database of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    schema.upgrade(environment(folder)["MOORINGS_DATABASE_URL"])


async def launch(
    arguments: list[str], *, folder: Path, root: Path = ROOT, more: Mapping[str, str] = MappingProxyType({})
) -> Server:
    """Start the command of a checkout, with `more` in its environment; returns at once."""
    env = environment(folder, root=root) | dict(more)
    log = (folder / "log").open("ab")
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", *arguments, env=env, cwd=root, stdout=asyncio.subprocess.PIPE, stderr=log
    )
    log.close()
    server = Server(process, started)
    server.listen()
    return server


async def ready(server: Server, start: str) -> float:
    """Wait until `/readyz` says ok; return the seconds since the process was started."""
    _, line = await server.line(start)
    found = _ADDRESS.search(line)
    if found is None:
        raise RuntimeError(f"no address in {line!r}")
    server.port, server.path = int(found[1]), found[2]
    async with connected(server.port) as http:
        while (await http.request("GET", "/readyz"))[0] != 200:
            await asyncio.sleep(0.002)
    return time.monotonic() - server.started


@asynccontextmanager
async def serving(
    folder: Path, *, role: str = "all", root: Path = ROOT, more: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Server]:
    """Run `start APP` on a prepared folder until the block ends; ready when it begins."""
    server = await launch(["start", APP, "--port", "0", "--role", role], folder=folder, root=root, more=more)
    try:
        if role == "worker":
            await asyncio.sleep(2)
        else:
            await ready(server, "Listening on")
        yield server
    finally:
        await server.kill(signal.SIGTERM)


@asynccontextmanager
async def launched(folder: Path, *, root: Path = ROOT) -> AsyncIterator[Server]:
    """Run `start APP` until the block ends; nothing is waited for."""
    server = await launch(["start", APP, "--port", "0"], folder=folder, root=root)
    try:
        yield server
    finally:
        await server.kill(signal.SIGTERM)


@asynccontextmanager
async def demonstrating(folder: Path) -> AsyncIterator[Server]:
    """Run `demo` until the block ends; the page's address is printed, nothing is waited for."""
    server = await launch(["demo", "--port", "0", "--no-open", "--data", str(folder)], folder=folder)
    try:
        await server.line("Moorings console")
        yield server
    finally:
        await server.kill(signal.SIGTERM)
