"""What a worker holds: kept beside its loop while that stands still, and taken by another once its lease is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from durable_core.clock import ManualClock
from durable_core.model import AnswerPolicy, ClaimRequest, Holdings, Incarnation, Interaction, Lane, Sent, Verdict
from durable_core.store import Store
from durable_core.testing.acts import asked, claims, lane_one, owing, park, parked
from durable_core.testing.builders import BOB, LEASE, START_MS, answer, message, post, to_address
from durable_core.worker import Held, Worker, WorkerOptions
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.conformance.sqlite import file_store

PATIENCE = 30.0
Open = Callable[[], Awaitable[Store]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def opened(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Open]:
    """Open stores on one database, as so many processes would."""
    url = request.getfixturevalue("migrated_url") if request.param == "postgres" else ""
    stores: list[Store] = []

    async def one() -> Store:
        stores.append(postgres_store(url, clock) if url else await file_store(clock, tmp_path))
        await stores[-1].open()
        return stores[-1]

    yield one
    for store in stores:
        await store.close()


@dataclass
class Noting:
    """Duties that note what they were given; `act` is called with each."""

    store: Store
    owner: str
    act: Callable[[str], None] = lambda _: None
    given: list[str] = field(default_factory=list)
    noted: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, what: str) -> None:
        self.given.append(what)
        self.noted.set()
        self.act(what)

    async def advance(self, held: Held) -> None:
        self.note(held.claim.run_id)
        await park(self.store, held.claim)

    async def send(self, lane: Lane) -> None:
        self.note(lane.address)
        for item in lane.items:
            sent = Sent(delivery_id=item.delivery_id, ref="r", release=item is lane.items[-1])
            await self.store.finish(lane, self.owner, sent)

    async def evaluate(self, interaction: Interaction) -> None:
        self.note(interaction.interaction_id)
        verdict = Verdict(interaction_id=interaction.interaction_id, epoch=interaction.epoch, allowed=False, reason="no")
        await self.store.decide(verdict)

    async def until(self, *what: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not set(what) <= set(self.given):
                self.noted.clear()
                await self.noted.wait()


def worker(duties: Noting, **options: Any) -> Worker:
    return Worker(duties.store, duties, owner=duties.owner, deployment="d1", options=WorkerOptions(poll=0.05, **options))


async def test_what_a_living_neighbour_let_expire_is_taken_runs_and_lanes(opened: Open, clock: ManualClock) -> None:
    mine, frozen = await opened(), await opened()
    await frozen.enrol(Incarnation(owner=frozen.incarnation, deployment="d1"))
    await parked(frozen, address="idle")
    run_id = await owing(frozen, post("lane"))
    await frozen.admit(message(run_id))
    await claims(frozen, frozen.incarnation)
    await lane_one(frozen, frozen.incarnation)

    duties = Noting(mine, mine.incarnation)
    one = worker(duties)
    await one.start()
    duties.given.clear()
    other = (await mine.admit(message(to_address("other")))).run_id
    await duties.until(other)
    assert duties.given == [other]
    assert frozen.incarnation not in (await mine.due(mine.incarnation)).dead
    clock.advance(timedelta(milliseconds=LEASE + 1))
    await duties.until(run_id, "lane")
    assert sorted(duties.given) == sorted([other, run_id, "lane"])
    await one.drain()


async def test_a_store_that_is_broken_ends_no_task_of_its_worker(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await file_store(clock, tmp_path)
    await store.open()
    duties = Noting(store, store.incarnation)
    duties.act = lambda _: (tmp_path / "moorings.db").unlink(missing_ok=True)
    one = worker(duties, lease=0.04)
    await store.admit(message(to_address("a")))
    await store.admit(message(to_address("b"), text="x"))
    await one.start()
    async with asyncio.timeout(PATIENCE):
        while "can't be given back" not in caplog.text or "renewing leases" not in caplog.text:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert one.busy == 0
    assert not [task for task in one._loops if task.done()]
    await one.drain(0)
    await store.close()


@pytest.mark.parametrize("blocked", ["run", "lane", "interaction"])
async def test_while_the_loop_stands_still_whatever_is_held_is_prolonged(
    opened: Open, clock: ManualClock, blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    seen: list[Holdings] = []
    prolonged = threading.Semaphore(0)
    old = store.prolong

    def prolong(owner: str, held: Holdings, **times: Any) -> None:
        old(owner, held, **times)
        seen.append(held)
        prolonged.release()

    monkeypatch.setattr(store, "prolong", prolong)

    def block(what: str) -> None:
        for _ in range(2 if what == name else 0):  # the first may have begun before
            assert prolonged.acquire(timeout=PATIENCE)

    duties = Noting(store, store.incarnation, act=block)
    one = worker(duties, lane_lease=0.08)  # it is asked every 10 ms
    if blocked == "interaction":
        await store.enrol(Incarnation(owner="w1", deployment="d1"))
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
        receipt = await store.answer(answer(prompt_id, by=BOB))
        name = receipt.submission_id
    elif blocked == "lane":
        await store.enrol(Incarnation(owner="w1", deployment="d1"))
        await owing(store, post("lane"))
        name = "lane"
    else:
        name = (await store.admit(message(to_address("run")))).run_id
    await one.start()
    await duties.until(name)
    held = seen[-1]
    names = [run_id for run_id, _ in held.runs] + [lane for _, lane, _ in held.lanes] + [one for _, one, _ in held.interactions]
    assert name in names
    await one.drain()
    assert duties.given.count(name) == 1
    assert await store.claim(ClaimRequest(owner="w9", lease_ms=LEASE, limit=10)) == []
