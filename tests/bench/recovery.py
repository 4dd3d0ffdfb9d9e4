"""Kill -9 with many workflows parked and some in flight, and what the restart costs.

What lives here: the kill, the restart, the clock. What does not: whether nothing is lost (the soak tests).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.bench.peers import DBOS, python_of
from tests.bench.places import Places, PostgresPlace, places
from tests.bench.sides import Side, start_side
from tests.bench.tables import Row

PARKED = int(os.environ.get("BENCH_PARKED", "10000"))
FLYING = int(os.environ.get("BENCH_FLYING", "1000"))
BOUND_SECONDS = 170.0
"""After so long the restart is not waited for any more."""

_OURS = "tests.bench.our_side"
_DBOS = "tests.bench.peers.dbos_side"


async def recovery(folder: Path, *, peers: bool = False) -> list[Row]:
    """Measure ours on both kinds, and DBOS on PostgreSQL with rows multiplied by SQL, since it parks less than 100 a second."""
    rows: list[Row] = []
    async with places(folder) as found:
        for kind in Places.KINDS:
            place = await found.new(kind)
            before = await start_side(
                f"ours {kind} before", _OURS, place.url, "wide", folder=folder, more={"BENCH_GATE": "closed"}
            )
            try:
                parked = (await before.ask("park", count=PARKED))["ids"]
                await before.ask("fly", count=FLYING)
            finally:
                await before.kill()
            after = await start_side(f"ours {kind} after", _OURS, place.url, "wide", folder=folder, more={"BENCH_MIGRATED": "1"})
            rows += await _recovered(after, f"{kind}, ours", parked[PARKED // 2], targets=("≤ 3 s", "≤ 0.5 s"))
        if peers:
            rows += await _dbos(await found.postgres(), folder)
    return rows


async def _dbos(place: PostgresPlace, folder: Path) -> list[Row]:
    python = await python_of("dbos", DBOS)
    before = await start_side("DBOS before", _DBOS, place.url, folder=folder, python=python, more={"BENCH_GATE": "closed"})
    try:
        parked = (await before.ask("park", count=1))["ids"][0]
        flying = (await before.ask("fly", count=1))["ids"][0]
    finally:
        await before.kill()
    for workflow_id, name, count in ((parked, "par", PARKED), (flying, "fly", FLYING)):
        multiply(place, workflow_id, name, count - 1)
    after = await start_side("DBOS after", _DBOS, place.url, folder=folder, python=python)
    return await _recovered(after, f"PostgreSQL, DBOS {DBOS}", f"par-{PARKED // 2}", targets=("", ""))


def multiply(place: PostgresPlace, workflow_id: str, name: str, count: int) -> None:
    """Copy a workflow of DBOS and what its steps left, so many times."""
    for table in ("workflow_status", "workflow_input", "operation_outputs"):
        place.execute(
            f"""INSERT INTO dbos.{table}
            SELECT (jsonb_populate_record(t, jsonb_build_object('workflow_uuid', '{name}-' || n))).*
            FROM dbos.{table} t, generate_series(1, {count}) n WHERE t.workflow_uuid = '{workflow_id}'"""
        )


async def _recovered(after: Side, head: str, signalled: str, *, targets: tuple[str, str]) -> list[Row]:
    until = after.started_ns + int(BOUND_SECONDS * 1e9)
    try:
        found = await after.ask("recover", bound=BOUND_SECONDS + 30, count=FLYING, signalled=signalled, until_ns=until)
    finally:
        await after.kill()
    whole = f"{PARKED:,} parked, {FLYING:,} in flight"
    never = f"not within {BOUND_SECONDS:.0f} s"
    done = _since(after, found["last_ns"]) if found["finished"] >= FLYING else f"{never}: {found['finished']:,}"
    answered = never
    if found["answered_ns"] is not None:
        answered = (
            f"{_since(after, found['answered_ns'])}; {(found['answered_ns'] - found['sent_ns']) / 1e6:.0f} ms after it was sent"
        )
    spent = found["cpu_flying"] if found["cpu_flying"] is not None else found["cpu"]
    work = f"steps run again or first: {found['executed']:,}; peak RSS {found['peak']:.0f} MB"
    return [
        Row(f"{head}: process start → all in flight done", done, whole, targets[0]),
        Row(f"{head}: process start → a parked one goes on", answered, "signalled as soon as it is up", targets[1]),
        Row(f"{head}: CPU until all in flight are done", f"{spent:.2f} s", f"interpreter and imports included; {work}"),
    ]


def _since(side: Side, moment: Any) -> str:
    return f"{(moment - side.started_ns) / 1e9:.2f} s"
