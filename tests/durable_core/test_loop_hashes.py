"""Rule 1: sets of tasks and futures have one order in every process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from durable_core.context import WorkflowContext
from durable_core.failures import NotDurable
from durable_core.registry import workflow
from tests.durable_core.plays import Play, fetch

ROOT = Path(__file__).resolve().parents[2]


@workflow
async def race(ctx: WorkflowContext) -> list[str]:
    """Walk through sets of tasks in every way that asyncio has."""
    said: list[str] = []

    async def worker(name: str) -> str:
        try:
            return str(await ctx.step(fetch, name))
        except asyncio.CancelledError:
            said.append(f"{name} is cancelled")
            raise

    tasks = {asyncio.create_task(worker(name), name=name) for name in "abcdefghijkl"}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    said += [f"done {one.get_name()}" for one in done]
    said += [f"pending {one.get_name()}" for one in pending]
    futures = {ctx.step(fetch, name): name for name in "mnopq"}
    said += [futures[one] for one in set(futures)]
    for one in pending:
        one.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    try:
        async with asyncio.TaskGroup() as group:
            for name in "rstuv":
                group.create_task(worker(name))
            await asyncio.sleep(0)
            raise ValueError  # noqa: TRY301 - the group is left by it
    except* ValueError:
        said.append("group is over")
    return said


def told() -> str:
    return "\n".join(Play(race).done("step:fetch#7", "H").again().result)


def test_rule_1_three_processes_walk_in_one_order() -> None:
    script = "from tests.durable_core.test_loop_hashes import told; junk = [object() for _ in range({})]; print(told())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script.format(seed * 1001)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout.strip()
        for seed in (1, 2, 3)
    }
    assert outputs == {told()}
    assert "a is cancelled" in told()
    assert told().count("pending ") == 11


def test_small_sets_keep_the_order_of_creation() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(1), name=str(n)) for n in range(5)]
        backwards = tasks[::-1]
        return [one.get_name() for one in set(backwards)]

    assert Play(body).result == ["0", "1", "2", "3", "4"]


async def test_tasks_of_bodies_are_in_no_set_of_the_process() -> None:
    """Its order would come from what else the process does."""

    @workflow
    async def body(ctx: WorkflowContext) -> list[object]:
        waiting = asyncio.create_task(asyncio.sleep(1))
        said = [*asyncio.all_tasks(), asyncio.current_task() is None]
        waiting.cancel()
        return said

    before = len(asyncio.all_tasks())
    assert Play(body).result == [False]
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("kind", ["tasks", "futures"])
def test_rule_1_as_completed_is_refused_and_names_ours(kind: str) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        for one in asyncio.as_completed([fetch("a")] if kind == "tasks" else [ctx.step(fetch, "a")]):
            await one

    with pytest.raises(NotDurable, match=r"test_loop_hashes.py:\d+ \(body\): asyncio.as_completed.*use ctx.as_completed"):
        Play(body)


def test_wait_on_several_gathers_is_refused() -> None:
    """A gather's own future is hashed by its address."""

    @workflow
    async def body(ctx: WorkflowContext, several: int) -> None:
        await asyncio.wait([asyncio.gather(ctx.step(fetch, "a")) for _ in range(several)])

    with pytest.raises(NotDurable, match=r"order differs between processes; make it a task"):
        Play(body, 2)
    assert Play(body, 1).done("step:fetch#0").again().result is None
