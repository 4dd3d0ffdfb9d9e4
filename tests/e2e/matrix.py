"""The crash matrix: each story, killed once at each failpoint it passes, at each time it passes it.

What lives here: running the cells, and the table. What does not: what one death has to leave behind (judge.py).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from durable_core.failpoints import FAILPOINTS, NAME_VARIABLE, ONCE_FILE_VARIABLE
from tests.e2e.account import provided
from tests.e2e.fleet import Fleet, Origin, Server, make_folder, make_template
from tests.e2e.judge import Verdict, judge
from tests.e2e.person import Client
from tests.e2e.process import COUNT_VARIABLE, HITS
from tests.e2e.story import STORIES, Bell, Story, door, live, settle

AT_ONCE = 4
CELL_SECONDS = 45.0
"""Less than a lease: whoever takes over waits for none to end, on a busy machine either."""
FULL_VARIABLE = "MOORINGS_TEST_FULL"

# In the order in which a turn passes them.
ORDER = (
    "admit.before_commit",
    "admit.after_commit",
    "claim.after",
    "open_turn.after_commit",
    "model.before_call",
    "model.after_reply",
    "record.after_commit",
    "tool.before_start",
    "tool.started",
    "tool.after_effect",
    "tool.after_record",
    "commit.before",
    "commit.after",
    "park.after_commit",
    "prompt.before_settle",
    "prompt.after_settle",
    "send.before",
    "send.after",
    "send.after_record",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One story killed at the n-th passing of a failpoint, and what came of it. `reached` says that it died there."""

    story: str
    failpoint: str
    n: int
    reached: bool
    deaths: int
    verdict: Verdict
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """All cells, and how each story goes when nobody dies."""

    cells: tuple[Cell, ...]
    calm: dict[str, Verdict]
    hits: dict[str, Counter[str]]

    def of(self, story: str, failpoint: str) -> list[Cell]:
        return [cell for cell in self.cells if (cell.story, cell.failpoint) == (story, failpoint)]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all cells share."""

    fleet: Fleet
    parent: Path
    origin: Origin
    room: asyncio.Semaphore


CONNECT = (
    "connect.after_callback",
    "connect.before_exchange",
    "connect.after_exchange",
    "connect.after_store",
    "connect.before_settle",
)
"""What a sign-in passes besides, in order."""
Order = tuple[Story, str, int]
"""A story, where it dies, and at which passing."""


def _all(orders: list[Order]) -> list[Order]:
    return orders


async def run_matrix(
    folder: Path,
    stories: Sequence[Story] = STORIES,
    *,
    every: bool = False,
    origin: Origin | None = None,
    choose: Callable[[list[Order]], list[Order]] = _all,
) -> Matrix:
    """Run each story calmly, counting what it passes, then each cell: the first and last passing, or every one.

    `origin` is where the folders' data comes from, a SQLite file by default; `choose` picks some of the cells.
    """
    if origin is None:
        origin = await asyncio.to_thread(make_template, folder)
    async with Fleet.open() as fleet:
        ground = _Ground(fleet, folder, origin, asyncio.Semaphore(AT_ONCE))
        calm = await asyncio.gather(*(_calm(ground, story, place) for place, story in enumerate(stories)))
        hits = {story.name: passed for story, (_, passed) in zip(stories, calm, strict=True)}
        orders = [
            (story, failpoint, n)
            for story in stories
            for failpoint in (*ORDER, *(CONNECT if story.signs_in else ()))
            for n in _passings(hits[story.name][failpoint], every=every)
        ]
        cells = await asyncio.gather(*(_cell(ground, order, place) for place, order in enumerate(choose(orders))))
    return Matrix(tuple(cells), {story.name: verdict for story, (verdict, _) in zip(stories, calm, strict=True)}, hits)


def _passings(count: int, *, every: bool) -> list[int]:
    """Choose at which passings to die; a place that isn't passed is tried all the same, once."""
    return list(range(1, max(count, 1) + 1)) if every else sorted({1, max(count, 1)})


async def _calm(ground: _Ground, story: Story, place: int) -> tuple[Verdict, Counter[str]]:
    async with ground.room:
        folder = await asyncio.to_thread(make_folder, ground.parent, f"calm{place}", ground.origin)
        verdict, _ = await _played(ground.fleet, folder, story, {COUNT_VARIABLE: "1"})
        return verdict, Counter((folder / HITS).read_text().split())


