"""A SQLite file's clock jumps while processes work on it: who holds something keeps it, all else comes due."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from durable_core.clock import ManualClock, milliseconds
from durable_core.model import AnswerPolicy, AnswerStatus, PromptOutcome, VaultWrite
from durable_core.store import Store
from durable_core.stores.sqlite.passing import pass_time
from durable_core.stranding import readers
from durable_core.testing.acts import (
    accept,
    asked,
    asleep,
    claim_one,
    claims,
    enrol,
    interaction_one,
    lane_one,
    park,
    parked,
    start,
)
from durable_core.testing.builders import LEASE, START_MS, answer
from tests.durable_core.conformance.sqlite import file_store

DAYS = timedelta(days=3)
MOST = milliseconds(DAYS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    made = await file_store(clock, tmp_path)
    await made.open()
    await enrol(made)
    yield made
    await made.close()


def jump(tmp_path: Path, clock: ManualClock) -> None:
    pass_time(str(tmp_path / "moorings.db"), MOST, now=lambda: clock.now_ms, move=lambda: clock.advance(DAYS))


async def test_who_holds_a_run_keeps_it_and_a_timer_comes_due(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    sleeper = await parked(store, address="console:v1:sleeper", timer_at=START_MS + MOST)
    held = await start(store)
    jump(tmp_path, clock)
    due = await claims(store, "w2")
    assert [claim.run_id for claim in due] == [sleeper]
    assert await store.reap("w3") == 0
    assert held.run_id in await store.renew("w1", [(held.run_id, held.epoch)], lease_ms=LEASE)
    await park(store, held)


async def test_a_lease_that_was_over_is_over(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    lost = await start(store)
    clock.advance(timedelta(milliseconds=LEASE + 1))
    jump(tmp_path, clock)
    assert (await claim_one(store, "w2")).run_id == lost.run_id


async def test_who_sends_decides_or_renews_keeps_it(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    await store.vault_write((VaultWrite(name="token", kind="k", owner="o", value=b"v", about=b""),))
    assert await store.vault_hold("token", "w1", ms=LEASE) is not None
    claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
    lane = await lane_one(store)
    await store.answer(answer(prompt_id))
    await interaction_one(store)
    jump(tmp_path, clock)
    assert await store.claim_lanes("w2", limit=10, lease_ms=LEASE) == []
    assert await store.take_interactions("w2", limit=10, lease_ms=LEASE) == []
    held = await store.vault_hold("token", "w2", ms=LEASE)
    assert held is not None
    assert held.holder == "w1"
    assert lane.items
    assert claim.run_id
    assert all(one.lives(clock.now_ms) for one in await readers(store))


async def test_an_expiry_comes_due(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    _, prompt_id = await asked(store, expires_at=START_MS + MOST)
    jump(tmp_path, clock)
    late = await store.answer(answer(prompt_id, outcome=PromptOutcome.APPROVED))
    assert late.status is AnswerStatus.REFUSED


async def test_nothing_moves_where_the_clock_cannot(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    held = await start(store)

    def fails() -> None:
        raise OSError(28, "no space left on the device")

    path = str(tmp_path / "moorings.db")
    with pytest.raises(OSError, match="no space"):
        pass_time(path, MOST, now=lambda: clock.now_ms, move=fails)
    with pytest.raises(ValueError, match="go back"):
        pass_time(path, -1, now=lambda: clock.now_ms, move=fails)
    clock.advance(timedelta(milliseconds=LEASE + 1))
    assert (await claim_one(store, "w2")).run_id == held.run_id


async def test_who_is_asleep_stays_so_if_its_time_has_not_come(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    run_id = await parked(store, timer_at=START_MS + MOST + 1)
    jump(tmp_path, clock)
    assert await asleep(store)
    await accept(store, run_id, "hello")
    assert (await claim_one(store)).run_id == run_id
