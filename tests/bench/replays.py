"""A workflow with a thousand recorded steps is brought back in a new process.

What lives here: the clock around that. What does not: the deterministic loop.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.peers import DBOS, python_of
from tests.bench.places import Place, Places, places
from tests.bench.sides import Side, start_side
from tests.bench.tables import Row

COUNT = 1_000
_OURS = "tests.bench.our_side"
_DBOS = "tests.bench.peers.dbos_side"


async def replay(folder: Path, *, peers: bool = False) -> list[Row]:
    """Measure the body alone, and the signal that wakes it cold."""
    rows: list[Row] = []
    async with places(folder) as found:
        for kind in Places.KINDS:
            rows += await _of(await found.new(kind), folder, "ours", _OURS, None)
            if peers:
                python = await python_of("dbos", DBOS)
                rows += await _of(await found.new(kind), folder, f"DBOS {DBOS}", _DBOS, python)
    return rows


async def _of(place: Place, folder: Path, name: str, module: str, python: str | None) -> list[Row]:
    head, sides = f"{place.kind}, {name}", list[Side]()
    try:
        sides.append(await start_side(f"{head} before", module, place.url, "app", folder=folder, python=python))
        first = await sides[0].ask("record", count=COUNT)
        await sides[0].kill()
        sides.append(
            await start_side(
                f"{head} after", module, place.url, "app", folder=folder, python=python, more={"BENCH_MIGRATED": "1"}
            )
        )
        again = await sides[1].ask("replay", workflow_id=first["id"])
    finally:
        for side in sides:
            await side.kill()
    run = f"{first['took_ns'] / 1e6:,.0f} ms when they ran"
    rows = [Row(f"{head}: {COUNT:,} recorded steps, body start → past the last", f"{again['took_ns'] / 1e6:,.1f} ms", run)]
    if "answered_ns" in again:
        rows.append(
            Row(f"{head}: signal → continuation, cold, {COUNT:,} steps", f"{again['answered_ns'] / 1e6:,.1f} ms", "n = 1")
        )
    return rows
