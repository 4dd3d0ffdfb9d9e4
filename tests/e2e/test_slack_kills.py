"""Deaths and drains right after Slack was told that a mention, or a click, was taken.

What lives here: two stories, each ended in two ways at five moments. What does not: failpoints (test_crash_matrix.py,
test_slack_faults.py). All 200 rounds: MOORINGS_TEST_FULL=1; what Slack was not told of, it sends again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Final, Literal

from bot.testing.slack import FakeSlack, Said
from bot.testing.slack.sender import Posting
from tests.e2e.fleet import Fleet, Server, make_folder, make_template
from tests.e2e.matrix import FULL_VARIABLE
from tests.e2e.shop import Books, delivered, environment, words
from tests.e2e.story import Bell, look

Stage = Literal["mention", "click"]

STAGES: Final[tuple[Stage, ...]] = ("mention", "click")
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM)
DELAYS_MS: Final = (0, 10, 30, 60, 100)
ROUNDS: Final = 10
AT_ONCE: Final = 3
SECONDS: Final = 45.0
ALL_RETRIES: Final = timedelta(minutes=6)


@dataclass(frozen=True, slots=True)
class Ground:
    """A zygote, and a place for folders."""

    fleet: Fleet
    parent: Path
    template: Path
    room: asyncio.Semaphore


@dataclass(slots=True)
class Street:
    """A Slack and the shop on it, which is up again whenever it died."""

    slack: FakeSlack
    server: Server
    bell: Bell
    books: Books = field(init=False)

    def __post_init__(self) -> None:
        self.books = Books(self.server.folder)

    async def up(self) -> None:
        """Have the shop running, and Slack know where."""
        process = await self.server.up()
        self.slack.events_url = f"http://127.0.0.1:{process.port.result()}/channels/slack/events"

    async def parked(self) -> None:
        """Wait until all that is left to do is somebody's answer."""
        while (now := look(self.server.folder)).owed or not now.prompts:
            await self.bell.wait(self.server)
        await self.slack.settled()

    async def settled(self) -> None:
        """Let Slack try everything again, until nothing is left to do."""
        while True:
            await self.up()
            await self.slack.advance(ALL_RETRIES)
            await self.slack.settled()
            now = look(self.server.folder)
            if not now.open and not now.owed:
                return
            await self.bell.wait(self.server)


@asynccontextmanager
async def street(ground: Ground, name: str, *, seed: int = 0, env: dict[str, str] | None = None) -> AsyncIterator[Street]:
    async with FakeSlack(seed=seed) as slack:
        folder = make_folder(ground.parent, name, ground.template)
        server = Server(ground.fleet, folder, environment(slack) | (env or {}))
        try:
            async with Bell.on(folder) as bell:
                one = Street(slack, server, bell)
                await one.up()
                yield one
        finally:
            await server.kill()


@asynccontextmanager
async def grounds() -> AsyncIterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="slack") as name:
        template = await asyncio.to_thread(make_template, Path(name))
        async with Fleet.open() as fleet:
            yield Ground(fleet, Path(name), template, asyncio.Semaphore(AT_ONCE))


@dataclass(frozen=True, slots=True)
class Cell:
    """After which ack, by what, and how long after."""

    stage: Stage
    signal: signal.Signals
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Round:
    """One death and what came of it."""

    cell: Cell
    number: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    unfinished: bool
    """The process died with work to do."""
    resent: int
    """Requests that Slack had to send again."""
    recovered_ms: float


async def _end(one: Street, cell: Cell) -> tuple[bool, float]:
    """End the process that long after the ack; whether it left something to do, and when it was gone."""
    if cell.delay_ms:
        await asyncio.sleep(cell.delay_ms / 1000)
    if cell.signal is signal.SIGKILL:
        await one.server.kill()
    else:
        await one.server.stop()
    now = look(one.server.folder)
    return bool(now.open or now.owed), time.perf_counter()


def _acknowledged(postings: list[Posting]) -> bool:
    return any(posting.ok for posting in postings)


async def _mention(one: Street, cell: Cell, number: int) -> tuple[Said, bool, float]:
    before = len(one.slack.postings)
    saying = asyncio.create_task(one.slack.mention("alice", "general", "hello", first="app_mention" if number % 2 else "message"))
    await one.slack.until(lambda: _acknowledged(one.slack.postings[before:]))
    unfinished, gone = await _end(one, cell)
    return await saying, unfinished, gone


