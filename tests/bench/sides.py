"""What a measured process is from the outside: started, asked, ended. Sides of a comparison are processes alike, asked in turn.

What lives here: one child process and its lines. What does not: what is asked of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BOUND_SECONDS = 240.0
"""Longest wait for an answer, where the caller names none."""


class SideFailed(Exception):
    """A measured process failed or ended; holds what it said."""


@dataclass(slots=True)
class Side:
    """A running process that answers lines."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    started_ns: int
    versions: dict[str, str] = field(default_factory=dict)

    async def ask(self, what: str, *, bound: float = BOUND_SECONDS, **arguments: object) -> dict[str, Any]:
        """Have it do something and return its answer."""
        if self.process.stdin is None:
            raise SideFailed(self.name)
        self.process.stdin.write(json.dumps({"do": what} | arguments).encode() + b"\n")
        return await self._line(bound)

    async def begun(self) -> None:
        """Wait until it listens."""
        await self._line(60)

    async def _line(self, bound: float) -> dict[str, Any]:
        if self.process.stdout is None:
            raise SideFailed(self.name)
        async with asyncio.timeout(bound):
            line = await self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"failed": self.log.read_text()[-3000:] or "it ended"}
        if "failed" in found:
            raise SideFailed(f"{self.name}: {found['failed']}")
        return found

    async def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def start_side(
    name: str, module: str, *arguments: str, folder: Path, python: str | None = None, more: dict[str, str] | None = None
) -> Side:
    """Start a module as a side; it listens when this returns."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MOORINGS_", "DBOS"))}
    log = folder / f"{name.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic_ns()
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            python or sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=kept | {"PYTHONPATH": str(ROOT)} | (more or {}),
            limit=2**24,
        )
    side = Side(name, process, log, started)
    try:
        await side.begun()
    except BaseException:
        await side.kill()
        raise
    return side


@asynccontextmanager
async def side(
    name: str, module: str, *arguments: str, folder: Path, python: str | None = None, more: dict[str, str] | None = None
) -> AsyncIterator[Side]:
    """Run a side until the block ends, then kill it: nobody measures how it shuts down."""
    found = await start_side(name, module, *arguments, folder=folder, python=python, more=more)
    try:
        yield found
    finally:
        await found.kill()
