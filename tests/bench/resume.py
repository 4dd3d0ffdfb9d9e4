"""A parked workflow hears of its signal: from the call that sends it to the first thing the workflow does then.

What lives here: in one process and across two. What does not: how a signal travels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import DBOS, python_of
from tests.bench.places import Places, places
from tests.bench.sides import Side, side
from tests.bench.tables import Row, spread

TARGETS = {
    ("SQLite", "in one process"): "≤ 3 / 15 ms",
    ("PostgreSQL", "in one process"): "≤ 5 / 15 ms",
    ("SQLite", "across processes"): "≤ 8 / 25 ms",
    ("PostgreSQL", "across processes"): "≤ 8 / 25 ms",
}


@dataclass(frozen=True, slots=True)
class Signaller:
    """Whose signals, how many, and how far apart: none is sent while another is on its way."""

    name: str
    module: str
    count: int
    gap: float
    python: str | None = None


async def resume(folder: Path, *, peers: bool = False) -> list[Row]:
    """Measure ours hot and cold, and DBOS at its default settings."""
    python = await python_of("dbos", DBOS) if peers else None
    rows: list[Row] = []
    async with places(folder) as found:
        for kind in Places.KINDS:
            rows += await _of(found, kind, Signaller("ours", "tests.bench.our_side", 200, 0.01))
            if python is not None:
                count, gap = (40, 0.5) if kind == "SQLite" else (100, 0.01)
                rows += await _of(found, kind, Signaller(f"DBOS {DBOS}", "tests.bench.peers.dbos_side", count, gap, python))
    return rows


async def _of(found: Places, kind: str, who: Signaller) -> list[Row]:
    rows = []
    for role in ("app", "cold") if who.python is None else ("app",):
        place = await found.new(kind)
        name = f"{who.name} {kind} {role}"
        async with side(name, who.module, place.url, role, folder=found.folder, python=who.python) as worker:
            rows.append(await _row(who, kind, "in one process", role, worker=worker, sender=worker))
            async with side(f"{name} client", who.module, place.url, "client", folder=found.folder, python=who.python) as client:
                rows.append(await _row(who, kind, "across processes", role, worker=worker, sender=client))
    return rows


async def _row(who: Signaller, kind: str, way: str, role: str, *, worker: Side, sender: Side) -> Row:
    ids = (await worker.ask("park", count=who.count))["ids"]
    sent: dict[str, int] = {}
    stamps: dict[str, int] = {}
    for one in ids:
        sent |= (await sender.ask("signal", ids=[one], gap=who.gap))["sent"]
        stamps |= (await worker.ask("stamps", ids=[one], wait=10))["stamps"]
    took = [(stamps[one] - sent[one]) / 1e9 for one in ids if one in stamps]
    lost = f", {len(ids) - len(took)} never heard" if len(took) < len(ids) else ""
    body = {"app": "", "cold": ", the body replayed for it"}[role]
    what = f"{kind}, {way}{body}: signal → continuation, {who.name}, p50 / p99"
    target = TARGETS[kind, way] if who.python is None and role == "app" else ""
    return Row(what, spread(took), f"n = {len(took)}{lost}, at random moments", target)