async def _click(one: Street, cell: Cell) -> tuple[Said, bool, float]:
    said = await one.slack.mention("alice", "general", "refund 20 for ch_1042")
    card = await one.slack.until(lambda: one.slack.card(said))
    await one.parked()
    posting = await one.slack.click(card, "Approve", "alice")
    assert posting.ok
    unfinished, gone = await _end(one, cell)
    return said, unfinished, gone


def _counts(one: Street, said: Said, stage: Stage) -> dict[str, int]:
    """Count everything that there has to be one of."""
    seen = words(one.slack, said)
    counts = {"message": one.books.messages, "turn": one.books.turns, "run": one.books.runs}
    if stage == "mention":
        return counts | {"reply": len(seen), "first reply": sum("message 1 of this" in text for text in seen)}
    settled = [message for message in one.slack.replies(said) if "Approved by Alice" in message.words and not message.buttons]
    return counts | {
        "settled card": len(settled),
        "reply": len(seen) - len([text for text in seen if text.startswith("Refund 20 for ch_1042?")]),
        "refund": len(one.books.refunds),
        "receipt": sum(text == "Refunded 20 for ch_1042, receipt rf_0001." for text in seen),
    }


async def _round(ground: Ground, cell: Cell, number: int) -> Round:
    name = f"{cell.stage[0]}{cell.signal.name[3]}{cell.delay_ms}-{number}"
    async with ground.room, asyncio.timeout(SECONDS), street(ground, name, seed=number) as one:
        said, unfinished, gone = await (_mention(one, cell, number) if cell.stage == "mention" else _click(one, cell))
        await one.settled()
        recovered = (time.perf_counter() - gone) * 1000
        counts = _counts(one, said, cell.stage)
        ids = delivered(one.slack, said)
        lost = [what for what, count in counts.items() if count < 1]
        lost += [f"{state}: {error}" for state, error in one.books.owed if state != "sent"]
        lost += [f"outcome {outcome}" for outcome in one.books.outcomes if outcome != "completed"]
        doubled = [f"{count} × {what}" for what, count in counts.items() if count > 1]
        doubled += ["a delivery"] * (len(ids) - len(set(ids)))
        doubled += [f"whisper: {message.words}" for message in one.slack.whispers("alice")]
        resent = sum(len(posting.attempts) > 1 for posting in one.slack.postings)
        return Round(cell, number, tuple(lost), tuple(doubled), unfinished, resent=resent, recovered_ms=recovered)


def _table(rounds: list[Round]) -> str:
    lines = ["| after the ack of a | by | after | rounds | work left | resent | up and done, p50 | lost | doubled |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for cell in dict.fromkeys(one.cell for one in rounds):
        mine = [one for one in rounds if one.cell == cell]
        p50 = sorted(one.recovered_ms for one in mine)[len(mine) // 2]
        lost, doubled = sum(bool(one.lost) for one in mine), sum(bool(one.doubled) for one in mine)
        left, resent = sum(one.unfinished for one in mine), sum(one.resent for one in mine)
        what = f"| {cell.stage} | {cell.signal.name} | {cell.delay_ms} ms | {len(mine)} | {left} | {resent} "
        lines.append(f"{what}| {p50:.0f} ms | {lost} | {doubled} |")
    return "\n".join(lines)


def _chosen() -> list[tuple[Cell, int]]:
    cells = [Cell(stage, number, delay) for stage, number, delay in product(STAGES, SIGNALS, DELAYS_MS)]
    if os.environ.get(FULL_VARIABLE):
        return [(cell, number) for cell in cells for number in range(ROUNDS)]
    seed = int(os.environ.get("MOORINGS_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"again: MOORINGS_TEST_SEED={seed}")
    rng = random.Random(seed)
    return [(cell, rng.randrange(ROUNDS)) for cell in cells]


async def test_what_slack_was_told_is_taken_is_done_once_whatever_comes_then() -> None:
    async with grounds() as ground, asyncio.TaskGroup() as group:
        running = [group.create_task(_round(ground, cell, number)) for cell, number in _chosen()]
    rounds = [task.result() for task in running]
    table = _table(rounds)
    print(table)
    if path := os.environ.get("MOORINGS_TEST_TABLE"):
        await asyncio.to_thread(Path(path).write_text, table)
    assert [(one.cell, one.number, one.lost, one.doubled) for one in rounds if one.lost or one.doubled] == []
    assert any(one.unfinished for one in rounds)
