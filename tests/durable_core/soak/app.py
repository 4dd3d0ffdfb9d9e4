"""The application that a fleet runs: five steps, each with an effect on the world.

What lives here: its workflows, opening an engine, a worker process. What does not: faults, which come from outside.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from durable_core.clock import DatabaseClock
from durable_core.codec import decode
from durable_core.context import WorkflowContext
from durable_core.crypto import KeyRing
from durable_core.engine import Engine
from durable_core.operations import EntryKind
from durable_core.registry import step, workflow
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.worker import WorkerOptions
from tests.durable_core.soak.effects import Effect, Effects, FileEffects, PostgresEffects

KEYS: Final = "test:" + "A" * 43 + "="
STEPS: Final = 5

_owner = ""
_effects: Effects | None = None


@step(attempts=20)
async def effect(run_id: str, n: int) -> str:
    """Leave a row, and return its name."""
    assert _effects is not None
    nonce = uuid.uuid4().hex
    await _effects.add(Effect(run_id, n, nonce, _owner))
    return nonce


@step
async def slow(run_id: str, seconds: float) -> str:
    """Say that it began, take a while, and return who ran it."""
    say(began=run_id)
    await asyncio.sleep(seconds)
    say(done=run_id)
    return _owner


@step
async def fired(n: int) -> None:
    """Say that a timer fired."""


@workflow
async def five(ctx: WorkflowContext) -> list[str]:
    return [await ctx.step(effect, ctx.run_id, n) for n in range(STEPS)]


@workflow
async def long(ctx: WorkflowContext, seconds: float) -> str:
    owner: str = await ctx.step(slow, ctx.run_id, seconds)
    return owner


@workflow
async def timed(ctx: WorkflowContext, milliseconds: int) -> list[int]:
    """Return when it was due and when it went on, in milliseconds."""
    began = ctx.now()
    await ctx.sleep(timedelta(milliseconds=milliseconds))
    due = began + timedelta(milliseconds=milliseconds)
    return [round(at.timestamp() * 1000) for at in (due, ctx.now())]


WORKFLOWS: Final = (five, long, timed)


def say(**fields: object) -> None:
    """Tell the parent."""
    print(json.dumps(fields), flush=True)


def store_of(url: str) -> Store:
    """Return the store of a database, whose schema is made."""
    return open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
