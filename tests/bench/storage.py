"""The store by itself, and what a turn leaves on disk.

What lives here: admissions and steps per second, bytes per turn. What does not: the server around it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.ids import new_id
from durable_core.model import (
    Admission,
    Claim,
    ClaimRequest,
    CommandKind,
    EventDraft,
    Incarnation,
    NewRun,
    Phase,
    StepCommit,
    StepDraft,
    ToNew,
    ToRun,
)
from durable_core.schema import upgrade
from durable_core.store import Store
from durable_core.stores.open import open_store
from tests.bench.http import connected
from tests.bench.processes import prepare, serving, written
from tests.bench.tables import Row, median, spread
from tests.bench.turns import create, turn

BODY = b"\x01" + b'{"text":"' + b"Where is my parcel? It was sent last Tuesday. " * 4 + b'"}'
SECONDS = 1.5
CALLERS = (1, 8, 32)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    """Open a store of one's own."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{folder / 'moorings.db'}"
    await asyncio.to_thread(upgrade, url)
    store = open_store(url, keys=KeyRing.parse(new_key_entry()), clock=DatabaseClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def admission(target: ToNew | ToRun) -> Admission:
    """One message."""
    submission_id = new_id("sub")
    return Admission(
        source="bench",
        key=submission_id,
        digest=b"0" * 32,
        on_conflict="refuse",
        submission_id=submission_id,
        target=target,
        kind=CommandKind.MESSAGE,
        body=BODY,
        principal="bench:someone",
    )


def new_run() -> ToNew:
    """A new run."""
    new = NewRun(
        run_id=new_id("ses"), name="bench", creator="bench:someone", header=b"\x01{}", deployment="bench", lifetime_ms=None
    )
    return ToNew(new=new)


async def alone(folder: Path) -> list[Row]:
    """Admissions and claim+commit cycles per second, at several callers; and the machine's own limit beside them."""
    rows = [machine(folder)]
    async with opened(folder / "store") as store:
        await store.enrol(Incarnation(owner=store.incarnation, deployment="bench", host="bench", pid=0))
        for callers in CALLERS:
            rate = await _rate(callers, lambda run_id: _admit(store, run_id), store)
            rows.append(Row(f"store: admits/s, {callers} callers", f"{rate:.0f}", "median of 3"))
        for callers in CALLERS:
            rate = await _rate(callers, lambda run_id: _cycle(store, run_id), store)
            rows.append(Row(f"store: admit+claim+commit cycles/s, {callers} callers", f"{rate:.0f}", "median of 3"))
    rows.append(machine(folder))
    return rows


async def _rate(callers: int, work: Callable[[str], Awaitable[None]], store: Store) -> float:
    rates = []
    for _ in range(3):
        runs = [(await store.admit(admission(new_run()))).run_id for _ in range(callers)]
        for run_id in runs:
            await _drain(store, run_id)
        began = time.perf_counter()
        counts = await asyncio.gather(*(_repeat(work, run_id, began + SECONDS) for run_id in runs))
        rates.append(sum(counts) / (time.perf_counter() - began))
        for run_id in runs:
            await store.end(run_id, reason="done", events=())
    return median(rates)


async def _repeat(work: Callable[[str], Awaitable[None]], run_id: str, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        await work(run_id)
        count += 1
    return count


async def _admit(store: Store, run_id: str) -> None:
    await store.admit(admission(ToRun(run_id=run_id)))


async def _cycle(store: Store, run_id: str) -> None:
    """Admit, claim whatever is due, commit one step of each and give it back."""
    await store.admit(admission(ToRun(run_id=run_id)))
    for claim in await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1)):
        await _finish(store, claim)


async def _drain(store: Store, run_id: str) -> None:
    for claim in await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=32)):
        await _finish(store, claim)


async def _finish(store: Store, claim: Claim) -> None:
    commit = StepCommit(
        run_id=claim.run_id,
        epoch=claim.epoch,
        step_n=claim.step_no,
        step=StepDraft(kind="think", name="bench", input=BODY, output=BODY),
        seen=claim.signals.inbox_seq,
        consumed=tuple(command.seq for command in claim.commands),
        turn_id=None,
        events=(EventDraft(type="turn.completed", body=BODY),),
        phase=Phase.IDLE,
        release=True,
    )
    await store.commit(commit)


def machine(folder: Path) -> Row:
    """Measure the same disk and cores without any of our code: one durable row, from a thread of its own."""
    took: list[float] = []

    def write() -> None:
        with closing(sqlite3.connect(folder / f"raw{time.monotonic_ns()}.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
            for _ in range(500):
                began = time.perf_counter()
                connection.execute("INSERT INTO t (body) VALUES (?)", (b"x" * 2000,))
                took.append(time.perf_counter() - began)

    folder.mkdir(parents=True, exist_ok=True)
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    return Row("machine: one durable 2 kB row, bare SQLite, p50 / p99", spread(took), "to judge the others by")


async def disk(folder: Path) -> list[Row]:
    """Files and bytes after 10, 100 and 200 turns of one session, the log folded in."""
    prepare(folder)
    rows = []
    async with serving(folder) as server, connected(server.port) as http:
        session_id = (await create(http))["session_id"]
        done, before, sent = 0, _settled(folder), written(server.pid)
        for goal in (10, 100, 200):
            for _ in range(goal - done):
                await turn(http, session_id)
            now, sent_now = _settled(folder), written(server.pid)
            each, flushed = (now - before) / (goal - done), (sent_now - sent) / (goal - done)
            note = f"turns {done + 1}–{goal}; the process wrote {flushed / 1000:.1f} kB a turn to disk"
            rows.append(Row(f"bytes per turn by turn {goal}, settled", f"{each / 1000:.1f} kB", note))
            done, before, sent = goal, now, sent_now
        files = sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name.startswith("moorings.db"))
    rows.append(Row("files on disk", str(len(files)), ", ".join(files)))
    return rows


def _settled(folder: Path) -> int:
    """Fold the log into the file and return the bytes in use; whole pages that are free don't count."""
    with closing(sqlite3.connect(folder / "moorings.db", timeout=10)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size
