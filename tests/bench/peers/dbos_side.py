"""DBOS doing the measured work, as its documentation has it: async workflows and steps, its settings as they come.

What lives here: the same handlers as `tests.bench.our_side`. Run by an interpreter that has `dbos`;
nothing of ours but the texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import sqlite3
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from tests.bench.lines import answer, load, peak, used
from tests.bench.payloads import payloads

dbos: Any = importlib.import_module("dbos")
DBOS: Any = dbos.DBOS

TEXTS = payloads()
CLOSED = os.environ.get("BENCH_GATE") == "closed"
"""Whether the sixth step of a workflow in flight stays where it is, to be killed there."""
STEPS = 10

_pauses = random.Random(2)
_stamps: dict[str, int] = {}
_arrived: set[str] = set()
_finished: dict[str, int] = {}
_executed: list[int] = []
_client: Any = None


@DBOS.step()
async def think(n: int) -> dict[str, object]:
    _executed.append(n)
    return TEXTS[n % len(TEXTS)]


@DBOS.step()
async def gate(key: str, n: int) -> dict[str, object]:
    if CLOSED:
        _arrived.add(key)
        await asyncio.Event().wait()
    _executed.append(n)
    return TEXTS[n % len(TEXTS)]


@DBOS.workflow()
async def ten(start: int) -> int:
    for n in range(STEPS):
        await think(start + n)
    return start


@DBOS.workflow()
async def parked() -> str:
    got: str = await DBOS.recv_async("go", timeout_seconds=86_400)
    _stamps[DBOS.workflow_id] = time.monotonic_ns()
    return got


@DBOS.workflow()
async def flying() -> int:
    for n in range(STEPS):
        await (gate(DBOS.workflow_id, n) if n == STEPS // 2 else think(n))
    _finished[DBOS.workflow_id] = time.monotonic_ns()
    return STEPS


@DBOS.workflow()
async def long(count: int) -> int:
    began = time.monotonic_ns()
    for n in range(count):
        await think(n)
    _finished[DBOS.workflow_id] = time.monotonic_ns() - began
    await DBOS.recv_async("go", timeout_seconds=86_400)
    return count


async def versions() -> Mapping[str, Any]:
    return {"DBOS": version("dbos"), "SQLAlchemy": version("sqlalchemy"), "psycopg": version("psycopg")}


async def steps(at_once: int, seconds: float) -> Mapping[str, Any]:
    """Workflows of ten steps, so many at once."""
    chance = random.Random(1)

    async def one() -> int:
        handle = await DBOS.start_workflow_async(ten, chance.randrange(1_000))
        await handle.get_result()
        return STEPS

    return await load(at_once, seconds, one)


async def park(count: int) -> Mapping[str, Any]:
    """Start workflows that wait for a message."""
    ids = [(await DBOS.start_workflow_async(parked)).workflow_id for _ in range(count)]
    await asyncio.sleep(1)
    return {"ids": ids}


async def signal(ids: list[str], gap: float) -> Mapping[str, Any]:
    """Send each its message, at random moments that are `gap` seconds apart on average; when each was sent."""
    sent = {}
    send = DBOS.send_async if _client is None else _client.send_async
    for workflow_id in ids:
        await asyncio.sleep(_pauses.uniform(0, 2 * gap))
        sent[workflow_id] = time.monotonic_ns()
        await send(workflow_id, "x", "go")
    return {"sent": sent}


async def stamps(ids: list[str], wait: float) -> Mapping[str, Any]:
    """When each went on, as far as they have within so many seconds."""
    until = time.monotonic() + wait
    while not all(one in _stamps for one in ids) and time.monotonic() < until:
        await asyncio.sleep(0.003)
    return {"stamps": {one: _stamps[one] for one in ids if one in _stamps}}


async def fly(count: int) -> Mapping[str, Any]:
    """Start workflows and wait until each has five of its ten steps and is in the sixth."""
    ids = [(await DBOS.start_workflow_async(flying)).workflow_id for _ in range(count)]
    while len(_arrived) < count:
        await asyncio.sleep(0.01)
    return {"ids": ids}


async def recover(count: int, signalled: str, until_ns: int) -> Mapping[str, Any]:
    """Send one parked workflow its message at once; when it and all that were in flight went on, or how far they came."""
    await DBOS.send_async(signalled, "x", "go")
    sent, spent = time.monotonic_ns(), None
    while time.monotonic_ns() < until_ns:
        if spent is None and len(_finished) >= count:
            spent = used()
        if spent is not None and signalled in _stamps:
            break
        await asyncio.sleep(0.02)
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


async def record(count: int) -> Mapping[str, Any]:
    """Run one workflow of many steps that then waits."""
    handle = await DBOS.start_workflow_async(long, count)
    return {"id": handle.workflow_id, "took_ns": await _finish(handle.workflow_id)}


async def replay(workflow_id: str) -> Mapping[str, Any]:
    """What the steps of that workflow took to be read again, in the process that recovers it."""
    return {"took_ns": await _finish(workflow_id)}


async def _finish(workflow_id: str) -> int:
    while workflow_id not in _finished:
        await asyncio.sleep(0.001)
    return _finished[workflow_id]


async def main(url: str, role: str) -> None:
    """Connect as an application or as a client from outside, and answer."""
    global _client  # noqa: PLW0603 - one process, one role
    if role == "client":
        _client = await asyncio.to_thread(lambda: dbos.DBOSClient(system_database_url=url))
    else:
        if role == "wal":
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
        config = {
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "bench",
            "enable_otlp": False,
        }
        DBOS(config=config)
        await asyncio.to_thread(DBOS.launch)
    handlers = (versions, steps, park, signal, stamps, fly, recover, record, replay)
    await answer({handler.__name__: handler for handler in handlers})
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "app"))
