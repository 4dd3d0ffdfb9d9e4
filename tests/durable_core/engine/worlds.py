"""Worlds: a store that outlives its engines, a clock set by hand, and what a test does to both.

What lives here: opening engines on one database, waiting until something is true. What does not: workflows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from durable_core.clock import ManualClock
from durable_core.engine.engine import Engine
from durable_core.engine.handles import RunHandle
from durable_core.registry import Workflow
from durable_core.store import Store
from durable_core.streams import EventView
from durable_core.testing.builders import START_MS
from durable_core.worker import WorkerOptions
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.conformance.sqlite import file_store, memory_store

FAST = WorkerOptions(poll=0.02, settle=0.001)
PATIENCE = 60.0
"""Real seconds after which a test that hangs is told so."""


@dataclass
class World:
    """One database, its clock, and the stores that were opened on it."""

    kind: str
    place: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    _stores: list[Store] = field(default_factory=list)

    async def open_store(self) -> Store:
        """Open a store on the database; in memory there is but one."""
        if self.kind == "memory" and self._stores:
            return self._stores[0]
        made = await self._make()
        await made.open()
        self._stores.append(made)
        return made

    async def _make(self) -> Store:
        if self.kind == "memory":
            return await memory_store(self.clock)
        if self.kind == "file":
            return await file_store(self.clock, self.place)
        return postgres_store(self.kind, self.clock)

    async def close_store(self, store: Store) -> None:
        """Close a store that is not needed any more."""
        if self.kind != "memory":
            self._stores.remove(store)
            await store.close()

    async def close(self) -> None:
        for store in self._stores:
            await store.close()

    @asynccontextmanager
    async def engine(self, *workflows: Workflow, store: Store | None = None, **options: Any) -> AsyncIterator[Engine]:
        """An engine on a store of its own, or on the given one."""
        own = store or await self.open_store()
        made = Engine(own, workflows=workflows, clock=self.clock, options=options.pop("options", FAST), **options)
        async with made:
            yield made
        if store is None:
            await self.close_store(own)

    def advance(self, **by: float) -> None:
        """Let time pass."""
        self.clock.advance(timedelta(**by))


async def until(done: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Wait until something is true, and return it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = done()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


async def parked(handle: RunHandle) -> None:
    """Wait until a run waits."""

    async def waits() -> bool:
        return (await handle.status()).status == "waiting"

    await until(waits)


async def events_of(handle: RunHandle, *types: str) -> list[EventView]:
    """Return a run's events, of some types or of all."""
    return [event async for event in handle.events() if not types or event.type in types]


async def result(handle: RunHandle) -> Any:
    """Return a run's result; a test that waits for it in vain is told so."""
    return await handle.result(timeout=PATIENCE)
