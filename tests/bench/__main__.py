"""The command: runs what is named, or all, and prints one table; the path of another checkout compares it with this one, and
`--peers` measures other systems beside the engine, each in an environment of its own.

What lives here: names and the order. What does not: measurements.
"""

from __future__ import annotations

import argparse
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

from tests.bench import parked, prompts, recovery, replays, restarts, resume, slack, steps, storage, turns, versus
from tests.bench.tables import Row, markdown

LIMIT_SECONDS = 600.0
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
    "prompts": prompts.prompts,
    "slack": slack.acks_and_clicks,
}

ENGINE: dict[str, Callable[..., Awaitable[list[Row]]]] = {
    "steps": steps.steps,
    "resume": resume.resume,
    "recovery": recovery.recovery,
    "replay": replays.replay,
}
"""Those of the workflow engine, which other systems have as well."""


def _chosen(name: str, *, peers: bool) -> Callable[[Path], Awaitable[list[Row]]]:
    if "/" in name:
        return partial(versus.versus, other=Path(name).resolve())
    return partial(ENGINE[name], peers=peers) if name in ENGINE else BENCHMARKS[name]


async def measure(names: list[str], *, peers: bool) -> list[Row]:
    """Run benchmarks one after the other, each in a folder of its own."""
    rows: list[Row] = []
    for name in names:
        run = _chosen(name, peers=peers)
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
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure, and print a table.")
    known = [*BENCHMARKS, *ENGINE]
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(known)}, or the path of another checkout")
    parser.add_argument("--peers", action="store_true", help=f"other systems beside {', '.join(ENGINE)}")
    arguments = parser.parse_args()
    names = arguments.names or known
    if unknown := [name for name in names if name not in known and not Path(name, "bot").is_dir()]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    before = os.getloadavg()[0]
    rows = asyncio.run(measure(names, peers=arguments.peers))
    print(
        f"\n{os.cpu_count()} cores, load {before:.1f} → {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}\n"
    )
    print(markdown(rows))


if __name__ == "__main__":
    main()
