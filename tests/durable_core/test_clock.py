"""The time is the database's own unless a manual clock says otherwise."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import timedelta

import pytest

from durable_core.clock import SQLITE_NOW, Clock, DatabaseClock, ManualClock, milliseconds


def now_of(clock: Clock) -> int:
    with closing(sqlite3.connect(":memory:")) as database:
        (now,) = database.execute(f"SELECT {SQLITE_NOW}", {"now": clock.override()}).fetchone()
    assert type(now) is int
    return now


def test_the_database_tells_the_time_to_the_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    now = now_of(DatabaseClock())
    after = time.time_ns() // 1_000_000
    assert before - 1 <= now <= after + 1


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1_700_000_000_000)
    assert now_of(clock) == clock.now_ms == 1_700_000_000_000
    assert clock.advance(timedelta(days=3)) == 1_700_259_200_000
    assert now_of(clock) == clock.now_ms == 1_700_259_200_000


def test_the_epoch_itself_is_a_time() -> None:
    assert now_of(ManualClock(0)) == 0


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        ManualClock(5).advance(timedelta(microseconds=-1))


@pytest.mark.parametrize(
    ("duration", "expected"), [(timedelta(0), 0), (timedelta(microseconds=1), 1), (timedelta(seconds=1.5), 1500)]
)
def test_a_duration_is_rounded_up_so_that_nothing_is_due_early(duration: timedelta, expected: int) -> None:
    assert milliseconds(duration) == expected
