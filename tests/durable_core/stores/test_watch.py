"""Hearing of changes: one's own at once, other processes' by their bell, and those that ring none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from durable_core import schema
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.model import Admission, CommandKind, NewRun, ToNew
from durable_core.store import Store
from durable_core.stores.open import open_store

KEYS = new_key_entry()
PATIENCE_SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{found}")
    return found


@pytest.fixture
async def stores(path: Path) -> AsyncIterator[tuple[Store, Store]]:
    one, other = (open_store(f"sqlite:///{path}", keys=KeyRing.parse(KEYS), clock=DatabaseClock()) for _ in range(2))
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


class Heard:
    """A listener one can wait for."""

    def __init__(self, store: Store) -> None:
        self.news: asyncio.Queue[Sequence[str] | None] = asyncio.Queue()
        self.stop = store.watch(self.news.put_nowait)

    async def next(self) -> Sequence[str] | None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.news.get()


def admission(n: int) -> Admission:
    new = NewRun(run_id=f"ses_{n}", name="a", creator="alice", header=b"{}", deployment="d", lifetime_ms=None)
    return Admission(
        source="console",
        key=f"key_{n}",
        digest=b"",
        on_conflict="merge",
        submission_id=f"sub_{n}",
        target=ToNew(new=new),
        kind=CommandKind.MESSAGE,
    )


async def test_a_change_is_heard_here_and_in_another_process(stores: tuple[Store, Store]) -> None:
    one, other = stores
    here, there = Heard(one), Heard(other)
    await one.admit(admission(1))
    assert await here.next() == ("ses_1",)
    assert await there.next() == ["ses_1"]


async def test_a_change_without_a_bell_is_found_by_looking(stores: tuple[Store, Store], path: Path) -> None:
    heard = Heard(stores[0])
    await asyncio.sleep(0)  # it starts to look
    await stores[0].reap("nobody")  # behind its first look
    with closing(sqlite3.connect(path)) as silent:
        silent.execute("UPDATE moor_worker SET pid = 0")
        silent.execute("INSERT INTO moor_lane (channel, address) VALUES ('console', 'a')")
        silent.commit()
    assert await heard.next() is None


async def test_who_stops_hears_no_more(stores: tuple[Store, Store]) -> None:
    first, second = Heard(stores[0]), Heard(stores[0])
    first.stop()
    first.stop()
    await stores[0].admit(admission(1))
    assert await second.next() == ("ses_1",)
    assert first.news.empty()
