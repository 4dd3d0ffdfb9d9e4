"""This engine doing the measured work: the same handlers as the peers' sides.

What lives here: workflows, steps, what is asked of them. What does not: rounds and ratios.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.engine.loading import WarmBodies
from durable_core.operations import Hook
from durable_core.registry import step, workflow
from durable_core.worker import WorkerOptions
from tests.bench.lines import answer, load, peak, used
from tests.bench.payloads import payloads
from tests.bench.store_side import opened

TEXTS = payloads()
CLOSED = os.environ.get("BENCH_GATE") == "closed"
"""Whether the sixth step of a workflow in flight stays where it is, to be killed there."""
STEPS = 10
TOGETHER = 64
"""How many workflows are started or looked at together."""

_pauses = random.Random(2)
_stamps: dict[str, int] = {}
_arrived: set[str] = set()
_finished: dict[str, int] = {}
_executed: list[int] = []


def go(run_id: str) -> str:
    """Return the name that a run is signalled by."""
    return f"go:{run_id}"


@step
async def think(n: int) -> dict[str, object]:
    _executed.append(n)
    return TEXTS[n % len(TEXTS)]


@step
async def gate(key: str, n: int) -> dict[str, object]:
    if CLOSED:
        _arrived.add(key)
        await asyncio.Event().wait()
    _executed.append(n)
    return TEXTS[n % len(TEXTS)]


@step
async def stamp(key: str) -> None:
    """Say when it began: the signal is durable by then."""
    _stamps[key] = time.monotonic_ns()


@workflow
async def ten(ctx: WorkflowContext, start: int) -> int:
    for n in range(STEPS):
        await ctx.step(think, start + n)
    return start


@workflow
async def parked(ctx: WorkflowContext) -> str:
    got: str = await ctx.wait_for(Hook(go(ctx.run_id)))
    await ctx.step(stamp, ctx.run_id)
    return got


@workflow
async def flying(ctx: WorkflowContext) -> int:
    for n in range(STEPS):
        await (ctx.step(gate, ctx.run_id, n) if n == STEPS // 2 else ctx.step(think, n))
    _finished[ctx.run_id] = time.monotonic_ns()
    return STEPS


@workflow
async def long(ctx: WorkflowContext, count: int) -> int:
    began = time.monotonic_ns()
    for n in range(count):
        await ctx.step(think, n)
    _finished[ctx.run_id] = time.monotonic_ns() - began
    await ctx.wait_for(Hook(go(ctx.run_id)))
    await ctx.step(stamp, ctx.run_id)
    return count


class OurSide:
    """The handlers, over one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def versions(self) -> Mapping[str, Any]:
        return {name: version(name) for name in ("moorings", "zstandard", "orjson", "cryptography")}

    async def steps(self, at_once: int, seconds: float) -> Mapping[str, Any]:
        """Workflows of ten steps, so many at once."""
        chance = random.Random(1)

        async def one() -> int:
            await (await self.engine.start(ten, chance.randrange(1_000))).result()
            return STEPS

        return await load(at_once, seconds, one)

    async def park(self, count: int) -> Mapping[str, Any]:
        """Start workflows that wait for a signal."""
        ids = await self._started(parked, count)
        await self._idle()
        return {"ids": ids}

    async def signal(self, ids: list[str], gap: float) -> Mapping[str, Any]:
        """Send each its signal, at random moments that are `gap` seconds apart on average; when each was sent."""
        sent = {}
        for run_id in ids:
            await asyncio.sleep(_pauses.uniform(0, 2 * gap))
            sent[run_id] = time.monotonic_ns()
            await self.engine.signal(go(run_id), "x")
        return {"sent": sent}

    async def stamps(self, ids: list[str], wait: float) -> Mapping[str, Any]:
        """When each went on, as far as they have within so many seconds."""
        until = time.monotonic() + wait
        while not all(one in _stamps for one in ids) and time.monotonic() < until:
            await asyncio.sleep(0.003)
        return {"stamps": {one: _stamps[one] for one in ids if one in _stamps}}

    async def fly(self, count: int) -> Mapping[str, Any]:
        """Start workflows and wait until each has five of its ten steps and is in the sixth."""
        ids = await self._started(flying, count)
        while len(_arrived) < count:
            await asyncio.sleep(0.01)
        return {"ids": ids}

    async def recover(self, count: int, signalled: str, until_ns: int) -> Mapping[str, Any]:
        """Send one parked workflow its signal at once; when it and all that were in flight went on, or how far they came."""
        sent, spent = time.monotonic_ns(), None
        await self.engine.signal(go(signalled), "x")
        while time.monotonic_ns() < until_ns:
            if spent is None and len(_finished) >= count:
                spent = used()
            if spent is not None and signalled in _stamps:
                break
            await asyncio.sleep(0.005)
        return {
            "executed": len(_executed),
            "finished": len(_finished),
            "last_ns": max(_finished.values(), default=None),
            "sent_ns": sent,
            "answered_ns": _stamps.get(signalled),
            "cpu_flying": spent,
            "cpu": used(),
            "peak": peak(),
        }

    async def record(self, count: int) -> Mapping[str, Any]:
        """Run one workflow of many steps that then waits."""
        run_id = (await self.engine.start(long, count)).run_id
        took = await _taken(run_id)
        await self._idle()
        return {"id": run_id, "took_ns": took}

    async def replay(self, workflow_id: str) -> Mapping[str, Any]:
        """Wake that workflow here, where its body isn't warm; what its body took, and the whole way to its next step."""
        sent = time.monotonic_ns()
        await self.engine.signal(go(workflow_id), "x")
        while workflow_id not in _stamps:
            await asyncio.sleep(0.001)
        return {"took_ns": await _taken(workflow_id), "answered_ns": _stamps[workflow_id] - sent}

    async def _idle(self) -> None:
        """Wait until nothing runs here, twice with a while between."""
        for _ in range(2):
            await asyncio.sleep(0.2)
            while self.engine._worker is not None and self.engine._worker.busy:
                await asyncio.sleep(0.02)

    async def _started(self, what: Any, count: int) -> list[str]:
        ids: list[str] = []
        for first in range(0, count, TOGETHER):
            handles = await asyncio.gather(*(self.engine.start(what) for _ in range(min(TOGETHER, count - first))))
            ids += [handle.run_id for handle in handles]
        return ids


async def _taken(run_id: str) -> int:
    while run_id not in _finished:
        await asyncio.sleep(0.001)
    return _finished[run_id]


async def main(url: str, role: str) -> None:
    """Work (`app`; `wide` on a thousand runs at once, `cold` with no body kept warm) or only send (`client`), and answer."""
    options = WorkerOptions(concurrency=1_200) if role == "wide" else WorkerOptions()
    engine = Engine(await opened(url), workflows=[ten, parked, flying, long], options=options, work=role != "client")
    async with engine:
        if role == "cold" and engine._runner is not None:
            engine._runner.warm = WarmBodies(0)
        side = OurSide(engine)
        handlers = (
            side.versions,
            side.steps,
            side.park,
            side.signal,
            side.stamps,
            side.fly,
            side.recover,
            side.record,
            side.replay,
        )
        await answer({handler.__name__: handler for handler in handlers})
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
