"""Streams: whole events, pages, and followers that cost nothing while their run is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from durable_core.clock import ManualClock
from durable_core.codec import encode
from durable_core.errors import BadEventId, Broken, EventMissing, ForeignEvent, NotFound
from durable_core.ids import event_id, parse_event_id
from durable_core.model import EventDraft, Extra
from durable_core.store import Store
from durable_core.streams import PAGE, EventView, Streams
from durable_core.testing.acts import enrol, start
from durable_core.testing.builders import START_MS, event, message, step_commit, to_address
from tests.durable_core.conformance.sqlite import memory_store


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Store]:
    made = await memory_store(ManualClock(START_MS))
    await made.open()
    await enrol(made)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def streams(store: Store) -> AsyncIterator[Streams]:
    made = Streams(store)
    made.start()
    yield made
    made.stop()


async def test_an_event_comes_whole_with_what_its_references_name(store: Store, streams: Streams) -> None:
    claim = await start(store, address="b")
    receipt = await store.admit(message(to_address("a")))
    kept = EventDraft(
        type="told",
        body=encode({"who": "alice"}),
        refs=(
            ("message", "command:1#/text"),
            ("list/0/deep", "command:1#/text"),
            ("list/1", "command:1#/no/such"),
            ("gone", "step:9#/x"),
        ),
    )
    await store.append(claim.run_id, claim.epoch, (kept,))
    (view,) = await streams.read(claim.run_id)
    assert view.data == {"who": "alice", "message": "hello", "list": [{"deep": "hello"}, None], "gone": None}
    assert parse_event_id(view.id) == (claim.run_id.removeprefix("ses_"), view.seq)
    assert await streams.read(receipt.run_id) == []


async def test_reads_are_absolute_or_from_the_tail(store: Store, streams: Streams) -> None:
    claim = await start(store)
    await store.append(claim.run_id, claim.epoch, tuple(event(str(n)) for n in range(5)))
    assert [view.index for view in await streams.read(claim.run_id, start=3)] == [3, 4]
    assert [view.index for view in await streams.read(claim.run_id, start=-2)] == [3, 4]
    assert [view.index for view in await streams.read(claim.run_id, start=-99)] == [0, 1, 2, 3, 4]


async def test_a_follower_gets_what_comes_in_order_and_ends_with_the_run(store: Store, streams: Streams) -> None:
    claim = await start(store)
    await store.append(claim.run_id, claim.epoch, tuple(event(str(n)) for n in range(PAGE + 3)))
    seen: list[EventView] = []

    async def follow() -> None:
        seen.extend([view async for view in streams.follow(claim.run_id)])

    task = asyncio.create_task(follow())
    await store.append(claim.run_id, claim.epoch, (event("late"),))
    await store.commit(step_commit(claim, events=(event("last"),), end="done"))
    async with asyncio.timeout(10):
        await task
    assert [view.index for view in seen] == list(range(PAGE + 5))
    assert streams.followers == 0


async def test_a_follower_from_the_tail_of_an_empty_run_gets_its_first_event_once(store: Store, streams: Streams) -> None:
    claim = await start(store)
    follower = streams.follow(claim.run_id, start=-1)
    first = asyncio.ensure_future(anext(follower))
    while not streams.followers:
        await asyncio.sleep(0)
    await store.append(claim.run_id, claim.epoch, (event("one"),))
    async with asyncio.timeout(10):
        assert (await first).index == 0
    await follower.aclose()  # type: ignore[attr-defined]
    assert streams.followers == 0


async def test_quiet_followers_read_nothing_while_others_move(
    store: Store, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, busy = await start(store, address="a"), await start(store, address="b")
    reads: list[str] = []
    whole = streams.read

    async def counted(run_id: str, *, start: int = 0, limit: int = PAGE, hidden: bool = False) -> list[EventView]:
        reads.append(run_id)
        return await whole(run_id, start=start, limit=limit, hidden=hidden)

    monkeypatch.setattr(streams, "read", counted)
    followers = [asyncio.ensure_future(anext(streams.follow(quiet.run_id))) for _ in range(200)]
    while len(reads) < len(followers):
        await asyncio.sleep(0)
    reads.clear()
    for n in range(20):
        await store.append(busy.run_id, busy.epoch, (event(str(n)),))
    assert reads == []
    await store.append(quiet.run_id, quiet.epoch, (event("for all"),))
    async with asyncio.timeout(10):
        views = await asyncio.gather(*followers)
    assert {view.index for view in views} == {0}


async def test_reading_goes_on_after_an_event_that_the_reader_has_seen(store: Store, streams: Streams) -> None:
    claim = await start(store)
    await store.append(claim.run_id, claim.epoch, (event("0"), event("x", visible=False), event("1"), event("2")))
    shown = await streams.read(claim.run_id)
    everything = await streams.read(claim.run_id, hidden=True)
    assert await streams.read(claim.run_id, after=shown[0].id) == shown[1:]
    assert await streams.read(claim.run_id, after=shown[2].id) == []
    assert await streams.read(claim.run_id, after=everything[1].id, hidden=True) == everything[2:]
    await store.end(claim.run_id, reason="over", events=())
    assert [e async for e in streams.follow(claim.run_id, after=shown[1].id)] == shown[2:]


async def test_reading_after_what_is_no_event_of_the_reader_is_refused(store: Store, streams: Streams) -> None:
    claim, other = await start(store, address="a"), await start(store, address="b")
    for run in (claim, other):
        await store.append(run.run_id, run.epoch, (event("0"), event("x", visible=False), event("1")))
    hidden = event_id(claim.run_id, 1)
    refused: list[tuple[str, type[BadEventId]]] = [
        ("evt_x", BadEventId),
        ("", BadEventId),
        (event_id(claim.run_id, 2).upper(), BadEventId),
        (f"{event_id(claim.run_id, 0)} ", BadEventId),
        (event_id(other.run_id, 0), ForeignEvent),
        (event_id(claim.run_id, 3), EventMissing),
        (event_id(claim.run_id, 16**10 - 1), EventMissing),
        (hidden, EventMissing),
    ]
    for after, error in refused:
        with pytest.raises(BadEventId) as read:
            await streams.read(claim.run_id, after=after)
        assert type(read.value) is error
        assert not read.value.retryable
        with pytest.raises(error):
            await anext(streams.follow(claim.run_id, after=after))
    assert len(await streams.read(claim.run_id, after=hidden, hidden=True)) == 1


async def test_a_gap_is_not_taken_for_the_whole(store: Store, streams: Streams) -> None:
    claim = await start(store)
    await store.append(claim.run_id, claim.epoch, tuple(event(str(n)) for n in range(4)))
    gap = Extra(sql="DELETE FROM moor_event WHERE run_id = :run_id AND seq = 2", parameters={"run_id": claim.run_id})
    await store.admit(message(to_address("tamper"), extra=(gap,)))
    with pytest.raises(Broken, match="lost its event 2"):
        await anext(streams.follow(claim.run_id))


async def test_an_unknown_run_can_not_be_followed(streams: Streams) -> None:
    with pytest.raises(NotFound):
        await anext(streams.follow("ses_00000000000000000000000000"))