async def _cell(ground: _Ground, order: Order, place: int) -> Cell:
    story, failpoint, n = order
    async with ground.room:
        folder = await asyncio.to_thread(make_folder, ground.parent, f"c{place}", ground.origin)
        once = folder / "once"
        env = {NAME_VARIABLE: f"{failpoint}:{n}", ONCE_FILE_VARIABLE: os.fspath(once)}
        try:
            verdict, deaths = await _played(ground.fleet, folder, story, env)
        except Exception:  # noqa: BLE001 - a cell that went wrong is a finding; the others go on
            return Cell(story.name, failpoint, n, once.exists(), 0, Verdict(), (traceback.format_exc()[-1500:],))
        problems = [*verdict.breaches]
        if deaths != once.exists():
            problems.append(f"wrong: {deaths} deaths, once-file {'there' if once.exists() else 'absent'}")
        return Cell(story.name, failpoint, n, once.exists(), deaths, verdict, tuple(problems))


async def _played(fleet: Fleet, folder: Path, story: Story, env: dict[str, str]) -> tuple[Verdict, int]:
    """Play one story to its end, end the process as one does, and judge."""
    server = Server(fleet, folder, env)
    try:
        async with (
            asyncio.timeout(CELL_SECONDS),
            Bell.on(folder) as bell,
            Client(server) as client,
            provided(server) if story.signs_in else nullcontext() as provider,
        ):
            entrance = door(story, client)
            await live(story, entrance, server, bell)
            while not await server.stop():  # killed at the very end
                await settle(story, entrance, server, bell, answered=set())
    finally:
        await server.kill()
    verdict = await judge(folder, (story,), deaths=server.deaths)
    codes = Counter(asked["code"] for asked in provider.exchanged) if provider is not None else Counter[str]()
    verdict.doubled += [f"a code was spent {count} times" for count in codes.values() if count > 1]
    return verdict, server.deaths


def in_temporary_folder(stories: Sequence[Story] = STORIES, *, every: bool | None = None) -> Matrix:
    """Run the whole matrix on folders that are gone afterwards."""
    full = bool(os.environ.get(FULL_VARIABLE)) if every is None else every
    with tempfile.TemporaryDirectory(prefix="crash") as name:
        return asyncio.run(run_matrix(Path(name), stories, every=full))


def table(matrix: Matrix) -> str:
    """Draw story by failpoint, as Markdown."""
    stories = list(matrix.calm)
    rows = (*ORDER, *(CONNECT if any(cell.failpoint in CONNECT for cell in matrix.cells) else ()))
    lines = [
        "| failpoint | " + " | ".join(stories) + " |",
        "|---|" + "---|" * len(stories),
    ]
    for failpoint in rows:
        drawn = " | ".join(_drawn(matrix.of(story, failpoint)) for story in stories)
        lines.append(f"| {failpoint} | {drawn} |")
    reached = [cell for cell in matrix.cells if cell.reached]
    lost = sum(len(cell.verdict.lost) for cell in reached)
    doubled = sum(len(cell.verdict.doubled) for cell in reached)
    paid = sum(len(cell.verdict.paid_twice) for cell in reached)
    broken = sum(bool(cell.problems) for cell in matrix.cells)
    total = (
        f"{len(matrix.cells)} cells, {len(reached)} of them killed; lost {lost}, doubled {doubled}, paid twice {paid}, "
        f"cells with any breach {broken}. `n/n ok` counts the passings at which the process was killed."
    )
    lines += ["", total]
    return "\n".join(lines)


def _drawn(cells: Sequence[Cell]) -> str:
    if not any(cell.reached or cell.problems for cell in cells):
        return "not reached"
    good = sum(cell.reached and not cell.problems for cell in cells)
    drawn = f"{good}/{len(cells)} ok" if good == len(cells) else f"**{good}/{len(cells)} ok**"
    reruns = sum(cell.verdict.reruns for cell in cells)
    return drawn + (f", asked {reruns}×" if reruns else "")


assert {*ORDER, *CONNECT} == FAILPOINTS
