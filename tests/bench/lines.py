"""What a measured process is on the inside: it answers each line of JSON on its standard input with one on its output.

What lives here: reading, answering, what the process has used. What does not: the measurements it offers; standard library only,
since peers run it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Handler = Callable[..., Awaitable[Mapping[str, Any]]]


def used() -> float:
    """Seconds of CPU this process has used, its threads included."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def peak() -> float:
    """Megabytes this process had resident at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def answer(handlers: Mapping[str, Handler]) -> None:
    """Answer until the input ends; a line is `{"do": name, …arguments}`. Whatever else is printed goes to the error output."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print('{"ready": true}', file=out)
    while line := await reader.readline():
        arguments = json.loads(line)
        try:
            found = dict(await handlers[arguments.pop("do")](**arguments))
        except Exception:  # noqa: BLE001 - the process that asked tells it
            found = {"failed": traceback.format_exc()}
        print(json.dumps(found), file=out)


async def load(at_once: int, seconds: float, work: Callable[[], Awaitable[int]]) -> dict[str, float]:
    """Keep so many callers busy for a while, each to the end of what it began; what they did, how long it took, the CPU."""
    began, cpu = time.perf_counter(), used()

    async def caller() -> int:
        done = 0
        while time.perf_counter() < began + seconds:
            done += await work()
        return done

    counts = await asyncio.gather(*(caller() for _ in range(at_once)))
    return {"steps": sum(counts), "seconds": time.perf_counter() - began, "cpu": used() - cpu}
