"""Under a real worker: wake-ups, drains, and another worker that goes on.

What lives here: `Worker` with the session's duties. What does not: the shell's rules, tested without a worker's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from bot.model import ModelReply, ModelRequest, OnText
from bot.runtime import Duties
from bot.session import thinking
from durable_core.engine.runner import Runner
from durable_core.model import Outcome, Receipt
from durable_core.registry import Registry
from durable_core.worker import Held as HeldRun
from durable_core.worker import Worker, WorkerOptions
from tests.bot.session.actors import Held, calls, says
from tests.bot.session.kit import ALICE, BOB, Thread
from tests.bot.session.test_approvals import ask


def worker(thread: Thread, owner: str, options: WorkerOptions | None = None) -> Worker:
    thread.hire(owner)
    flows = Runner(store=thread.store, registry=Registry(), clock=thread.clock)
    duties = Duties(runner=thread.runner, flows=flows, egress=thread.egress, answers=thread.answers)
    return Worker(thread.store, duties, owner=owner, deployment="d", options=options or WorkerOptions())


async def settled(thread: Thread, receipt: Receipt) -> Outcome:
    """Wait until an input has its outcome, woken by the store."""
    changed = asyncio.Event()
    unwatch = thread.store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(10):
            while (outcome := await thread.outcome(receipt)) is None:
                await changed.wait()
                changed.clear()
            return outcome
    finally:
        unwatch()


async def until(so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state of the store that no wake-up tells of."""
    async with asyncio.timeout(60):
        while not await so():
            await asyncio.sleep(0)


async def test_it_answers_steers_and_stops_as_things_come_in(thread: Thread) -> None:
    hold, second = Held(), Held()
    thread.model.script = [hold.model(says("never")), second.model(says("never"))]
    at_work = worker(thread, "w1")
    await at_work.start()
    receipt = await thread.say("red")
    await hold.reached.wait()
    await thread.say("blue")
    await second.reached.wait()
    await thread.cancel()
    assert await settled(thread, receipt) is Outcome.ABORTED
    after = await thread.say("green")
    assert await settled(thread, after) is Outcome.COMPLETED
    await at_work.drain(5)
    assert len(thread.model.requests) == 3
    await thread.work()


async def test_a_click_goes_on_at_once(thread: Thread) -> None:
    at_work = worker(thread, "w1")
    await ask(thread)
    await at_work.start()
    queued = await thread.say("hello", BOB)
    await thread.click("approve")
    assert await settled(thread, queued) is Outcome.COMPLETED
    await at_work.drain(5)
    assert thread.log.names() == ["refund"]
    await thread.work()


async def test_a_drain_gives_a_running_turn_to_another_uncharged(thread: Thread) -> None:
    thread.model.script = [calls(("look", {}))]
    thread.log.holds["look"] = hold = Held()
    first = worker(thread, "w1")
    await first.start()
    receipt = await thread.say("go")
    await hold.reached.wait()
    await first.drain(0)
    rows = await thread.store.rows("SELECT charged, crashes, owner FROM moor_run", {})
    assert rows == [(0, 0, None)]
    thread.log.holds.clear()
    second = worker(thread, "w2")
    await second.start()
    assert await settled(thread, receipt) is Outcome.COMPLETED
    await second.drain(5)
    assert [attempt for _, attempt, *_ in thread.log.runs] == [1, 2]
    assert len(thread.model.requests) == 2
    started = [(event.attempt, event.data.get("previous")) for event in await thread.events() if event.type == "step.started"]
    assert started[:2] == [(1, None), (2, "released")]
    await thread.work()


async def test_a_higher_attempt_voids_what_a_lower_one_streamed(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinking, "FLUSH_SECONDS", 0)
    shown = asyncio.Event()

    async def half(request: ModelRequest, on_text: OnText) -> ModelReply:
        await on_text("half a sen")
        shown.set()
        await asyncio.Event().wait()
        raise AssertionError

    thread.model.script = [half]
    first = worker(thread, "w1")
    await first.start()
    receipt = await thread.say("go")
    await shown.wait()
    await until(lambda: streamed(thread))
    await first.drain(0)
    second = worker(thread, "w2")
    await second.start()
    assert await settled(thread, receipt) is Outcome.COMPLETED
    await second.drain(5)
    told = [(event.type, event.attempt) for event in await thread.events() if event.type in {"step.started", "message.appended"}]
    assert told[:3] == [("step.started", 1), ("message.appended", 1), ("step.started", 2)]
    await thread.work()
    assert thread.channel.texts == ["answer 2"]


async def test_a_drain_ends_though_a_wake_up_comes_with_it(thread: Thread) -> None:
    at_work = worker(thread, "w1")
    await at_work.start()
    for _ in range(20):
        await thread.store.now()
        await asyncio.sleep(0)
    at_work.kick()
    async with asyncio.timeout(5):
        await at_work.drain(0)


async def streamed(thread: Thread) -> bool:
    return "message.appended" in await thread.types()


async def given_back(thread: Thread) -> bool:
    return await thread.store.rows("SELECT charged, owner FROM moor_run", {}) == [(1, None)]


@dataclass
class Broken:
    """Duties that fail on every run."""

    calls: int = 0

    async def advance(self, held: HeldRun) -> None:
        self.calls += 1
        raise ValueError("a history that can't be read")

    async def send(self, lane: object) -> None: ...

    async def evaluate(self, interaction: object) -> None: ...


async def test_a_run_that_can_not_even_be_read_is_left_alone_for_longer_and_longer(thread: Thread) -> None:
    duties = Broken()
    at_work = Worker(thread.store, duties, owner="w1", deployment="d")
    receipt = await thread.say("hi", ALICE)
    await at_work.start()
    await until(lambda: given_back(thread))
    for _ in range(20):
        await thread.store.run(receipt.run_id)
    assert duties.calls == 1
    await at_work.drain(1)
    thread.hire("w2")
    thread.later_s(60)
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED


@dataclass
class Stuck(Broken):
    """Duties that never come to an end; they count how often they were stopped."""

    stopped: int = 0

    async def advance(self, held: HeldRun) -> None:
        self.calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise


async def test_a_run_whose_lease_ran_out_unnoticed_is_advanced_by_one_task_only(thread: Thread) -> None:
    duties = Stuck()
    at_work = Worker(thread.store, duties, owner="w1", deployment="d")
    await thread.say("hi")
    await at_work.start()
    await until(lambda: counted(duties, 1))
    thread.later_s(120)  # the loop was blocked: nothing was renewed
    await thread.say("hello", address="fake:v1:other")
    await until(lambda: counted(duties, 3))
    assert (duties.stopped, at_work.busy) == (1, 2)
    await at_work.drain(0)
    assert duties.stopped == 3
    thread.hire("w2")
    await thread.work()
    assert len(thread.model.requests) == 2


async def counted(duties: Broken, calls: int) -> bool:
    await asyncio.sleep(0)
    return duties.calls >= calls
