"""What a body wants, kept up by what changed: thousands at once are not looked through for each that ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.engine.wants import Times
from durable_core.registry import workflow
from durable_core.replay import Replay
from tests.durable_core.engine.worlds import World, result


def test_times_are_told_in_their_order_and_of_two_at_once_the_first() -> None:
    times = Times()
    for op, at in (("b", 2), ("a", 1), ("c", 2), ("d", 3)):
        times.set(op, at)
    told = []
    while (first := times.first()) is not None:
        told.append(first)
        times.drop(first[1])
    assert told == [(1, "a"), (2, "b"), (2, "c"), (3, "d")]
    assert times.first_at() is None


def test_a_time_that_is_set_again_counts_anew() -> None:
    times = Times()
    times.set("a", 1)
    times.set("b", 2)
    times.set("a", 3)
    assert times.first() == (2, "b")


def test_times_that_were_dropped_take_no_place() -> None:
    times = Times()
    times.set("kept", 10**9)
    for number in range(10_000):
        times.set(str(number), number + 10**6)
        times.drop(str(number))
    assert len(times._heap) < 100
    assert times.first() == (10**9, "kept")


async def number(n: int) -> int:
    return n


@workflow
async def leaf(ctx: WorkflowContext, n: int) -> int:
    return n


@workflow
async def wide(ctx: WorkflowContext, what: str, width: int) -> int:
    match what:
        case "steps":
            waiting: list[Any] = [ctx.step(number, n) for n in range(width)]
        case "timers":
            waiting = [ctx.sleep(n % 7 / 10) for n in range(width)]
        case _:
            waiting = [ctx.child(leaf, n) for n in range(width)]
    return len(await asyncio.gather(*waiting))


@pytest.mark.parametrize("what", ["steps", "timers", "children"])
async def test_each_of_many_is_looked_at_a_few_times(world: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    looked = 0
    take = Replay.take_touched

    def counted(self: Replay) -> Any:
        nonlocal looked
        touched = take(self)
        looked += len(touched)
        return touched

    monkeypatch.setattr(Replay, "take_touched", counted)
    async with world.engine(wide, leaf, work=False) as engine:
        run = await engine.start(wide, what, 200)
        while not (await run.status()).ended_at:
            await engine.run_due()
            world.advance(milliseconds=500)
        assert await result(run) == 200
    assert looked <= 2 * 200
