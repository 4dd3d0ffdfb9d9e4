"""The command: runs what is named, or all, and prints one table; the path of another checkout compares it with this one.

What lives here: names and the order. What does not: measurements.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.bench import parked, restarts, slack, storage, turns, versus
from tests.bench.tables import Row, markdown

LIMIT_SECONDS = 300.0
"""Longest time one benchmark may take."""

BENCHMARKS: dict[str, Callable[[Path], Awaitable[list[Row]]]] = {
    "store": storage.alone,
    "turns": turns.ack_and_turn,
    "answer": turns.answer,
    "disk": storage.disk,
    "killed": restarts.killed,
    "started": restarts.started,
    "idle": restarts.idle,
    "parked": parked.parked,
    "slack": slack.acks_and_clicks,
}


async def measure(names: list[str]) -> list[Row]:
    """Run benchmarks one after the other, each in a folder of its own."""
    rows: list[Row] = []
    for name in names:
        run = partial(versus.versus, other=Path(name).resolve()) if "/" in name else BENCHMARKS[name]
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{Path(name).name}-"))
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                found = await run(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for row in found:
            print(f"  {name}: {row.what}: {row.value}", file=sys.stderr, flush=True)
        rows += found
    return rows


def main() -> None:
    """Read names, print the table."""
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS and not Path(name, "bot").is_dir()]:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    before = os.getloadavg()[0]
    rows = asyncio.run(measure(names))
    print(
        f"\n{os.cpu_count()} cores, load {before:.1f} → {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}\n"
    )
    print(markdown(rows))


if __name__ == "__main__":
    main()
