"""The keeper: it acts beside a loop that doesn't answer, not beside one that does, and not for ever."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

import pytest

from durable_core import keeper as module
from durable_core.errors import Unavailable
from durable_core.keeper import Keeper

PATIENCE = 30.0
"""Seconds until a test gives up on another thread."""


class Steps(threading.Event):
    """An event whose waits end when the test says so, and which tells the test that somebody waits again."""

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.Queue[bool] = queue.Queue()
        self.waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.release()
        return self.told.get(timeout=PATIENCE)

    def step(self) -> None:
        """Let one look pass, and wait until it is over; nothing else runs on this thread meanwhile."""
        assert self.waits.acquire(timeout=PATIENCE)
        self.told.put(False)
        assert self.waits.acquire(timeout=PATIENCE)
        self.waits.release()

    def end(self) -> None:
        self.told.put(True)


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Watched:
    """A keeper on a thread that the test steps; the test's loop is what it watches."""

    def __init__(self, act: Callable[[], None], limit: float) -> None:
        self.steps = Steps()
        keeper = Keeper(act, every=0.0, limit=limit, what="leases")
        keeper._answered.set()
        watched = (asyncio.get_running_loop(), threading.get_ident(), self.steps)
        self.thread = threading.Thread(target=keeper._watch, args=watched)
        self.thread.start()

    def end(self) -> None:
        self.steps.end()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


async def test_beside_a_loop_that_answers_nothing_is_done() -> None:
    acts: list[int] = []
    watched = Watched(lambda: acts.append(1), limit=600)
    for _ in range(10):
        watched.steps.step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    watched.end()
    assert acts == []


async def test_beside_a_silent_loop_it_acts_at_every_look_and_says_where_that_stands_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    acts: list[float] = []
    watched = Watched(lambda: acts.append(clock.now), limit=600)
    for _ in range(2):  # it becomes silent twice
        watched.steps.step()
        for _ in range(3):
            clock.now += 1
            watched.steps.step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    watched.end()
    assert acts == [1, 2, 3, 4, 5, 6]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "has not answered for 1.0 s, it is at " in told[0]
    assert "test_keeper.py:" in told[0]


async def test_a_loop_that_is_silent_for_too_long_is_given_up_until_it_answers(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    acts: list[float] = []
    watched = Watched(lambda: acts.append(clock.now), limit=5)
    watched.steps.step()
    for _ in range(9):
        clock.now += 1
        watched.steps.step()
    assert acts == [1, 2, 3, 4, 5]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    watched.steps.step()
    clock.now += 1
    watched.steps.step()
    watched.end()
    assert acts == [1, 2, 3, 4, 5, 10]


async def test_an_act_that_fails_is_logged_and_tried_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception] = [Unavailable("locked"), RuntimeError("a fault")]
    acts: list[int] = []

    def act() -> None:
        if faults:
            raise faults.pop(0)
        acts.append(1)

    watched = Watched(act, limit=600)
    for _ in range(4):
        watched.steps.step()
    watched.end()
    assert acts == [1]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.WARNING, logging.ERROR]


async def test_it_acts_from_its_own_thread_while_this_one_waits_and_ends_when_told(caplog: pytest.LogCaptureFixture) -> None:
    acted, threads = threading.Event(), list[int]()

    def act() -> None:
        threads.append(threading.get_ident())
        acted.set()

    keeper = Keeper(act, every=0.01, what="leases")
    keeper.start()
    assert acted.wait(PATIENCE)  # the loop stands still
    assert threading.get_ident() not in threads
    keeper.stop()


def test_a_loop_that_was_left_or_closed_holds_nothing() -> None:
    acts: list[int] = []
    loop = asyncio.new_event_loop()
    steps = Steps()
    keeper = Keeper(lambda: acts.append(1), every=0.0, what="leases")
    keeper._answered.set()
    thread = threading.Thread(target=keeper._watch, args=(loop, threading.get_ident(), steps))
    thread.start()
    for _ in range(3):
        steps.step()
    loop.close()
    steps.told.put(False)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert acts == []
