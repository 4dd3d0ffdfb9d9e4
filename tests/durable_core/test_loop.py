"""Plain asyncio in a body: what waits, races and locks there is durable, and the loop around it is left as it was."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.failures import StepFailed
from durable_core.registry import workflow
from tests.durable_core.plays import Play, fetch


def test_gather_gives_results_in_the_order_of_asking() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> Any:
        return await asyncio.gather(ctx.step(fetch, "a"), ctx.step(fetch, "b"), ctx.step(fetch, "c"))

    play = Play(body)
    assert play.wanted == ["step:fetch#0", "step:fetch#1", "step:fetch#2"]
    play.done("step:fetch#2", "C").again().done("step:fetch#0", "A").again().done("step:fetch#1", "B").again()
    assert play.result == ["A", "B", "C"]


def test_gather_with_exceptions_hands_over_failed_steps() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        results = await asyncio.gather(ctx.step(fetch, "a"), ctx.step(fetch, "b"), return_exceptions=True)
        return [type(one).__name__ for one in results]

    play = Play(body).fails("step:fetch#1").again().done("step:fetch#0", "A").again()
    assert play.result == ["str", "StepFailed"]


def test_the_first_to_complete_wins_by_the_log_not_by_the_code() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        done, pending = await asyncio.wait([ctx.step(fetch, "a"), ctx.step(fetch, "b")], return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        return str(done.pop().result())

    play = Play(body).done("step:fetch#1", "B").again()
    assert play.result == "B"
    assert play.wanted == []


def test_a_task_group_takes_steps_and_coroutines() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[Any]:
        async def two() -> str:
            return str(await ctx.step(fetch, "b")) + str(await ctx.step(fetch, "c"))

        async with asyncio.TaskGroup() as group:
            one: asyncio.Task[str] = group.create_task(ctx.step(fetch, "a"))  # type: ignore[arg-type]  # this loop takes futures
            other = group.create_task(two())
        return [one.result(), other.result()]

    play = Play(body).done("step:fetch#1", "B").again().done("step:fetch#0", "A").again().done("step:fetch#2", "C")
    assert play.again().result == ["A", "BC"]


def test_a_task_group_cancels_the_rest_when_one_fails() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        said = "none"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step(fetch, "a"))  # type: ignore[arg-type]
                group.create_task(ctx.step(fetch, "b"))  # type: ignore[arg-type]
        except* StepFailed as failed:
            said = str(failed.exceptions[0])
        return said

    play = Play(body).fails("step:fetch#0", message="down").again()
    assert play.result == "step fetch failed after 4 attempt(s): ValueError: down"
    assert play.wanted == []


def test_plain_sleep_is_a_durable_timer() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(86_400, "slept")
        return str((ctx.now()).date())

    play = Play(body)
    assert [(one.id, one.due_at) for one in play.replay.wanted] == [("timer:86400000#0", 1_700_086_400_000)]
    play.fire().again()
    assert play.result == "2023-11-15"


@pytest.mark.parametrize("seconds", [0.001, 0.1, 0.3, 1.001, 59.999, 86_400 * 365 * 10 + 0.007])
def test_a_timer_is_named_by_its_delay_to_the_millisecond(seconds: float) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")
        await asyncio.sleep(seconds)

    play = Play(body).done("step:fetch#0", after_ms=12_345_677)
    assert play.wanted == [f"timer:{round(seconds * 1000)}#0"]


def test_a_timeout_that_is_not_needed_leaves_no_timer() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        async with asyncio.timeout(5):
            return str(await ctx.step(fetch, "a"))

    play = Play(body)
    assert play.wanted == ["timer:5000#0", "step:fetch#0"]
    play.done("step:fetch#0", "A").again()
    assert play.wanted == []
    assert play.result == "A"


def test_nested_timeouts_fire_inside_out_or_outside_in() -> None:
    @workflow
    async def body(ctx: WorkflowContext, inner: float, outer: float) -> list[str]:
        said = []
        try:
            async with asyncio.timeout(outer):
                try:
                    async with asyncio.timeout(inner):
                        await ctx.step(fetch, "a")
                except TimeoutError:
                    said.append("inner")
                    await ctx.step(fetch, "b")
        except TimeoutError:
            said.append("outer")
        return said

    play = Play(body, 1, 2).fire().again()
    assert play.wanted == ["timer:2000#0", "step:fetch#1"]
    assert play.fire().again().result == ["inner", "outer"]
    assert Play(body, 2, 1).fire().again().result == ["outer"]


def test_wait_for_of_asyncio_works_too() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            return str(await asyncio.wait_for(ctx.step(fetch, "a"), 3))
        except TimeoutError:
            return "late"

    assert Play(body).fire().again().result == "late"
    assert Play(body).done("step:fetch#0", "A").again().result == "A"


def test_a_contended_lock_an_event_and_a_queue_replay_the_same() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        lock, ready, seen = asyncio.Lock(), asyncio.Event(), asyncio.Queue[str]()

        async def worker(name: str) -> None:
            await ready.wait()
            async with lock:
                await seen.put(name + str(await ctx.step(fetch, name)))

        tasks = [asyncio.create_task(worker(name)) for name in "abc"]
        await ctx.step(fetch, "start")
        ready.set()
        names = [await seen.get() for _ in tasks]
        await asyncio.gather(*tasks)
        return names

    play = Play(body)
    for n in range(4):
        assert play.wanted == [f"step:fetch#{n}"]
        play.done(f"step:fetch#{n}", str(n)).again()
    assert play.result == ["a1", "b2", "c3"]


def test_async_generators_and_context_managers_work() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        said = []

        async def pages() -> AsyncIterator[str]:
            try:
                for n in range(3):
                    yield str(await ctx.step(fetch, str(n)))
            finally:
                said.append("closed")

        async for page in pages():
            said.append(page)  # noqa: PERF401 - the plain loop is what is tried
        return said

    play = Play(body)
    for n in range(3):
        play.done(f"step:fetch#{n}", n).again()
    assert play.result == ["0", "1", "2", "closed"]


def test_an_abandoned_generator_is_left_alone() -> None:
    """Rule 6: the collector comes when it likes, so its coming may change nothing."""
    said = []

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        async def endless() -> AsyncIterator[int]:
            try:
                while True:
                    yield 1
            finally:
                said.append("finally")

        async for _ in endless():
            break
        await ctx.step(fetch, "a")
        return "left"

    assert Play(body).done("step:fetch#0").result == "left"
    assert said == []


async def test_rule_6_the_outer_loop_is_as_it_was() -> None:
    seen: list[Any] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        loop = asyncio.get_running_loop()
        seen.extend([loop, asyncio.current_task(), sys.get_asyncgen_hooks().finalizer])
        await ctx.step(fetch, "a")
        seen.extend([asyncio.get_running_loop(), asyncio.current_task()])
        assert loop.is_running()
        assert not loop.is_closed()
        assert not loop.get_debug()

    before = (asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks())
    play = Play(body)
    assert (asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()) == before
    await asyncio.sleep(0)
    play.done("step:fetch#0")
    assert (asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()) == before
    loop, task, finalizer, later_loop, later_task = seen
    assert loop is later_loop is not before[0]
    assert task is later_task is not before[1]
    assert finalizer is not before[2].finalizer
    assert not loop.is_running()


async def test_a_body_can_be_driven_inside_another_body() -> None:
    @workflow
    async def inner(ctx: WorkflowContext) -> str:
        return str(await ctx.step(fetch, "a"))

    @workflow
    async def outer(ctx: WorkflowContext) -> Any:
        found = Play(inner).done("step:fetch#0", "A").result
        await asyncio.sleep(1)
        return found

    assert Play(outer).fire().result == "A"


def test_context_variables_of_the_body_are_its_own() -> None:
    name: ContextVar[str] = ContextVar("name", default="none")

    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        said = [name.get()]
        name.set("body")

        async def child() -> None:
            said.append(name.get())
            name.set("child")

        await asyncio.create_task(child())
        await ctx.step(fetch, "a")
        said.append(name.get())
        return said

    token = name.set("engine")
    play = Play(body).done("step:fetch#0")
    assert name.get() == "engine"
    name.reset(token)
    assert play.result == ["none", "body", "body"]


def test_names_of_tasks_are_the_bodys_own_count() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        async def nothing() -> None:
            await asyncio.sleep(0)

        tasks = [asyncio.create_task(nothing()) for _ in range(2)]
        names = [one.get_name() for one in [*tasks, asyncio.current_task()] if one]
        await asyncio.gather(*tasks)
        return names

    assert Play(body).result == ["task-2", "task-3", "body"]


def test_many_tasks_do_not_pile_up() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        async def nothing() -> None:
            await asyncio.sleep(0)

        for _ in range(1000):
            await asyncio.create_task(nothing())
        await ctx.step(fetch, "a")

    assert len(Play(body).replay.loop._tasks) < 200


def test_as_completed_of_the_context_gives_results_as_they_come() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        async def two() -> str:
            return str(await ctx.step(fetch, "x")) + "!"

        said = []
        for one in ctx.as_completed([ctx.step(fetch, "a"), two(), ctx.step(fetch, "b")]):
            try:
                said.append(str(await one))
            except StepFailed as failed:
                said.append(failed.message)
        return said

    play = Play(body).fails("step:fetch#1", message="b is down").again().done("step:fetch#2", "X").again()
    assert play.done("step:fetch#0", "A").again().result == ["b is down", "X!", "A"]


def test_timers_can_be_moved() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(1) as limit:
                await ctx.step(fetch, "a")
                limit.reschedule(loop.time() + 10)
                await ctx.step(fetch, "b")
        except TimeoutError:
            return "late"
        return "in time"

    play = Play(body).done("step:fetch#0", after_ms=900).again()
    assert play.wanted == ["timer:10000#0", "step:fetch#1"]
    assert play.fire().again().result == "late"


def test_an_infinite_delay_is_a_timer_far_away() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(float("inf"))
        except TimeoutError:
            return "over"
        return "never"

    play = Play(body)
    assert len(play.wanted) == 2
    assert play.fire().again().result == "over"


def test_call_later_runs_and_call_at_in_the_past_runs_at_once() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        said: list[int] = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, said.append, 2)
        loop.call_at(loop.time() - 1, said.append, 0)
        loop.call_later(1, said.append, 1).cancel()
        await asyncio.sleep(3)
        return said

    play = Play(body)
    assert play.wanted == ["timer:2000#0", "timer:3000#0"]
    assert play.fire().fire().again().result == [0, 2]
