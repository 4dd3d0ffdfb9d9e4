"""A SQLite file that is deleted, moved or replaced while it is open: nothing more is accepted into it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from durable_core.clock import DatabaseClock
from durable_core.errors import Broken, FileMoved, Unavailable
from durable_core.model import Holdings
from durable_core.store import Store
from durable_core.testing.builders import message, to_address
from tests.durable_core.conformance.sqlite import file_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "moorings.db"


@pytest.fixture
async def store(tmp_path: Path, path: Path) -> AsyncIterator[Store]:
    made = await file_store(DatabaseClock(), tmp_path)
    await made.open()
    yield made
    await made.close()


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("change", [delete, move, replace])
async def test_a_file_that_is_not_there_any_more_takes_nothing(store: Store, path: Path, change: Callable[[Path], None]) -> None:
    receipt = await store.admit(message(to_address("a")))
    change(path)
    with pytest.raises(FileMoved, match=r"moorings\.db was deleted, moved or replaced"):
        await store.admit(message(to_address("b")))
    with pytest.raises(Broken):
        await store.renew("w1", (), lease_ms=1)
    with pytest.raises(Broken):
        await store.probe()
    faults: list[BaseException] = []

    def beside() -> None:
        try:
            store.prolong("w1", Holdings(), lease_ms=1, lane_lease_ms=1, patience=30)
        except Broken as error:
            faults.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert [type(fault) for fault in faults] == [FileMoved]
    assert (await store.run(receipt.run_id)).run_id == receipt.run_id, "what is there can still be read"


async def test_a_file_that_was_put_back_goes_on(store: Store, path: Path) -> None:
    move(path)
    with pytest.raises(FileMoved):
        await store.admit(message(to_address("a")))
    path.with_suffix(".old").rename(path)
    await store.probe()
    receipt = await store.admit(message(to_address("a")))
    assert receipt.created
    with closing(sqlite3.connect(path)) as outside:
        assert outside.execute("SELECT run_id FROM moor_run").fetchall() == [(receipt.run_id,)]


async def test_a_process_that_changes_its_folder_finds_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await file_store(DatabaseClock(), Path())
    await store.open()
    monkeypatch.chdir(os.sep)
    await store.admit(message(to_address("a")))
    await store.close()


async def test_after_a_write_that_failed_a_probe_writes(store: Store, path: Path) -> None:
    await store.admit(message(to_address("a")))
    with closing(sqlite3.connect(path, isolation_level=None)) as outside:

        def version() -> int:
            return int(outside.execute("PRAGMA data_version").fetchone()[0])

        quiet = version()
        await store.probe()
        assert version() == quiet, "nothing is written while all is well"
        move(path)
        with pytest.raises(FileMoved):
            await store.admit(message(to_address("b")))
        path.with_suffix(".old").rename(path)
        await store.probe()
        assert version() != quiet
        settled = version()
        await store.probe()
        assert version() == settled


async def test_a_lock_that_another_process_keeps_is_a_fault_that_passes(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.rows("SELECT 1", {})
    await store._writer.run(lambda tx: tx.run("PRAGMA busy_timeout = 1"), plain=True)  # type: ignore[attr-defined]
    with closing(sqlite3.connect(path, isolation_level=None)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.probe()
        outside.execute("ROLLBACK")
    await store.probe()
