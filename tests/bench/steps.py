"""Workflows of ten steps with results of 2 kB: this engine, bare SQL and DBOS on the same machine, in turn.

What lives here: rounds, ratios, bytes a step. What does not: the work itself (`our_side`, `raw_side`, `peers`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.peers import DBOS, python_of
from tests.bench.places import Place, Places, places
from tests.bench.sides import Side, side
from tests.bench.tables import Row, median

AT_ONCE = (1, 8, 32)
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.0"))

TARGETS: dict[tuple[str, str], dict[int, float]] = {
    ("SQLite", "DBOS"): {1: 5, 8: 12},
    ("SQLite", "DBOS, WAL"): {8: 7},
    ("PostgreSQL", "DBOS"): {1: 3, 8: 10},
    ("SQLite", "bare groups"): {1: 0.3, 8: 0.15},
    ("PostgreSQL", "bare groups"): {1: 0.4, 8: 0.3},
}
"""Of the rate against another side's, by how many at once."""
CPU_TARGETS = {1: 900, 8: 400}
BYTES_TARGET = {"PostgreSQL": "≤ 1,300"}


@dataclass(slots=True)
class Contender:
    """A side on one kind of database, and what its rounds gave."""

    name: str
    kind: str
    side: Side
    ask: str
    place: Place | None = None
    empty: int = 0
    steps: int = 0
    rates: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def round(self, at_once: int) -> None:
        """Measure once."""
        found = await self.side.ask(self.ask, at_once=at_once, seconds=SECONDS)
        self.steps += found["steps"]
        self.rates[at_once].append(found["steps"] / found["seconds"])
        self.cpu[at_once].append(found["cpu"] / found["steps"] * 1e6)


async def steps(folder: Path, *, peers: bool = False) -> list[Row]:
    """Measure all sides on both kinds, `ROUNDS` times in turn."""
    python = await python_of("dbos", DBOS) if peers else None
    async with places(folder) as found, AsyncExitStack() as stack:
        contenders = [one for kind in Places.KINDS for one in await _contenders(stack, found, kind, python)]
        for number in range(ROUNDS):
            for at_once in AT_ONCE:
                for one in contenders if number % 2 else contenders[::-1]:
                    await one.round(at_once)
        versions = [
            found.version,
            *sorted({f"{k} {v}" for one in contenders for k, v in (await one.side.ask("versions")).items()}),
        ]
        rows = [row for kind in Places.KINDS for row in await _rows([one for one in contenders if one.kind == kind])]
    return [*rows, Row("versions", ", ".join(filter(None, versions)), f"{ROUNDS} rounds of {SECONDS:g} s a cell, sides in turn")]


async def _contenders(stack: AsyncExitStack, found: Places, kind: str, python: str | None) -> list[Contender]:
    sides: list[tuple[str, str, str, str, str | None]] = [("ours", "tests.bench.our_side", "app", "steps", None)]
    sides += [("store alone", "tests.bench.store_side", "", "steps", None)]
    sides += [("bare", "tests.bench.raw_side", "", "callers", None)]
    if python is not None:
        sides += [("DBOS", "tests.bench.peers.dbos_side", "app", "steps", python)]
        sides += [("DBOS, WAL", "tests.bench.peers.dbos_side", "wal", "steps", python)] if kind == "SQLite" else []
    contenders = []
    for name, module, role, ask, interpreter in sides:
        place = await found.new(kind)
        started = await stack.enter_async_context(
            side(f"{name} {kind}", module, place.url, role, folder=found.folder, python=interpreter)
        )
        contenders.append(Contender(name, kind, started, ask, place, await place.stored()))
        if name == "bare":
            contenders.append(Contender("bare groups", kind, started, "groups"))
    return contenders


async def _rows(contenders: Sequence[Contender]) -> list[Row]:
    kind, ours = contenders[0].kind, contenders[0]
    rows = []
    for at_once in AT_ONCE:
        head = f"{kind}, {at_once} at once"
        rates = "; ".join(f"{one.name} {_range(one.rates[at_once], ',.0f')}" for one in contenders)
        rows.append(Row(f"{head}: steps/s", rates, "median (least–most)"))
        for other in contenders[1:]:
            ratios = [a / b for a, b in zip(ours.rates[at_once], other.rates[at_once], strict=True)]
            target = TARGETS.get((kind, other.name), {}).get(at_once)
            wanted = "" if target is None else f"≥ {target:g}"
            rows.append(Row(f"{head}: ours / {other.name}", _range(ratios, ".2f"), "of the rates, round by round", wanted))
        spent = "; ".join(f"{one.name} {_range(one.cpu[at_once], ',.0f')}" for one in contenders)
        wanted = f"≤ {CPU_TARGETS[at_once]}" if at_once in CPU_TARGETS else ""
        rows.append(Row(f"{head}: CPU µs a step", spent, "of the client's process with its threads", wanted))
    each = []
    for one in contenders:
        if one.place is not None:
            total = one.steps + sum(other.steps for other in contenders if other.side is one.side and other is not one)
            each.append(f"{one.name} {(await one.place.stored() - one.empty) / total:,.0f}")
    how = (
        "a vacuumed copy less the empty schema" if kind == "SQLite" else "sum of pg_total_relation_size after VACUUM, less before"
    )
    return [*rows, Row(f"{kind}: bytes stored a step", "; ".join(each), how, BYTES_TARGET.get(kind, ""))]


def _range(values: Sequence[float], style: str) -> str:
    return f"{median(values):{style}} ({min(values):{style}}–{max(values):{style}})"
