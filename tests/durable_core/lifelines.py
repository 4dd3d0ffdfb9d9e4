"""Other processes that hold a lifeline, and the files they leave: for the tests of lifelines.

What lives here: processes and paths. What does not: any test.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from durable_core.lifeline import Lifeline

ROOT = Path(__file__).parents[2]
STRANGER = "inc_" + "0" * 26

HOLD = """
import os, subprocess, sys
from durable_core.lifeline import Lifeline
lifeline = Lifeline.open(sys.argv[1])
print(lifeline.incarnation, flush=True)
"""
WAIT = "sys.stdin.read()\n"
LEAVE_A_PROGRAM = """
subprocess.Popen([sys.executable, "-c", "import sys; print('child', flush=True); sys.stdin.read()"], close_fds=False)
"""
LEAVE_A_FORK = """
if os.fork() == 0:
    assert not lifeline.is_alive(lifeline.incarnation)
    lifeline.ring(["ses_1"])
    lifeline.sweep()
    lifeline.close()
    print("child", flush=True)
"""
LISTEN = """
import asyncio
async def main():
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    lifeline.on_ring(lambda run_ids: print(run_ids, flush=True))
    loop.add_reader(sys.stdin.fileno(), end.set)
    print("listening", flush=True)
    await end.wait()
    lifeline.close()
asyncio.run(main())
"""


class Other:
    """Another process that holds a lifeline on the same database."""

    def __init__(self, database: Path, code: str = WAIT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", HOLD + code, str(database)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.incarnation = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def finish(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files(database: Path) -> set[str]:
    return names(Path(f"{database}.live"))


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def files_of(incarnation: str) -> set[str]:
    return {f"{incarnation}.lock", f"{incarnation}.sock"}


def stray_socket(folder: Path, *, name: str = STRANGER) -> socket.socket:
    stray = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stray.bind(str(folder / f"{name}.sock"))
    return stray


class Heard:
    """Collect rings and let a test wait for the next one."""

    def __init__(self, lifeline: Lifeline) -> None:
        self.rings: asyncio.Queue[list[str] | None] = asyncio.Queue()
        lifeline.on_ring(self.rings.put_nowait)

    async def next(self) -> list[str] | None:
        return await asyncio.wait_for(self.rings.get(), 30)
