"""A rolling deploy of the worker's process: the new one works before the old one ends, or the old one stays."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.processes import WorkerProcess, WorkerState
from bot.rolling import RollingWorker, RolloutFailed, RolloutStage

SLEEPS = ["sleep", "600"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, sys, time; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w'); time.sleep(600)",
]


class Fleet:
    """A worker that rolls, and what is known of each process; `commands` says what a deployment runs."""

    def __init__(self) -> None:
        self.commands: dict[str, list[str]] = {}
        self.steps: list[str] = []
        self.told = asyncio.Event()
        self.worker = RollingWorker(lambda name: WorkerProcess(self.commands.get(name, SLEEPS)), "v1")
        self.worker.observe(lambda *_: self.told.set())

    async def ready(self, pid: int) -> bool:
        self.steps.append(f"asked of {'a new one' if pid != self.worker.pid else 'the old one'}")
        return len(self.steps) > 1

    async def never(self, pid: int) -> bool:
        self.steps.append("asked")
        return False

    async def adopt(self) -> None:
        self.steps.append(f"adopted while {self.worker.deployment} is {self.worker.state}")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet()
    await made.worker.start()
    yield made
    await made.worker.stop(seconds=5)


async def test_the_new_one_is_at_work_before_the_old_one_ends(fleet: Fleet) -> None:
    worker, old = fleet.worker, fleet.worker.pid
    rollout = worker.deploy("v2", ready=fleet.ready, adopt=fleet.adopt)
    assert (worker.stage, worker.pid) == (RolloutStage.STARTING, old)
    async with asyncio.timeout(30):
        await rollout
    assert fleet.steps == ["asked of a new one", "asked of a new one", "adopted while v1 is up"]
    assert (worker.deployment, worker.stage, worker.leaving, worker.state) == ("v2", None, None, WorkerState.UP)
    assert old is not None
    assert worker.pid not in {None, old}
    assert not alive(old)


async def test_what_is_told_of_is_the_one_that_takes_what_comes(fleet: Fleet) -> None:
    async with asyncio.timeout(30):
        await fleet.worker.deploy("v2", ready=fleet.ready, adopt=fleet.adopt)
        fleet.told.clear()
        before = fleet.worker.kill()
        while fleet.worker.pid in {None, before}:
            await fleet.told.wait()
            fleet.told.clear()
    assert fleet.worker.deployment == "v2"


async def test_one_that_does_not_come_to_work_leaves_the_old_one_at_it(fleet: Fleet) -> None:
    old = fleet.worker.pid
    with pytest.raises(RolloutFailed, match="v2 was not at work after 0 s; what ran before runs on"):
        await fleet.worker.deploy("v2", ready=fleet.never, adopt=fleet.adopt, seconds=0)
    assert (fleet.worker.pid, fleet.worker.deployment, fleet.worker.stage) == (old, "v1", None)
    assert "adopted" not in " ".join(fleet.steps)
    fleet.steps = []
    async with asyncio.timeout(30):
        await fleet.worker.deploy("v2", ready=fleet.ready, adopt=fleet.adopt)
    assert fleet.worker.deployment == "v2"


@pytest.mark.parametrize("what", ["start", "adopt"])
async def test_one_that_cannot_be_started_or_kept_changes_nothing(fleet: Fleet, what: str) -> None:
    old = fleet.worker.pid
    seen: list[int] = []

    async def ready(pid: int) -> bool:
        seen.append(pid)
        return True

    async def full() -> None:
        raise OSError(28, "no space left on the device")

    if what == "start":
        fleet.commands["v2"] = ["/no/such/program"]
    with pytest.raises(OSError, match=r"No such file|no space"):
        await fleet.worker.deploy("v2", ready=ready, adopt=full)
    assert (fleet.worker.pid, fleet.worker.deployment, fleet.worker.stage) == (old, "v1", None)
    assert [alive(pid) for pid in seen] == ([] if what == "start" else [False])


async def test_one_at_a_time(fleet: Fleet) -> None:
    rollout = fleet.worker.deploy("v2", ready=fleet.ready, adopt=fleet.adopt)
    with pytest.raises(RuntimeError, match="under way"):
        fleet.worker.deploy("v3", ready=fleet.ready, adopt=fleet.adopt)
    async with asyncio.timeout(30):
        await rollout


async def test_a_stop_while_one_starts_ends_both(fleet: Fleet) -> None:
    asked = asyncio.Event()
    pids = [fleet.worker.pid]

    async def ready(pid: int) -> bool:
        pids.append(pid)
        asked.set()
        return False

    rollout = fleet.worker.deploy("v2", ready=ready, adopt=fleet.adopt)
    async with asyncio.timeout(30):
        await asked.wait()
        await fleet.worker.stop(seconds=10)
    assert rollout.cancelled()
    assert not any(alive(pid) for pid in pids if pid is not None)


async def test_a_stop_while_a_deaf_one_drains_ends_both(tmp_path: Path) -> None:
    fleet, deaf = Fleet(), tmp_path / "deaf"
    fleet.worker = RollingWorker(lambda name: WorkerProcess([*DEAF, str(deaf)] if name == "v1" else SLEEPS), "v1")
    await fleet.worker.start()
    old = fleet.worker.pid

    async def ready(_: int) -> bool:
        return deaf.exists()

    rollout = fleet.worker.deploy("v2", ready=ready, adopt=fleet.adopt)
    async with asyncio.timeout(30):
        while fleet.worker.stage is not RolloutStage.DRAINING:
            await asyncio.sleep(0)
        new = fleet.worker.pid
        await fleet.worker.stop(seconds=0.05)
        await rollout
    assert not any(alive(pid) for pid in (old, new) if pid is not None)
