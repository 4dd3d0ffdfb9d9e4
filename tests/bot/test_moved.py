"""What the demo's panel moved: kept in a file, told alike by every process, never taken back."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot import housekeeping
from bot.errors import NotReady
from bot.moved import MOST_MARKS, Mark, MarkKind, Moved, MovedClock, MovedFile, clock_of, console_of
from bot.operate import actions as operate
from bot.settings import Settings, kept_keys, own_settings, sqlite_url
from channels.http import WebhookRequest
from durable_core.clock import DatabaseClock, ManualClock
from tests.durable_core.conformance.sqlite import new_file

DAY_MS = 86_400_000


def machine() -> int:
    return time.time_ns() // 1_000_000


def test_nothing_was_moved_where_there_is_no_file(tmp_path: Path) -> None:
    clock = MovedClock(MovedFile(tmp_path))
    assert clock.file.read() == Moved()
    assert clock.override() is None
    assert machine() <= clock.now() <= machine()


def test_what_one_process_writes_all_read(tmp_path: Path) -> None:
    writer, reader = MovedFile(tmp_path), MovedClock(MovedFile(tmp_path))
    assert reader.override() is None
    for days in (3, 6):
        moved = writer.read()
        writer.write(replace(moved, ahead_ms=days * DAY_MS).marked(Mark(days, MarkKind.CLOCK, 3 * DAY_MS)))
        before = machine() + days * DAY_MS
        now = reader.override()
        assert now is not None
        assert before <= now <= reader.now() <= machine() + days * DAY_MS
        assert before / 1000 <= reader.seconds() <= machine() / 1000 + days * 86_400
    assert [mark.at for mark in MovedFile(tmp_path).read().marks] == [3, 6]


def test_time_does_not_go_back_where_the_file_goes_or_is_spoilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = MovedFile(tmp_path)
    file.write(Moved(ahead_ms=DAY_MS, deployment=2))
    assert file.read().ahead_ms == DAY_MS
    file.path.write_text("{}")
    assert file.read() == Moved(ahead_ms=DAY_MS, deployment=2)
    assert "what it said before holds" in caplog.text
    file.path.unlink()
    assert file.read() == Moved(ahead_ms=DAY_MS, deployment=2)


@pytest.mark.parametrize(
    "change",
    [{"ahead_ms": -1}, {"ahead_ms": 1.5}, {"ahead_ms": 10**15}, {"deployment": 0}, {"marks": [{"at": 1, "kind": "x", "to": 1}]}],
    ids=repr,
)
def test_a_file_that_makes_no_sense_is_refused_by_name(tmp_path: Path, change: dict[str, object]) -> None:
    good = {"ahead_ms": 5, "deployment": 1, "marks": []}
    file = MovedFile(tmp_path)
    file.path.write_text(json.dumps(good))
    assert MovedFile(tmp_path).read().ahead_ms == 5
    file.path.write_text(json.dumps(good | change))
    with pytest.raises(NotReady, match=r"moved\.json can't be read .*--data"):
        file.read()


def test_only_the_newest_marks_are_kept() -> None:
    moved = Moved()
    for at in range(MOST_MARKS + 5):
        moved = moved.marked(Mark(at, MarkKind.DEPLOY, 2))
    assert [moved.marks[0].at, len(moved.marks)] == [5, MOST_MARKS]


def test_only_a_folder_of_demo_or_dev_has_a_clock_of_its_own(tmp_path: Path) -> None:
    MovedFile(tmp_path).write(Moved(ahead_ms=DAY_MS))
    assert isinstance(clock_of(Settings(tmp_path, sqlite_url(tmp_path))), DatabaseClock)
    assert isinstance(clock_of(Settings.from_env({}, data=tmp_path)), DatabaseClock)
    kept = clock_of(own_settings({}, tmp_path))
    assert isinstance(kept, MovedClock)


async def test_a_jump_between_signing_and_checking_loses_no_event(tmp_path: Path) -> None:
    clock = MovedClock(MovedFile(tmp_path))
    platform = console_of(tmp_path / "console.db", clock)
    before = await platform.create_thread("one")
    request = WebhookRequest("POST", "/", headers=await platform.sign(b"{}"), body=b"{}")
    clock.file.write(Moved(ahead_ms=DAY_MS))
    assert platform.scheme.verify(request, [await platform.secret()]).request is request
    assert (await platform.create_thread("two")).created_at >= before.created_at + DAY_MS
    await platform.close()
    plain = console_of(tmp_path / "console.db", ManualClock(7))
    assert (await plain.create_thread("three")).created_at < before.created_at + DAY_MS
    await plain.close()


async def test_a_command_on_the_folder_tells_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "moorings.db").write_bytes(new_file())
    kept_keys(tmp_path)
    MovedFile(tmp_path).write(Moved(ahead_ms=DAY_MS))
    for opened in (operate.opened, lambda folder: housekeeping.opened(data=folder)):
        async with opened(tmp_path) as store:
            assert machine() + DAY_MS - 60_000 < await store.now() < machine() + DAY_MS + 60_000
