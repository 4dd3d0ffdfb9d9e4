"""The application that a fleet runs: five steps, each with an effect on the world.

What lives here: its workflows, opening an engine, a worker process. What does not: faults, which come from outside.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from durable_core.clock import DatabaseClock
from durable_core.codec import decode
from durable_core.context import WorkflowContext
from durable_core.crypto import KeyRing
from durable_core.engine.engine import Engine
from durable_core.errors import LeaseLost, Unavailable
from durable_core.model import Committed, Signals, StepCommit
from durable_core.operations import EntryKind
from durable_core.registry import step, workflow
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.worker import WorkerOptions
from tests.durable_core.soak.effects import Effect, Effects, FileEffects, PostgresEffects

KEYS: Final = "test:" + "A" * 43 + "="
STEPS: Final = 5

LEASE_SECONDS: Final = 2.0
OUTAGE_SECONDS: Final = 60

_owner = ""
_effects: Effects | None = None


def say(**fields: object) -> None:
    """Tell the parent."""
    print(json.dumps(fields), flush=True)


@step
async def effect(run_id: str, n: int) -> str:
    """Leave a row, and return its name."""
    assert _effects is not None
    nonce = uuid.uuid4().hex
    await _effects.add(Effect(run_id, n, nonce, _owner))
    return nonce


@step
async def slow(run_id: str, gate: str) -> str:
    """Say that it began, wait until there is a file, and return who ran it."""
    say(began=run_id)
    while not Path(gate).exists():  # noqa: ASYNC240 - of a file of its own
        await asyncio.sleep(0.02)
    return _owner


@step
async def blocking(run_id: str) -> str:
    """Say that it began, block the loop of the first worker until the parent sends a line, and return who ran it."""
    say(began=run_id)
    if _owner == "w1":
        sys.stdin.readline()
    return _owner


@workflow
async def five(ctx: WorkflowContext) -> list[str]:
    return [await ctx.step(effect, ctx.run_id, n) for n in range(STEPS)]


@workflow
async def long(ctx: WorkflowContext, gate: str) -> str:
    owner: str = await ctx.step(slow, ctx.run_id, gate)
    return owner


@workflow
async def blocks(ctx: WorkflowContext) -> str:
    owner: str = await ctx.step(blocking, ctx.run_id)
    return owner


@workflow
async def stuck(ctx: WorkflowContext) -> None:
    """Block as `blocking` does, in the body itself."""
    say(began=ctx.run_id)
    sys.stdin.readline()


@step
async def clock() -> int:
    """Return the machine's time, in milliseconds."""
    return time.time_ns() // 1_000_000


@workflow
async def timed(ctx: WorkflowContext, seconds: float) -> list[int]:
    """Sleep; return in milliseconds when that was over, when the body went on, and the machine's time in the step after."""
    due = ctx.now() + timedelta(seconds=seconds)
    await ctx.sleep(timedelta(seconds=seconds))
    return [int(due.timestamp() * 1000), int(ctx.now().timestamp() * 1000), await ctx.step(clock)]


UNSLEPT: Final = "SELECT run_id FROM moor_run WHERE status = 'open' AND (owner IS NOT NULL OR wake_at <= created_at) LIMIT 1"
"""Runs that have begun and are not yet asleep."""


def store_of(url: str) -> Store:
    """Return the store of a database, whose schema is made."""
    return open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())


def effects_at(place: str) -> Effects:
    """Return the effects of a URL or a file."""
    return PostgresEffects(place) if "://" in place else FileEffects(Path(place))


@asynccontextmanager
async def engine_on(url: str, *, work: bool = False, concurrency: int = 8, blocked_limit: float = 600.0) -> AsyncIterator[Engine]:
    """Run an engine on a database; by default one that only starts and reads."""
    store = store_of(url)
    await store.open()
    options = WorkerOptions(lease=LEASE_SECONDS, concurrency=concurrency, blocked_limit=blocked_limit)
    try:
        async with Engine(store, workflows=(five, long, timed, blocks, stuck), options=options, work=work) as engine:
            yield engine
    finally:
        await store.close()


async def recorded(engine: Engine, run_id: str) -> list[Any]:
    """Return what the steps of a run are recorded to have returned, in the order of the log, whatever the body returned."""
    steps = await engine.store.steps(run_id)
    outputs: list[Any] = [decode(one.output) for one in steps if one.kind == EntryKind.STEP]
    return [output["value"] for output in outputs]


async def started(engine: Engine, count: int) -> list[str]:
    """Start runs of five steps; while the database is away, try again under the same key."""
    ids: list[str] = []
    while len(ids) < count:
        ids += await asyncio.gather(*(_started(engine, uuid.uuid4().hex) for _ in range(min(50, count - len(ids)))))
    return ids


async def _started(engine: Engine, key: str) -> str:
    async with asyncio.timeout(OUTAGE_SECONDS):
        while True:
            try:
                return (await engine.start(five, key=key)).run_id
            except Unavailable:
                await asyncio.sleep(0.1)


def tell_losses(store: Store) -> None:
    """Say of each run when its lease turns out to be lost: a commit is refused, or a renewal leaves it out."""
    old_commit, old_renew = store.commit, store.renew

    async def told_commit(commit: StepCommit) -> Committed:
        try:
            return await old_commit(commit)
        except LeaseLost:
            say(lost=commit.run_id, by="commit")
            raise

    async def told_renew(owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
        known = await old_renew(owner, leases, lease_ms=lease_ms)
        for run_id, _ in leases:
            if run_id not in known:
                say(lost=run_id, by="renew")
        return known

    store.commit, store.renew = told_commit, told_renew  # type: ignore[method-assign]


async def _working(stack: AsyncExitStack, url: str, blocked_limit: float) -> Engine:
    """Begin to work as soon as the database is there."""
    async with asyncio.timeout(OUTAGE_SECONDS):
        while True:
            try:
                return await stack.enter_async_context(engine_on(url, work=True, blocked_limit=blocked_limit))
            except Unavailable:
                await asyncio.sleep(0.1)


async def main(url: str, place: str, owner: str, role: str = "worker", blocked_limit: str = "600") -> None:
    """Work until killed; a `starter` also starts runs without end, and names each that was accepted."""
    global _owner, _effects
    _owner, _effects = owner, effects_at(place)
    async with AsyncExitStack() as stack:
        engine = await _working(stack, url, float(blocked_limit))
        tell_losses(engine.store)
        say(ready=owner)
        while role == "starter":
            for run_id in await started(engine, 5):
                say(started=run_id)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
