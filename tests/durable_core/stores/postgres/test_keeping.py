"""Keeping what is held while the loop stands still: not behind a row that a transaction of that loop has locked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from durable_core.clock import ManualClock
from durable_core.errors import Unavailable
from durable_core.model import Holdings, Incarnation
from durable_core.store import Store
from durable_core.stores.postgres import alive
from durable_core.stores.postgres.alive import DEAD_AFTER_MS
from durable_core.stores.postgres.hosts import dsn
from durable_core.testing.acts import claims
from durable_core.testing.builders import LEASE, START_MS, message, to_address
from tests.durable_core.conformance.postgres import postgres_store

PATIENCE = 30.0
LONGER = 100 * LEASE
LEASES = "SELECT run_id, lease_until FROM moor_run"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Beside:
    """Prolongs on a thread of its own, and keeps what came of it."""

    def __init__(self, store: Store, held: Holdings, patience: float) -> None:
        self.fault: BaseException | None = None

        def run() -> None:
            try:
                store.prolong("w1", held, lease_ms=LONGER, lane_lease_ms=LONGER, patience=patience)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.fault = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self) -> BaseException | None:
        """Wait for it, while the loop stands still."""
        self.thread.join(2 * PATIENCE)
        assert not self.thread.is_alive()
        return self.fault


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_a_row_that_the_loop_has_locked_holds_up_no_other_and_is_prolonged_once_it_is_free(migrated_url: str) -> None:
    store = postgres_store(migrated_url, ManualClock(START_MS))
    await store.open()
    await store.enrol(Incarnation(owner="w1", deployment="d1"))
    for n in range(3):
        await store.admit(message(to_address(str(n))))
    held = Holdings(runs=tuple((claim.run_id, claim.epoch) for claim in await claims(store)))
    locked, *others = sorted(run_id for run_id, _ in held.runs)
    with psycopg.connect(dsn(migrated_url)) as stuck, psycopg.connect(dsn(migrated_url), autocommit=True) as outside:

        def prolonged() -> set[str]:
            return {run_id for run_id, until in outside.execute(LEASES) if until == START_MS + LONGER}

        stuck.execute("SELECT 1 FROM moor_run WHERE run_id = %s FOR UPDATE", (locked,))
        stuck.execute("SELECT 1 FROM moor_worker FOR UPDATE")
        refused = Beside(store, held, 4.0).end()
        assert isinstance(refused, Unavailable)
        assert prolonged() == set(others)

        waiting = Beside(store, held, PATIENCE)
        until(lambda: outside.execute(WAITING).fetchone() == (1,))
        stuck.commit()
        assert waiting.end() is None
        assert prolonged() == {locked, *others}
    await store.close()


async def test_a_server_that_is_not_there_is_a_fault_that_passes(migrated_url: str, tmp_path: Path) -> None:
    nowhere = postgres_store(f"postgresql://postgres@/none?host={tmp_path}", ManualClock(START_MS))
    assert isinstance(Beside(nowhere, Holdings(), PATIENCE).end(), Unavailable)


async def test_a_silent_loop_s_worker_is_not_taken_for_dead(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_ASK_SECONDS", 0.01)
    clock = ManualClock(START_MS)
    store, other = (postgres_store(migrated_url, clock, pooler=True) for _ in range(2))
    for one in (store, other):
        await one.open()
    owner = store.incarnation
    await store.enrol(Incarnation(owner=owner, deployment="d1"))
    clock.advance(timedelta(milliseconds=DEAD_AFTER_MS + 1))
    with psycopg.connect(dsn(migrated_url), autocommit=True) as outside:  # the loop stands still in here
        beat = "SELECT heartbeat FROM moor_worker WHERE owner = %s"
        until(lambda: outside.execute(beat, (owner,)).fetchone() == (clock.now_ms,))
    assert (await other.due("w2")).dead == ()
    for one in (store, other):
        await one.close()
