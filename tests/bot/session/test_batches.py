"""Calls side by side: what a failing one does to its siblings, what doesn't heed a stop, what a call says of itself.

What lives here: batches under store errors and cancels; progress. What does not: single results (test_interruption.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bot.context import ToolContext
from bot.edge import Threads
from bot.history import ResultItem, ResultStatus
from bot.session.batch import Grace
from bot.session.progress import PROGRESS_LIMIT, Progress
from bot.tools import tool
from durable_core.errors import CommitUnknown, LeaseLost, TooLarge, Unavailable, Unstorable
from durable_core.model import Committed, EventDraft, Outcome, Signals, StepCommit
from tests.bot.session.actors import TOOLS, Held, Log, calls
from tests.bot.session.kit import Thread


def statuses(items: Sequence[Any]) -> dict[str, ResultStatus]:
    return {item.tool: item.status for item in items if isinstance(item, ResultItem)}


@pytest.mark.parametrize("times", [1, 3])
async def test_a_result_is_recorded_once_the_database_is_back_and_nothing_runs_again(thread: Thread, times: int) -> None:
    record, old_commit = thread.store.record, thread.store.commit
    away = {"record": times, "commit": times}

    def asked(call: str) -> None:
        if away[call]:
            away[call] -= 1
            raise Unavailable("a failover")

    async def flaky_record(*args: Any, key: str, **rest: Any) -> Signals:
        if not key.startswith("started:"):
            asked("record")
        return await record(*args, key=key, **rest)

    async def flaky_commit(commit: StepCommit) -> Committed:
        if commit.step_n > 0:
            asked("commit")
        return await old_commit(commit)

    thread.store.record, thread.store.commit = flaky_record, flaky_commit  # type: ignore[method-assign]
    thread.model.script = [calls(("put", {}))]
    receipt = await thread.say("go")
    await thread.work()
    assert away == {"record": 0, "commit": 0}
    assert thread.log.names() == ["put"]
    assert len(thread.model.requests) == 2, "no reply is paid for again"
    assert await thread.outcome(receipt) is Outcome.COMPLETED


@pytest.mark.parametrize("error", [CommitUnknown("locked"), LeaseLost("r", 1)])
async def test_a_record_that_fails_does_not_cut_a_sibling_write(thread: Thread, error: Exception) -> None:
    failed = asyncio.Event()
    record = thread.store.record

    async def flaky(*args: Any, key: str, **rest: Any) -> Signals:
        if key == "result:0.0.1" and not failed.is_set():
            failed.set()
            raise error
        return await record(*args, key=key, **rest)

    thread.store.record = flaky  # type: ignore[method-assign]
    thread.log.holds = {"put": (hold := Held()), "look": (look := Held())}
    thread.model.script = [calls(("put", {}), ("put_once", {}), ("look", {}))]
    receipt = await thread.say("go")
    work = thread.begin()
    for place in (hold.reached, look.reached, failed):
        await place.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not work.done()
    hold.go.set()
    with pytest.raises(type(error)):
        await work
    assert thread.log.ended == ["put_once", "put"]
    look.go.set()
    thread.hire("w2")
    await thread.store.reap("w1")
    await thread.work()
    assert thread.log.names().count("put") == 1
    assert statuses(thread.model.requests[1].history) == dict.fromkeys(("put", "put_once", "look"), ResultStatus.COMPLETED)
    assert await thread.outcome(receipt) is Outcome.COMPLETED


async def test_a_read_that_swallows_its_cancellation_is_left_alone(thread: Thread) -> None:
    hold = Held()
    ended = asyncio.Event()

    @tool(effect="read")
    async def deaf(ctx: ToolContext) -> str:
        """Go on whatever happens."""
        hold.reached.set()
        while not hold.go.is_set():
            try:
                await hold.go.wait()
            except asyncio.CancelledError:
                continue
        await ctx.progress("still here")
        ended.set()
        return "too late"

    thread.tools = (*TOOLS, deaf)
    thread.grace = Grace(stop=0.01)
    thread.hire("w1")
    thread.model.script = [calls(("deaf", {}))]
    receipt = await thread.say("go")
    work = thread.begin()
    await hold.reached.wait()
    committed = thread.store.commit

    async def after_it_ended(commit: StepCommit) -> Committed:
        hold.go.set()
        await ended.wait()
        for _ in range(20):
            await thread.store.run(thread.run_id)
        return await committed(commit)

    thread.store.commit = after_it_ended  # type: ignore[method-assign]
    await thread.cancel()
    await work
    assert await thread.outcome(receipt) is Outcome.ABORTED
    types = await thread.types()
    assert (types.count("action.result"), types.count("action.partial")) == (1, 0)
    assert statuses(await thread.history()) == {"deaf": ResultStatus.CANCELLED}


async def test_a_write_has_so_long_when_its_turn_is_cancelled(thread: Thread) -> None:
    thread.grace = Grace(write=0.01, stop=0.01)
    thread.hire("w1")
    thread.log.holds["put"] = hold = Held()
    thread.model.script = [calls(("put", {}))]
    await thread.say("go")
    work = thread.begin()
    await hold.reached.wait()
    await thread.cancel()
    await work
    assert statuses(await thread.history()) == {"put": ResultStatus.UNKNOWN}


async def test_plain_tools_run_only_so_many_at_once_and_hold_up_nothing_else() -> None:
    threads = Threads(1)
    import threading

    go, reached = threading.Event(), threading.Event()

    def block() -> None:
        reached.set()
        go.wait()

    first = asyncio.create_task(threads.run(block))
    while not reached.is_set():
        await asyncio.sleep(0)
    second = asyncio.create_task(threads.run(lambda: "second"))
    first.cancel()
    for _ in range(50):
        await asyncio.sleep(0)
    assert first.cancelled()
    assert not second.done()
    go.set()
    assert (await second).value() == "second"


# Progress


def talker(*texts: object) -> Any:
    @tool(effect="write")
    async def talk(ctx: ToolContext[Log]) -> str:
        """Tell how far it is."""
        for text in texts:
            await ctx.progress(text)  # type: ignore[arg-type]
        await ctx.deps.run("talk", ctx)
        return "done"

    return talk


async def partials(thread: Thread) -> list[str]:
    return [event.data["text"] for event in await thread.events() if event.type == "action.partial"]


async def talk(thread: Thread, *texts: object) -> None:
    thread.tools = (*TOOLS, talker(*texts))
    thread.hire("w1")
    thread.model.script = [calls(("talk", {}))]
    await thread.say("go")


async def test_the_newest_text_wins_and_the_last_comes_before_the_result(thread: Thread) -> None:
    await talk(thread, *(f"{n} %" for n in range(100)))
    await thread.work()
    assert await partials(thread) == ["99 %"]
    types = await thread.types()
    assert types.index("action.partial") < types.index("action.result")


@pytest.mark.parametrize("text", ["half \ud800 a pair", "x" * 5000, 17])
async def test_whatever_the_text_is_the_call_goes_on(thread: Thread, text: object) -> None:
    await talk(thread, text)
    await thread.work()
    (told,) = await partials(thread)
    assert told == str(text).encode("utf-8", "replace").decode()[:PROGRESS_LIMIT]
    assert statuses(thread.model.requests[1].history) == {"talk": ResultStatus.COMPLETED}


def failing_appends(thread: Thread, error: Exception) -> None:
    append = thread.store.append

    async def flaky(run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        if any(event.type == "action.partial" for event in events):
            raise error
        return await append(run_id, epoch, events)

    thread.store.append = flaky  # type: ignore[method-assign]


@pytest.mark.parametrize("error", [Unavailable("locked"), Unstorable("a", "b"), TooLarge(1, 0), ZeroDivisionError()])
async def test_what_can_not_be_written_is_not_missed(thread: Thread, error: Exception) -> None:
    failing_appends(thread, error)
    await talk(thread, "one")
    assert await thread.work() == 1
    assert thread.log.ended == ["talk"]
    assert statuses(thread.model.requests[1].history) == {"talk": ResultStatus.COMPLETED}


async def test_a_lost_lease_stops_the_call_and_nothing_is_recorded(thread: Thread) -> None:
    failing_appends(thread, LeaseLost("r", 1))
    await talk(thread, "one")
    thread.log.holds["talk"] = Held()
    with pytest.raises(LeaseLost):
        await thread.work()
    assert thread.log.ended == []
    keys = await thread.store.rows("SELECT key FROM moor_record WHERE key LIKE 'result:%'", {})
    assert keys == []
    await thread.store.reap("w1")
    thread.hire("w2")
    await thread.work()
    await thread.click("skip")
    await thread.work()


async def test_at_most_one_is_written_in_each_interval() -> None:
    written: list[str] = []
    first = asyncio.Event()

    async def write(text: str) -> None:
        written.append(text)
        first.set()

    progress = Progress(write, on_lost=lambda: None, every=3600)
    await progress.tell("a")
    await first.wait()
    await progress.tell("b")
    for _ in range(20):
        await asyncio.sleep(0)
    await progress.tell("c")
    assert written == ["a"]
    await progress.finish()
    await progress.tell("d")
    assert written == ["a", "c"]
