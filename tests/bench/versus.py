"""This checkout beside another one: both serve at once and are asked in turn, so that the machine's noise meets both alike.

What lives here: ratios. What does not: absolute numbers worth keeping.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench.http import Http, connected
from tests.bench.processes import ROOT, Server, cpu, launched, prepare, ready, serving
from tests.bench.tables import Row, median, percentile
from tests.bench.turns import SESSIONS, approve, create, some_turns, turn

ROUNDS = 300


async def versus(folder: Path, other: Path) -> list[Row]:
    """Measure both, one turn each by turns; the other's numbers first."""
    roots = (other, ROOT)
    for place in range(2):
        await asyncio.to_thread(prepare, folder / str(place))
    starts = await _starts(folder, roots)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving(folder / str(p), root=root)) for p, root in enumerate(roots)]
        clients = [await stack.enter_async_context(connected(server.port)) for server in servers]
        rows = [_row("process start → /readyz", starts)]
        rows += await _turns(servers, clients)
        rows.append(_row("answer sent → approved tool started", await _answers(servers, clients)))
        return rows + await _many(servers)


async def _starts(folder: Path, roots: tuple[Path, ...]) -> list[list[float]]:
    took: list[list[float]] = [[], []]
    for _ in range(7):
        for place, root in enumerate(roots):
            async with launched(folder / str(place), root=root) as server:
                took[place].append(await ready(server, "Listening on"))
    return took


async def _turns(servers: list[Server], clients: list[Http]) -> list[Row]:
    sessions = [(await create(http))["session_id"] for http in clients]
    acks: list[list[float]] = [[], []]
    turns: list[list[float]] = [[], []]
    used = [0.0, 0.0]
    for _ in range(ROUNDS):
        for place, http in enumerate(clients):
            before = cpu(servers[place].pid)
            ack, whole = await turn(http, sessions[place])
            used[place] += cpu(servers[place].pid) - before
            acks[place].append(ack)
            turns[place].append(whole)
    each = [[seconds / ROUNDS] for seconds in used]
    return [
        _row("POST message → 202", acks),
        _row("turn of one session, of 300", turns),
        _row("server CPU per turn, alone", each),
    ]


async def _answers(servers: list[Server], clients: list[Http]) -> list[list[float]]:
    took: list[list[float]] = [[], []]
    for _ in range(60):
        for place, http in enumerate(clients):
            took[place].append(await approve(servers[place], http))
    return took


async def _many(servers: list[Server]) -> list[Row]:
    took: list[list[float]] = [[], []]
    used: list[list[float]] = [[], []]
    each: list[list[float]] = [[], []]
    async with AsyncExitStack() as stack:
        clients = [[await stack.enter_async_context(connected(one.port)) for _ in range(SESSIONS)] for one in servers]
        sessions = [[(await create(http))["session_id"] for http in some] for some in clients]
        for _ in range(12):
            for place, server in enumerate(servers):
                spent, began = cpu(server.pid), time.perf_counter()
                pairs = zip(clients[place], sessions[place], strict=True)
                batches = await asyncio.gather(*(some_turns(http, session, 5) for http, session in pairs))
                count = sum(map(len, batches))
                each[place].append((time.perf_counter() - began) / count)
                used[place].append((cpu(server.pid) - spent) / count)
                took[place] += [one for batch in batches for one in batch]
    rates = " / ".join(f"{1 / median(one):.0f}" for one in each)
    return [
        _row(f"turn, {SESSIONS} sessions at once", took),
        Row(f"turns/s, {SESSIONS} sessions", f"{rates}: × {median(each[0]) / median(each[1]):.2f}", "median of 12 rounds each"),
        _row(f"server CPU per turn, {SESSIONS} sessions", used),
    ]


def _row(what: str, both: list[list[float]]) -> Row:
    a, b = (median(one) * 1000 for one in both)
    tails = " / ".join(f"{percentile(one, 0.99) * 1000:.1f}" for one in both)
    return Row(f"{what}, p50 other / this", f"{a:.1f} / {b:.1f} ms: × {b / a:.2f}", f"p99 {tails} ms, n = {len(both[0])}")
