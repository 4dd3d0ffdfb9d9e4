"""Steps: tried again, timed out, refused what can't be kept, run off the loop, stopped when nobody waits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from durable_core import codec
from durable_core.context import WorkflowContext, step_context
from durable_core.errors import RunFailed
from durable_core.failures import Fatal, StepFailed
from durable_core.registry import step, workflow
from durable_core.retry import RetryPolicy
from tests.durable_core.engine.worlds import World, events_of, parked, result, until

AT_ONCE = RetryPolicy(first=timedelta(0), cap=timedelta(0))
LATER = RetryPolicy(first=timedelta(minutes=1), cap=timedelta(hours=1), jitter=0)


async def test_a_step_is_tried_again_until_it_succeeds(world: World) -> None:
    attempts: list[int] = []

    @step(backoff=AT_ONCE)
    async def flaky() -> str:
        attempts.append(step_context().attempt)
        if len(attempts) < 4:
            raise ConnectionError("not now")
        return step_context().idempotency_key

    @workflow
    async def one(ctx: WorkflowContext) -> str:
        return await ctx.step(flaky)

    async with world.engine(one) as engine:
        run = await engine.start(one)
        assert await result(run) == f"{run.run_id}:step:flaky#0"
        assert attempts == [1, 2, 3, 4]
        failed = await events_of(run, "step.failed")
        assert [(event.data["attempt"], event.data["final"]) for event in failed] == [(1, False), (2, False), (3, False)]
        assert failed[0].data["error"] == {"type": "ConnectionError", "message": "not now", "code": "error", "attempts": 1}


@pytest.mark.parametrize(
    ("error", "attempts", "code"), [(OSError("gone"), 4, "error"), (Fatal("no", code="bad_card"), 1, "bad_card")]
)
async def test_a_step_that_fails_for_good_is_told_to_the_body(world: World, error: Exception, attempts: int, code: str) -> None:
    tried: list[int] = []

    @step(backoff=AT_ONCE)
    def broken() -> None:
        tried.append(1)
        raise error

    @workflow
    async def one(ctx: WorkflowContext) -> list[Any]:
        try:
            await ctx.step(broken)
        except StepFailed as failed:
            return [failed.step, failed.type_name, failed.message, failed.attempts, failed.code]
        return []

    async with world.engine(one) as engine:
        run = await engine.start(one)
        assert await result(run) == ["broken", type(error).__name__, str(error), attempts, code]
        assert len(tried) == attempts
        assert (await events_of(run, "step.failed"))[-1].data["final"] is True


async def test_a_long_back_off_holds_no_worker_and_survives_the_process(world: World) -> None:
    attempts: list[int] = []

    @step(backoff=LATER, attempts=3)
    async def flaky() -> int:
        attempts.append(step_context().attempt)
        if len(attempts) < 3:
            raise ConnectionError
        return len(attempts)

    @workflow
    async def one(ctx: WorkflowContext) -> int:
        return await ctx.step(flaky)

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await parked(run)
        world.advance(seconds=59)
        await asyncio.sleep(0.05)
        assert attempts == [1]
        world.advance(seconds=1)
        await until(lambda: attempts == [1, 2])
        await parked(run)
    async with world.engine(one) as engine:
        world.advance(seconds=119)
        await asyncio.sleep(0.05)
        assert attempts == [1, 2]
        world.advance(seconds=1)
        assert await result(engine.run(run.run_id)) == 3
    assert attempts == [1, 2, 3]


async def test_an_attempt_has_a_limit_even_if_it_does_not_heed_its_cancellation(world: World) -> None:
    let_go = asyncio.Event()

    @step(timeout=0.02, attempts=1)
    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    @step(timeout=0.02, attempts=1)
    def blocked() -> None:
        time.sleep(0.3)

    @workflow
    async def one(ctx: WorkflowContext) -> list[str]:
        codes = []
        for slow in (deaf, blocked):
            try:
                await ctx.step(slow)
            except StepFailed as failed:
                codes.append(str(failed.code))
        return codes

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == ["timeout", "timeout"]
        let_go.set()


async def test_plain_functions_run_in_threads_of_their_own(world: World) -> None:
    meet = threading.Barrier(3, timeout=10)
    names: list[str] = []

    def plain() -> int:
        meet.wait()
        names.append(threading.current_thread().name)
        return step_context().attempt

    @workflow
    async def three(ctx: WorkflowContext) -> list[int]:
        one = step(plain, name="plain")
        return await asyncio.gather(*(ctx.step(one) for _ in range(3)))

    async with world.engine(three) as engine:
        assert await result(await engine.start(three)) == [1, 1, 1]
    assert all(name == "step-plain" for name in names)


@pytest.mark.parametrize(
    ("made", "code"),
    [(object, "unstorable"), (lambda: float("nan"), "unstorable"), (lambda: "x" * (codec.LIMIT + 1), "too_large")],
)
async def test_a_result_that_can_not_be_kept_fails_its_step_at_once(world: World, made: Any, code: str) -> None:
    tried: list[int] = []

    def odd() -> Any:
        tried.append(1)
        return made()

    @workflow
    async def one(ctx: WorkflowContext) -> str | None:
        try:
            await ctx.step(step(odd, name="odd"))
        except StepFailed as failed:
            return failed.code
        return None

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == code
        assert len(tried) == 1


async def test_a_workflow_whose_result_can_not_be_kept_fails(world: World) -> None:
    @workflow
    async def odd(ctx: WorkflowContext) -> Any:
        return {"thing": object()}

    async with world.engine(odd) as engine:
        with pytest.raises(RunFailed, match="thing") as failed:
            await result(await engine.start(odd))
        assert failed.value.code == "unstorable"


async def test_a_result_of_almost_sixteen_megabytes_passes(world: World) -> None:
    size = codec.LIMIT - 32 * 1024

    def big() -> str:
        return "x" * size

    @workflow
    async def one(ctx: WorkflowContext) -> str:
        return await ctx.step(step(big, name="big"))

    @workflow
    async def two(ctx: WorkflowContext) -> str:
        return await ctx.child(one)

    async with world.engine(one, two) as engine:
        run = await engine.start(two)
        assert await result(run) == "x" * size
        assert len((await events_of(run, "run.completed"))[0].data["value"]) == size


async def test_what_the_body_gets_is_what_was_stored(world: World) -> None:
    shared = {"items": [1]}

    async def give() -> Any:
        return shared

    @workflow
    async def one(ctx: WorkflowContext) -> list[Any]:
        first = await ctx.step(step(give, name="give"))
        first["items"].append(2)
        second = await ctx.step(step(give, name="give"))
        return [first, second]

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == [{"items": [1, 2]}, {"items": [1]}]


async def test_the_loser_of_a_race_is_stopped_and_its_result_ignored(world: World) -> None:
    stopped = asyncio.Event()

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "slow"

    async def quick() -> str:
        return "quick"

    @workflow
    async def race(ctx: WorkflowContext) -> list[str]:
        tasks = [asyncio.create_task(_of(ctx.step(step(one, name=one.__name__)))) for one in (slow, quick)]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        return [task.result() for task in done] + [await ctx.step(step(quick, name="again"))]

    async with world.engine(race) as engine:
        assert await result(await engine.start(race)) == ["quick", "quick"]
        async with asyncio.timeout(10):
            await stopped.wait()


async def _of(future: asyncio.Future[Any]) -> Any:
    return await future


async def test_a_timeout_around_a_step_stops_it(world: World) -> None:
    stopped: list[str] = []
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    @workflow
    async def one(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(60):
                await ctx.step(step(slow, name="slow"))
        except TimeoutError:
            return "too slow"
        return "done"

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await began.wait()
        world.advance(seconds=60)
        assert await result(run) == "too slow"
        await until(lambda: stopped)


async def test_a_step_that_raises_what_ends_processes_only_fails(world: World) -> None:
    @step(attempts=1)
    async def leaves() -> None:
        raise SystemExit(3)

    @step(attempts=1)
    async def cancels() -> None:
        raise asyncio.CancelledError

    @workflow
    async def one(ctx: WorkflowContext) -> list[str]:
        names = []
        for rude in (leaves, cancels):
            try:
                await ctx.step(rude)
            except StepFailed as failed:
                names.append(failed.type_name)
        return names

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == ["SystemExit", "CancelledError"]


async def test_retry_after_is_heeded(world: World) -> None:
    class Busy(Exception):
        retry_after = 3600

    tried: list[int] = []

    async def busy() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise Busy
        return len(tried)

    @workflow
    async def one(ctx: WorkflowContext) -> int:
        return await ctx.step(step(busy, name="busy"))

    async with world.engine(one) as engine:
        run = await engine.start(one)
        await parked(run)
        world.advance(seconds=3599)
        await asyncio.sleep(0.05)
        assert len(tried) == 1
        world.advance(seconds=3600)
        assert await result(run) == 2


async def test_each_attempt_gets_arguments_of_its_own(world: World) -> None:
    seen: list[Any] = []

    @step(backoff=RetryPolicy(first=timedelta(0), cap=timedelta(0)))
    async def pops(items: list[int], *, more: dict[str, list[int]]) -> int:
        seen.append((list(items), list(more["a"])))
        items.pop()
        more["a"].pop()
        raise ConnectionError

    @workflow
    async def one(ctx: WorkflowContext) -> list[int]:
        items = [1, 2]
        with suppress(StepFailed):
            await ctx.step(pops, items, more={"a": [3]})
        return items

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == [1, 2]
    assert seen == [([1, 2], [3])] * 4


class Hostile(Exception):
    """An error that fails whenever it is looked at."""

    def __str__(self) -> str:
        raise ValueError("no words")

    @property
    def retry_after(self) -> float:
        raise ValueError("no time")


class Huge(Exception):
    """An error whose time is no float."""

    retry_after = 10**400


@pytest.mark.parametrize("error", [Hostile(), Huge(), Fatal(code=object())])  # type: ignore[arg-type]  # as untyped code does
async def test_an_error_that_can_not_be_looked_at_fails_its_attempt(world: World, error: Exception) -> None:
    @step(attempts=2, backoff=AT_ONCE)
    async def bad() -> None:
        raise error

    @workflow
    async def one(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(bad)
        except StepFailed as failed:
            return failed.type_name
        return ""

    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == type(error).__name__


async def test_a_thread_that_can_not_be_had_fails_the_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []

    class Bare(threading.Thread):
        def start(self) -> None:
            if self.name == "step-plain" and not lost:
                lost.append(self)
                raise RuntimeError("can't start new thread")
            super().start()

    @workflow
    async def one(ctx: WorkflowContext) -> int:
        return await ctx.step(step(lambda: 1, name="plain", backoff=AT_ONCE))

    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    monkeypatch.setattr("threading.Thread", Bare)
    async with world.engine(one) as engine:
        assert await result(await engine.start(one)) == 1
    assert len(lost) == 2
