"""How long a replay takes: printed, not asserted; the goal is 40 ms for 1,000 recorded steps, 25 µs an entry."""

from __future__ import annotations

import asyncio
import time

import pytest

from durable_core.context import WorkflowContext
from durable_core.operations import Entry, EntryKind, Returned
from durable_core.registry import Workflow, workflow
from durable_core.replay import Replay
from tests.durable_core.plays import RUN, START_MS, add, fetch

STEPS = 1000


@workflow
async def one_by_one(ctx: WorkflowContext) -> int:
    return sum([await ctx.step(add, n, n) for n in range(STEPS)])


@workflow
async def in_groups(ctx: WorkflowContext) -> int:
    return sum([sum(await asyncio.gather(*(ctx.step(add, n, n) for _ in range(10)))) for n in range(STEPS // 10)])


@workflow
async def in_tasks(ctx: WorkflowContext) -> int:
    async def worker(n: int) -> int:
        async with asyncio.timeout(60):
            return await ctx.step(add, n, n)

    return sum([sum(await asyncio.gather(*(worker(n) for _ in range(10)))) for n in range(STEPS // 10)])


@pytest.mark.parametrize("body", [one_by_one, in_groups, in_tasks], ids=lambda body: body.name)
def test_a_thousand_steps_are_replayed(body: Workflow) -> None:
    log = [Entry(n=n, kind=EntryKind.STEP, op=f"step:add#{n}", value=1, at=START_MS + n) for n in range(STEPS)]
    times = []
    for _ in range(5):
        before = time.thread_time()
        replay = Replay(body, run_id=RUN, started_at=START_MS)
        replay.replaying = True
        replay.start()
        for entry in log:
            replay.deliver(entry)
        replay.finish_replay()
        times.append(time.thread_time() - before)
        assert replay.outcome == Returned(STEPS)
        replay.close()
    print(f"{body.name}: {STEPS} entries in {min(times) * 1000:.1f} ms, {min(times) / STEPS * 1e6:.1f} µs each")


def test_a_body_is_built_and_dropped() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")

    before = time.thread_time()
    for n in range(STEPS):
        replay = Replay(body, run_id=f"run_{n}", started_at=START_MS)
        replay.start()
        replay.close()
    print(f"a body is built and dropped in {(time.thread_time() - before) / STEPS * 1e6:.0f} µs")
