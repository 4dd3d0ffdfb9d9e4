"""The watchdog's thread: it looks while a body runs, and sleeps while none does."""

from __future__ import annotations

import threading
from time import sleep as _sleep

import pytest

from durable_core import watchdog as module
from durable_core.watchdog import Watch, Watchdog

PATIENCE = 30.0
"""Seconds until a test gives up on another thread."""


class Sleepy(threading.Event):
    """An event that tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.set()
        return super().wait(timeout)


def watch(limit: float) -> tuple[Watch, threading.Event, list[str | None]]:
    blocked = threading.Event()
    lines: list[str | None] = []

    def told(line: str | None, seconds: float) -> None:
        lines.append(line)
        blocked.set()

    return Watch("run_x", __file__.rpartition("/")[0] + "/", limit, told), blocked, lines


def test_it_tells_once_sleeps_when_nothing_runs_and_wakes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_LOOKS", 0)
    monkeypatch.setattr(module, "_LONGEST", 0.01)
    dog = Watchdog()
    dog._awake = sleepy = Sleepy()
    for _ in range(2):
        one, blocked, lines = watch(0.01)
        outer = dog.enter(one)
        assert outer is None
        assert blocked.wait(PATIENCE)
        assert dog.leave(one, outer) >= 0.01
        assert sleepy.waited.wait(PATIENCE)
        sleepy.waited.clear()
        assert len(lines) == 1
        assert one.told


def test_a_body_inside_of_another_is_watched_and_then_the_outer_one() -> None:
    dog = Watchdog()
    outer, _, _ = watch(60)
    inner, blocked, _ = watch(0.01)
    none = dog.enter(outer)
    around = dog.enter(inner)
    assert around is outer
    assert blocked.wait(PATIENCE)
    dog.leave(inner, around)
    assert dog._running == {threading.get_ident(): outer}
    dog.leave(outer, none)
    assert dog._running == {}


def test_there_is_one_in_a_process() -> None:
    assert module.watchdog() is module.watchdog()


class Clocks:
    """The clocks of a process, in a test's hand; of a body's thread, the processor's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 5.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep as ever: another watchdog of the process may be at work."""
        _sleep(seconds)

    def thread_time(self) -> float:
        return self.cpu


class TestWhatCounts:
    """The time that a body ran, not that in which nothing of its process did."""

    @pytest.fixture
    def clocks(self, monkeypatch: pytest.MonkeyPatch) -> Clocks:
        made = Clocks()
        monkeypatch.setattr(module, "time", made)
        return made

    def test_a_process_that_was_stopped_in_the_middle_of_a_body_is_not_its_fault(self, clocks: Clocks) -> None:
        dog, (one, blocked, _) = Watchdog(), watch(2.0)
        one.begin()
        dog._running[threading.get_ident()] = one
        clocks.now += 60  # stopped, and the watchdog's thread with it
        dog._look_at(one)
        clocks.now += 0.1
        assert one.held() <= 2.0
        assert dog.leave(one, None) <= 2.0
        assert not blocked.is_set()

    def test_nor_where_the_body_goes_on_before_anybody_looked(self, clocks: Clocks) -> None:
        dog, (one, _, _) = Watchdog(), watch(2.0)
        one.begin()
        clocks.now += 60
        assert dog.leave(one, None) <= 2.0

    def test_one_that_waits_is_seen_to_wait(self, clocks: Clocks) -> None:
        dog, (one, blocked, _) = Watchdog(), watch(2.0)
        one.begin()
        one.thread = threading.get_ident()
        dog._running[one.thread] = one
        for _ in range(5):
            clocks.now += 0.5
            dog._look_at(one)
        assert blocked.is_set()
        assert dog.leave(one, None) == 2.5

    def test_one_that_computes_where_nobody_can_look_is_told_by_the_processor(self, clocks: Clocks) -> None:
        dog, (one, _, _) = Watchdog(), watch(2.0)
        one.begin()
        clocks.now += 3
        clocks.cpu += 2.9
        assert dog.leave(one, None) == pytest.approx(2.9)
