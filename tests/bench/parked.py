"""Ten thousand sessions that wait for somebody must cost nothing: neither at start-up nor at a click.

What lives here: the same two measurements with none and with many. What does not: how parking works.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bot.principal import Principal
from bot.runtime import open_runtime
from bot.settings import Settings
from channels.events import Standing
from durable_core.worker import WorkerOptions
from tests.bench.bots import bot
from tests.bench.http import connected
from tests.bench.processes import cpu, environment, launched, prepare, ready, rss, serving
from tests.bench.tables import Row, median, spread
from tests.bench.turns import approve

COUNT = int(os.environ.get("BENCH_PARKED", "10000"))
ROUNDS = 5
PARKER = "api:bench"
"""Who asked in the parked sessions."""


async def parked(folder: Path) -> list[Row]:
    """Measure with none, park many by the engine itself, measure again."""
    prepare(folder)
    starts, clicks, memory, work = await _measure(folder)
    began = time.monotonic()
    await park(Settings.from_env(environment(folder), data=folder), COUNT)
    took = time.monotonic() - began
    starts_many, clicks_many, memory_many, work_many = await _measure(folder)
    made = f"{COUNT} parked by the engine in {took:.0f} s"
    return [
        Row("start → /readyz with 0 / many parked", f"{_ratio(starts, starts_many, 's', 1)}", made),
        Row("CPU until ready and 1 s more, 0 / many parked", f"{_ratio(work, work_many, 's', 1)}", f"median of {ROUNDS}"),
        Row(
            "answer → tool start with 0 / many parked", f"{_ratio(clicks, clicks_many, 'ms', 1000)}", f"now {spread(clicks_many)}"
        ),
        Row("idle RSS with 0 / many parked", f"{_ratio(memory, memory_many, 'MB', 1)}", ""),
    ]


def _ratio(few: list[float], many: list[float], unit: str, scale: float) -> str:
    a, b = median(few), median(many)
    return f"{a * scale:.2f} / {b * scale:.2f} {unit}: × {b / a:.2f}"


async def _measure(folder: Path) -> tuple[list[float], list[float], list[float], list[float]]:
    starts, memory, work = [], [], []
    for _ in range(ROUNDS):
        async with launched(folder) as server:
            starts.append(await ready(server, "Listening on"))
            await asyncio.sleep(1)
            memory.append(rss(server.pid))
            work.append(cpu(server.pid))
    async with serving(folder) as server, connected(server.port) as http:
        for _ in range(10):
            await approve(server, http)
        clicks = [await approve(server, http) for _ in range(40)]
    return starts, clicks, memory, work


async def park(settings: Settings, count: int, *, text: str = "mark", before: int = 0) -> None:
    """Run the engine in this process, and have it park sessions beside those parked before: real turns, prompts, commits."""
    runtime = await open_runtime(bot, settings, options=WorkerOptions(concurrency=64))
    caller = Principal(PARKER, "bench", Standing.MEMBER, channel="api")
    try:
        await runtime.start()
        for first in range(0, count, 64):
            await asyncio.gather(
                *(
                    runtime.sessions.create(caller, message=text, agent=None, metadata=None, key=None)
                    for _ in range(min(64, count - first))
                )
            )
        sql = "SELECT count(*) FROM moor_run WHERE phase = 'waiting'"
        while int(str((await runtime.store.rows(sql, {}))[0][0])) < before + count:
            await asyncio.sleep(0.2)
    finally:
        await runtime.close()
