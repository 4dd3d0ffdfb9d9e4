"""The watchdog's thread: it looks while a body runs, and sleeps while none does."""

from __future__ import annotations

import threading

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
