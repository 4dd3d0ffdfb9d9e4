"""A worker is killed in the middle of a slow step; the next one goes on, and the step says which attempt it is.

Run it: python docs/examples/crash.py [DATABASE_URL]. It starts its own worker processes, and kills one of them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from durable_core import Engine, WorkflowContext, step_context, workflow


def say(text: str) -> None:
    print(text, flush=True)


async def fetch() -> list[int]:
    """Get something: quick, and never done again once it is recorded."""
    say(f"  fetch: attempt {step_context().attempt}")
    return [3, 4, 5]


async def crunch(numbers: list[int]) -> int:
    """Take long enough to be killed in the middle."""
    say(f"  crunch: attempt {step_context().attempt}")
    await asyncio.sleep(3)
    return sum(numbers)


@workflow
async def report(ctx: WorkflowContext) -> str:
    numbers = await ctx.step(fetch)
    total = await ctx.step(crunch, numbers)
    return f"the sum is {total}"


async def work(url: str) -> None:
    """Be a worker, until somebody kills this process."""
    async with Engine(url, workflows=[report]):
        await asyncio.Event().wait()


async def start_worker(url: str) -> Process:
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--work", url, stdout=PIPE)
    say(f"A worker starts: process {process.pid}.")
    return process


async def pass_on(process: Process, until: str) -> None:
    """Show what a worker says, up to a line."""
    if process.stdout is None:
        return
    async for line in process.stdout:
        say(line.decode().rstrip())
        if until in line.decode():
            return


async def tell_the_story(url: str) -> None:
    async with Engine(url, workflows=[report], work=False, migrate=True) as engine:
        run = await engine.start(report)
        first = await start_worker(url)
        await pass_on(first, until="crunch")
        first.kill()
        await first.wait()
        say(f"kill -9 {first.pid}: crunch was in the middle of its work.")
        second = await start_worker(url)
        await pass_on(second, until="crunch")
        say(f"The result: {await run.result()}.")
        second.terminate()
        await second.wait()
        say("What was recorded:")
        async for event in run.events():
            attempt = f", attempt {event.data['attempt']}" if "attempt" in event.data else ""
            say(f"  {event.type} {event.data.get('op', '')}".rstrip() + attempt)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(sys.argv[2]))
    elif len(sys.argv) > 1:
        asyncio.run(tell_the_story(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(tell_the_story(f"sqlite:///{Path(folder) / 'crash.db'}"))
