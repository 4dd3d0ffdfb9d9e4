"""The worker as a child: it comes back, it stops in order, and it never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.processes import QUICK_DEATHS, RestartPause, WorkerProcess, WorkerState, child_env, worker_command
from tests.bot.command import ROOT

DIES = [sys.executable, "-c", "pass"]
POLITE = "import signal, time, pathlib, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); {}; time.sleep(600)"
DEAF = "import signal, time, pathlib, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); {}; time.sleep(600)"


class Watched:
    """A worker and what it told."""

    def __init__(self, command: list[str]) -> None:
        self.changes: asyncio.Queue[tuple[WorkerState, int | None]] = asyncio.Queue()
        self.pauses: asyncio.Queue[float] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.worker = WorkerProcess(command, on_change=lambda state, pid: self.changes.put_nowait((state, pid)), sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.pauses.put_nowait(seconds)
        await self.go_on.wait()

    async def next(self) -> tuple[WorkerState, int | None]:
        async with asyncio.timeout(20):
            return await self.changes.get()


@pytest.fixture
async def kept_up() -> AsyncIterator[Watched]:
    watched = Watched(["sleep", "600"])
    await watched.worker.start()
    yield watched
    await watched.worker.stop(seconds=5)


async def test_a_killed_worker_is_back_at_once(kept_up: Watched) -> None:
    assert await kept_up.next() == (WorkerState.UP, kept_up.worker.pid)
    for _ in range(2):
        before = kept_up.worker.pid
        assert kept_up.worker.kill() == before
        assert await kept_up.next() == (WorkerState.RESTARTING, None)
        state, pid = await kept_up.next()
        assert state is WorkerState.UP
        assert pid not in {None, before}
        assert kept_up.worker.pid == pid
    assert kept_up.pauses.empty()


async def test_there_is_nobody_to_kill_before_the_start_and_after_the_stop() -> None:
    watched = Watched(["sleep", "600"])
    assert watched.worker.kill() is None
    assert watched.worker.state is WorkerState.STOPPED
    await watched.worker.start()
    await watched.worker.stop(seconds=5)
    assert watched.worker.kill() is None
    assert watched.worker.pid is None
    assert await watched.worker.stop() is None


async def test_one_that_keeps_dying_waits_longer_and_longer() -> None:
    watched = Watched(DIES)
    await watched.worker.start()
    async with asyncio.timeout(30):
        assert await watched.pauses.get() == 0.5
    ups = 0
    while not watched.changes.empty():
        ups += watched.changes.get_nowait()[0] is WorkerState.UP
    assert ups == QUICK_DEATHS
    watched.go_on.set()
    async with asyncio.timeout(30):
        assert await watched.pauses.get() == 1.0
    await watched.worker.stop(seconds=5)


def test_the_pause_after_a_death() -> None:
    pause = RestartPause()
    assert [pause.after(started=number, died=number + 0.5) for number in range(4)] == [0, 0, 0, 0]
    assert [pause.after(started=4, died=5.0 + number) for number in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pause.after(started=100, died=111) == 0  # it had lived for a while
    calm = RestartPause()
    assert [calm.after(started=number * 3, died=number * 3 + 1) for number in range(9)] == [0] * 9


async def test_a_stop_lets_the_worker_finish(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    worker = WorkerProcess([sys.executable, "-c", POLITE.format(f"pathlib.Path({str(ready)!r}).write_text('x')")])
    await worker.start()
    assert await asyncio.to_thread(ready.read_text) == "x"
    assert await worker.stop(seconds=20) == 7
    assert worker.state is WorkerState.STOPPED


async def test_a_worker_that_doesnt_listen_is_killed_in_the_end(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    worker = WorkerProcess([sys.executable, "-c", DEAF.format(f"pathlib.Path({str(ready)!r}).write_text('x')")])
    await worker.start()
    assert await asyncio.to_thread(ready.read_text) == "x"
    assert await worker.stop(seconds=0.1) == -signal.SIGKILL


async def test_a_program_that_isnt_there_is_told_at_the_start() -> None:
    with pytest.raises(FileNotFoundError):
        await WorkerProcess(["/nowhere/python"]).start()


@pytest.mark.parametrize("how", ["kernel", "thread"])
async def test_a_child_dies_with_its_parent(tmp_path: Path, how: str) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    pretend = "sys.platform = 'other'; " if how == "thread" else ""
    child = (
        f"import os, sys, time; {pretend}from bot.processes import die_with_parent; die_with_parent(int(sys.argv[1])); "
        f"f = open({str(alive)!r}, 'w'); f.write('x'); f.flush(); time.sleep(600)"
    )
    parent = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())]).wait()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, cwd=ROOT, env=child_env(os.environ))

    def open_pipe() -> int:
        return os.open(alive, os.O_RDONLY)

    pipe = await asyncio.to_thread(open_pipe)
    assert await asyncio.to_thread(os.read, pipe, 1) == b"x"
    process.kill()
    await process.wait()
    async with asyncio.timeout(20):
        assert await asyncio.to_thread(os.read, pipe, 1) == b""  # end of file: nobody holds the other end
    os.close(pipe)


async def test_a_child_whose_parent_was_gone_before_it_looked_ends() -> None:
    code = "from bot.processes import die_with_parent; die_with_parent(1 << 22); print('alive')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE, env=child_env(os.environ)
    )
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"")


def test_a_child_finds_the_packages_of_its_parent() -> None:
    env = child_env({"PYTHONPATH": "/x", "PYTHONSAFEPATH": "1", "HOME": "/h"})
    assert env == {"PYTHONPATH": f"{ROOT}{os.pathsep}/x", "HOME": "/h"}
    command = worker_command("bot.demo:bot", data="/d")
    assert command == [
        sys.executable,
        "-m",
        "bot",
        "worker",
        "--app",
        "bot.demo:bot",
        "--parent",
        str(os.getpid()),
        "--data",
        "/d",
    ]
