"""The writer: groups, savepoints, lost commits, locks of other processes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durable_core import failpoints
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.errors import Broken, CommitUnknown, NotFound, Unavailable
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite.connect import connect
from durable_core.stores.sqlite.tx import Tx
from durable_core.stores.sqlite.writer import ADMIT, Writer

ROOT = Path(__file__).resolve().parents[3]


class Watched(sqlite3.Connection):
    """A connection whose statements can be seen, and whose COMMIT can be made to fail."""

    fails = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and type(self).fails:
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)


def writer(make: Callable[[], sqlite3.Connection], changed: list[frozenset[str]] | None = None) -> Writer:
    sealing = Sealing(KeyRing.parse(new_key_entry()))
    on_commit = changed.append if changed is not None else None
    return Writer(make, clock=DatabaseClock(), sealing=sealing, on_commit=on_commit)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "rows.db"
    with closing(connect(str(found))) as connection:
        connection.execute("CREATE TABLE row (n INTEGER PRIMARY KEY, text TEXT)")
    return found


@pytest.fixture
def statements() -> list[str]:
    return []


@pytest.fixture
def changed() -> list[frozenset[str]]:
    return []


@pytest.fixture
async def opened(path: Path, statements: list[str], changed: list[frozenset[str]]) -> AsyncIterator[Writer]:
    def make() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, factory=Watched)
        connection.set_trace_callback(statements.append)
        return connection

    made = writer(make, changed)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def failing_commit() -> Iterator[None]:
    Watched.fails = True
    yield
    Watched.fails = False


def put(n: int, *, error: Exception | None = None) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        tx.run("INSERT INTO row (n) VALUES (?)", (n,))
        tx.changed.add(f"run_{n}")
        if error is not None:
            raise error
        return n

    return work


def stored(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM row ORDER BY n")]


async def together(made: Writer, *works: Callable[[Tx], Any]) -> Sequence[Any]:
    return await asyncio.gather(*(made.run(work) for work in works), return_exceptions=True)


async def test_callers_of_one_moment_share_one_commit(
    opened: Writer, path: Path, statements: list[str], changed: list[frozenset[str]]
) -> None:
    assert await together(opened, *(put(n) for n in range(20))) == list(range(20))
    assert stored(path) == list(range(20))
    assert statements.count("COMMIT") == 1
    assert changed == [frozenset(f"run_{n}" for n in range(20))]


async def test_one_alone_needs_no_savepoint(opened: Writer, statements: list[str]) -> None:
    assert await opened.run(put(1)) == 1
    assert [s.split()[0] for s in statements] == ["BEGIN", "INSERT", "COMMIT"]


async def test_a_group_is_bounded(opened: Writer, path: Path, statements: list[str]) -> None:
    await together(opened, *(put(n) for n in range(300)))
    assert stored(path) == list(range(300))
    assert statements.count("COMMIT") == 3


async def test_an_error_undoes_its_own_operation_only(opened: Writer, path: Path, changed: list[frozenset[str]]) -> None:
    first, second, third = await together(opened, put(1), put(2, error=NotFound("run", "ses_x")), put(3))
    assert (first, third) == (1, 3)
    assert isinstance(second, NotFound)
    assert stored(path) == [1, 3]
    assert changed == [frozenset({"run_1", "run_3"})]


async def test_an_error_of_one_alone_leaves_nothing(opened: Writer, path: Path, changed: list[frozenset[str]]) -> None:
    with pytest.raises(NotFound):
        await opened.run(put(1, error=NotFound("run", "ses_x")))
    assert await opened.run(put(2)) == 2
    assert stored(path) == [2]
    assert changed == [frozenset({"run_2"})]


async def test_a_wrong_statement_is_broken_and_harms_no_neighbour(opened: Writer, path: Path) -> None:
    first, second = await together(opened, lambda tx: tx.run("INSERT INTO nowhere VALUES (1)"), put(2))
    assert isinstance(first, Broken)
    assert (second, stored(path)) == (2, [2])


@pytest.mark.usefixtures("failing_commit")
async def test_a_failed_commit_leaves_its_members_unknown(opened: Writer, path: Path, changed: list[frozenset[str]]) -> None:
    first, second, third = await together(opened, put(1), put(2, error=NotFound("run", "ses_x")), put(3))
    assert (type(first), type(second), type(third)) == (CommitUnknown, NotFound, CommitUnknown)
    assert (stored(path), changed) == ([], [])
    Watched.fails = False
    assert await opened.run(put(4)) == 4


async def test_a_full_disk_fails_the_group_and_may_be_tried_again(opened: Writer, path: Path) -> None:
    def fill(tx: Tx) -> None:
        tx.run("PRAGMA max_page_count = 4")

    await opened.run(fill, plain=True)
    results = await together(opened, put(1), lambda tx: tx.run("INSERT INTO row VALUES (2, ?)", ("x" * 100_000,)), put(3))
    assert isinstance(results[1], Unavailable)
    assert not isinstance(results[1], CommitUnknown)
    survivors = [result for result in results if not isinstance(result, Unavailable)]
    assert stored(path) == survivors
    assert await opened.run(put(4)) == 4


async def test_a_caller_that_goes_away_stops_nothing(opened: Writer, path: Path) -> None:
    caller = asyncio.create_task(opened.run(put(1)))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await opened.run(put(2)) == 2
    assert stored(path) == [1, 2]


async def test_closing_finishes_what_was_accepted(opened: Writer, path: Path) -> None:
    callers = [asyncio.create_task(opened.run(put(n))) for n in range(200)]
    await asyncio.sleep(0)
    await opened.close()
    assert await asyncio.gather(*callers) == list(range(200))
    assert stored(path) == list(range(200))
    with pytest.raises(Unavailable):
        await opened.run(put(201))
    await opened.close()


async def test_a_connection_that_fails_is_told_to_the_opener(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await writer(lambda: connect(str(tmp_path / "nowhere" / "rows.db"))).open()


async def test_failpoints_stand_on_both_sides_of_the_commit(opened: Writer, path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("killed here")

    with failpoints.arm("admit.before_commit", fail), pytest.raises(RuntimeError):
        await opened.run(put(1), label=ADMIT)
    assert stored(path) == []
    with failpoints.arm("admit.after_commit", fail), pytest.raises(RuntimeError):
        await opened.run(put(2), label=ADMIT)
    assert stored(path) == [2]
    with failpoints.arm("admit.before_commit", fail):
        assert await opened.run(put(3)) == 3


async def test_a_lock_that_lasts_is_unavailable(path: Path) -> None:
    made = writer(lambda: connect(str(path), busy_seconds=0.05))
    await made.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first, second = await together(made, put(1), put(2))
        assert (type(first), type(second)) == (Unavailable, Unavailable)
        other.execute("ROLLBACK")
    assert await made.run(put(3)) == 3
    await made.close()
    assert stored(path) == [3]


async def test_other_processes_commits_show_in_the_version(opened: Writer, path: Path) -> None:
    before = await opened.data_version()
    await opened.run(put(1))
    assert await opened.data_version() == before
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO row (n) VALUES (2)")
        other.commit()
    assert await opened.data_version() != before


PROGRAM = """
import asyncio, sys
from tests.durable_core.stores.test_writer import connect, put, writer
async def main(path, first):
    made = writer(lambda: connect(path))
    await made.open()
    print("open", flush=True)
    for start in range(first, first + 200, 20):
        await asyncio.gather(*(made.run(put(n)) for n in range(start, start + 20)))
    await made.close()
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
LOCKED_SECONDS = 4.0


def test_two_processes_wait_for_a_third_that_locks_the_file(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as third:
        third.execute("BEGIN EXCLUSIVE")
        since = time.monotonic()
        arguments = [sys.executable, "-c", PROGRAM, str(path)]
        both = [subprocess.Popen([*arguments, str(first)], cwd=ROOT, stdout=subprocess.PIPE) for first in (0, 1000)]
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
        unlock = threading.Timer(LOCKED_SECONDS - (time.monotonic() - since), lambda: third.execute("COMMIT"))
        unlock.start()
        assert [process.wait(timeout=60) for process in both] == [0, 0]
        assert time.monotonic() - since >= LOCKED_SECONDS
        unlock.join()
        for process in both:
            assert process.stdout is not None
            process.stdout.close()
    assert stored(path) == [*range(200), *range(1000, 1200)]
