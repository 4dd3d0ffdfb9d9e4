"""Rule 5: a body is dropped from memory; its `finally` runs, and does nothing that lasts."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.failures import Evicted
from durable_core.operations import Entry, EntryKind
from durable_core.registry import workflow
from tests.durable_core.plays import Play, fetch


def test_rule_5_parking_runs_no_handler_of_the_authors() -> None:
    said: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await asyncio.gather(ctx.step(fetch, "a"), ctx.sleep(60), return_exceptions=True)
        except BaseException:
            said.append("handler")
            raise
        finally:
            said.append("finally")

    play = Play(body)
    assert said == []
    play.replay.close()
    assert said == ["handler", "finally"]


def test_rule_5_durable_operations_in_a_finally_are_inert() -> None:
    said: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.step(fetch, "a")
        finally:
            said.append("first")
            try:
                await ctx.step(fetch, "undo")
            finally:
                said.append("second")
                await asyncio.sleep(5)
                said.append("never")

    play = Play(body)
    play.replay.close()
    assert said == ["first", "second"]
    assert play.wanted == ["step:fetch#0"]


def test_everything_else_in_a_finally_is_inert_too() -> None:
    said: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        lock = asyncio.Lock()
        try:
            async with lock, asyncio.timeout(5), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(50))
                await ctx.step(fetch, "a")
        finally:
            said.append("in")
            async with asyncio.timeout(5):  # noqa: ASYNC100 - that it can be entered is the point
                said.append("limited")
            task = asyncio.create_task(fetch("never"))
            asyncio.get_running_loop().call_later(1, said.append, "never")
            asyncio.get_running_loop().call_soon_threadsafe(said.append, "never")
            waits: list[asyncio.Future[Any]] = [task, ctx.sleep(1), ctx.ask("?", allow_freeform=True), ctx.wait_for("h")]
            await asyncio.wait([*waits, ctx.webhook()])

    play = Play(body)
    play.replay.close()
    play.replay.close()
    gc.collect()
    assert said == ["in", "limited"]


def test_nested_cleanup_is_left_level_by_level_and_never_looks_like_a_failure() -> None:
    said: list[str] = []

    async def level(ctx: WorkflowContext, n: int) -> None:
        try:
            await (level(ctx, n - 1) if n else ctx.step(fetch, "a"))
        except Exception as error:  # noqa: BLE001 - nothing of it may come here
            said.append(repr(error))
        finally:
            said.append(f"level {n}")
            await ctx.step(fetch, "undo")

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await level(ctx, 5)

    play = Play(body)
    play.replay.close()
    gc.collect()
    assert said == [f"level {n}" for n in range(6)]


def test_context_managers_are_left_too() -> None:
    said: list[str] = []

    @asynccontextmanager
    async def lent(ctx: WorkflowContext) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            said.append(type(error).__name__)
            raise
        finally:
            await ctx.step(fetch, "give back")
            said.append("never")

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        async with lent(ctx):
            await ctx.step(fetch, "a")

    play = Play(body)
    play.replay.close()
    assert said == ["Evicted"]
    play.build()
    play.done("step:fetch#0")
    assert play.wanted == ["step:fetch#1"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_rule_5_a_body_that_swallows_its_end_is_told_a_few_times_and_named(caplog: pytest.LogCaptureFixture) -> None:
    said: list[int] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        for n in range(20):
            try:
                await ctx.step(fetch, "a")
            except BaseException:  # noqa: BLE001 - this is the trap
                said.append(n)

    play = Play(body)
    with caplog.at_level(logging.WARNING, "moorings.replay"):
        play.replay.close()
    assert said == list(range(8))
    assert "swallows its end" in caplog.text
    assert "test_replay_eviction.py" in caplog.text
    assert play.wanted == ["step:fetch#0"]
    del play
    gc.collect()  # it comes once more here, under the filter


def test_an_error_in_a_finally_is_nobodys() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.step(fetch, "a")
        finally:
            raise LookupError("in finally")

    play = Play(body)
    play.replay.close()
    assert play.outcome is None or isinstance(play.outcome, object)


def test_a_body_that_was_dropped_is_not_driven_any_more() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")

    play = Play(body)
    play.replay.close()
    with pytest.raises(Evicted, match="build it anew from the log"):
        play.replay.deliver(Entry(n=0, kind=EntryKind.STEP, op="step:fetch#0"))
    with pytest.raises(Evicted):
        play.replay.finish_replay()
    play.build()
    assert play.done("step:fetch#0").result is None


def test_dropping_never_cancels() -> None:
    said: list[Any] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        async def worker() -> None:
            try:
                await ctx.step(fetch, "a")
            except asyncio.CancelledError:
                said.append("cancelled")

        await asyncio.gather(worker(), worker())

    Play(body).replay.close()
    gc.collect()
    assert said == []


def test_a_body_that_is_merely_let_go_of_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.step(fetch, "a"), asyncio.create_task(asyncio.sleep(5)))

    Play(body)
    gc.collect()
    assert caplog.text == ""


def test_a_body_that_is_collected_calls_in_vain_and_nothing_is_said_of_it() -> None:
    called: list[str] = []

    async def helper(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(1)
        finally:
            ctx.start(late)
            called.append("helper")

    @workflow
    async def late(ctx: WorkflowContext) -> None: ...

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await helper(ctx)
        finally:
            ctx.random.random()
            ctx.step(fetch, "a")
            called.append("body")

    loop = Play(body).replay.loop
    asked = list(loop.ledger.open)
    loop._tasks[0].inner.close()  # as the collector does with a body that nobody evicted
    assert called == ["helper", "body"]
    assert list(loop.ledger.open) == asked
