"""Answers to prompts: how soon an approved tool runs beside none and beside very many parked ones, how many are taken a second.

What lives here: two servers asked in turn, and the store by itself with the audit it writes. What does not: how parking works
(parked.py), messages (turns.py).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bot.settings import Settings
from durable_core import schema
from durable_core.audit import verify
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing
from durable_core.ids import new_id
from durable_core.model import AnswerStatus, AuditEntry, EventDraft, PromptAnswer, PromptOutcome, ToRun
from durable_core.store import Store
from durable_core.stores.open import open_store
from tests.bench.bots import VOTERS
from tests.bench.http import connected
from tests.bench.parked import PARKER, park
from tests.bench.places import Place, Places, places
from tests.bench.processes import environment, serving
from tests.bench.storage import admission
from tests.bench.tables import Row, median, percentile, spread
from tests.bench.turns import approve

_ALONE = "SELECT prompt_id, run_id FROM moor_prompt WHERE outcome IS NULL AND quorum = 1 ORDER BY prompt_id LIMIT :count"
_SEVERAL = "SELECT prompt_id, run_id FROM moor_prompt WHERE outcome IS NULL AND quorum > 1 ORDER BY prompt_id LIMIT :count"
CALLERS = 32
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    parked: int = int(os.environ.get("BENCH_PARKED", "10000"))
    clicks: int = 60
    answers: int = 200
    """In each round, of each kind."""


async def prompts(folder: Path, *, size: Size | None = None, kinds: tuple[str, ...] = Places.KINDS) -> list[Row]:
    """Measure on each kind of database."""
    rows: list[Row] = []
    async with places(folder) as found:
        for kind in kinds:
            rows += await _on(found, kind, size or Size())
    return rows


async def _on(found: Places, kind: str, size: Size) -> list[Row]:
    none, many = [_Home(found.folder / f"{kind}-{name}", await found.new(kind)) for name in ("none", "many")]
    for home in (none, many):
        home.folder.mkdir()
        await asyncio.to_thread(schema.upgrade, home.place.url)
    began = time.monotonic()
    await park(many.settings, size.parked)
    took = time.monotonic() - began
    voted = -(-size.answers // (VOTERS - 1)) * ROUNDS
    await park(many.settings, voted, text="agree", before=size.parked)
    clicks = await _clicks(none, many, size)
    rows = _latencies(kind, clicks, f"{size.parked} parked by the engine in {took:.0f} s")
    async with many.opened() as store:
        return rows + await _rates(store, kind, size)


@dataclass(frozen=True, slots=True)
class _Home:
    """A database and the folder of the server that uses it."""

    folder: Path
    place: Place

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder) | {"MOORINGS_DATABASE_URL": self.place.url}

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.environment, data=self.folder)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """Open the store, with nobody at work on it."""
        keys = KeyRing.parse(self.environment["MOORINGS_ENCRYPTION_KEYS"])
        store = open_store(self.place.url, keys=keys, clock=DatabaseClock())
        await store.open()
        try:
            yield store
        finally:
            await store.close()


# ── latency ──


async def _clicks(none: _Home, many: _Home, size: Size) -> list[list[float]]:
    took: list[list[float]] = [[], []]
    async with AsyncExitStack() as stack:
        sides = []
        for home in (none, many):
            more = {"MOORINGS_DATABASE_URL": home.place.url}
            server = await stack.enter_async_context(serving(home.folder, more=more))
            sides.append((server, await stack.enter_async_context(connected(server.port))))
        for turn in range(-5, size.clicks):
            for place, (server, http) in enumerate(sides):
                seconds = await approve(server, http)
                if turn >= 0:
                    took[place].append(seconds)
    return took


def _latencies(kind: str, took: list[list[float]], note: str) -> list[Row]:
    pairs = [many / none for none, many in zip(*took, strict=True)]
    ratio = f"× {median(took[1]) / median(took[0]):.2f}"
    apart = f"of pairs {percentile(pairs, 0.1):.2f} – {percentile(pairs, 0.9):.2f} (p10 – p90)"
    what = f"{kind}: click sent → approved tool started"
    return [
        Row(f"{what}, nothing parked, p50 / p99", spread(took[0]), f"clock read in the tool, n = {len(took[0])}"),
        Row(f"{what}, many parked, p50 / p99", f"{spread(took[1])}: {ratio}", f"{note}; asked in turn, {apart}"),
    ]


# ── answers a second ──


async def _rates(store: Store, kind: str, size: Size) -> list[Row]:
    """Take answers, votes and messages in turn, many at once; messages are what the others are compared with."""
    marks = await _open(store, "mark", size.answers * ROUNDS)
    agreed = await _open(store, "agree", -(-size.answers // (VOTERS - 1)) * ROUNDS)
    work: dict[str, Iterator[Callable[[], Awaitable[None]]]] = {
        "messages": (partial(_say, store, run_id) for _, run_id in itertools.cycle(marks)),
        "answers": (partial(_answer, store, one, PARKER, AnswerStatus.SETTLED) for one in marks),
        "votes": (
            partial(_answer, store, one, f"api:v{voter}", AnswerStatus.COUNTED) for voter in range(VOTERS - 1) for one in agreed
        ),
    }
    before = len(await _audit(store))
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, calls in work.items():
            rates[name].append(await _rate(list(itertools.islice(calls, size.answers))))
    entries = await _audit(store)
    added, wrong = len(entries) - before, verify(entries)
    whole = "the chain is whole" if wrong is None else f"THE CHAIN IS BROKEN at {wrong}"
    note = f"{CALLERS} at once, in this process, durable, {ROUNDS} rounds of {size.answers}; {added} audit entries, {whole}"
    return [
        Row(f"{kind}: messages admitted/s", f"{median(rates['messages']):.0f}", "to compare with"),
        Row(f"{kind}: answers/s with the audit", _beside(rates["answers"], rates["messages"]), note),
        Row(f"{kind}: votes/s with the audit", _beside(rates["votes"], rates["messages"]), note),
    ]


def _beside(rates: list[float], others: list[float]) -> str:
    pairs = sorted(one / other for one, other in zip(rates, others, strict=True))
    return f"{median(rates):.0f}: × {median(pairs):.2f} of messages ({pairs[0]:.2f} – {pairs[-1]:.2f})"


async def _rate(work: list[Callable[[], Awaitable[None]]]) -> float:
    """Do it all, some at once; how much a second."""
    rest, began = iter(work), time.perf_counter()

    async def caller() -> None:
        for one in rest:
            await one()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return len(work) / (time.perf_counter() - began)


async def _open(store: Store, tool: str, count: int) -> list[tuple[str, str]]:
    """Open prompts of the parked sessions, with their runs: those that several have to answer, or that one has."""
    sql = _SEVERAL if tool == "agree" else _ALONE
    return [(str(prompt_id), str(run_id)) for prompt_id, run_id in await store.rows(sql, {"count": count})]


async def _say(store: Store, run_id: str) -> None:
    await store.admit(admission(ToRun(run_id=run_id)))


async def _answer(store: Store, one: tuple[str, str], principal: str, wanted: AnswerStatus) -> None:
    submission_id = new_id("sub")
    event = EventDraft(type="input.resolved", body=b"\x01{}")
    receipt = await store.answer(
        PromptAnswer(
            source="bench",
            key=submission_id,
            digest=b"0" * 32,
            submission_id=submission_id,
            prompt_id=one[0],
            run_id=one[1],
            option_id="approve",
            outcome=PromptOutcome.APPROVED,
            note=None,
            principal=principal,
            name=principal,
            via="api",
            body=b"\x01{}",
            events=(event,),
        )
    )
    if receipt.status is not wanted:
        raise RuntimeError(f"{receipt.status}, not {wanted}: {receipt.reason}")


async def _audit(store: Store) -> list[AuditEntry]:
    found: list[AuditEntry] = []
    while page := await store.audit(after=found[-1].n if found else 0):
        found += page
    return found
