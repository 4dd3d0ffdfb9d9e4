"""Accepting, turns and answers over HTTP against a real `start` process.

What lives here: latency, throughput and CPU of a served session. What does not: restarts, disk.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.bench.http import Http, connected
from tests.bench.processes import Server, cpu, prepare, serving
from tests.bench.tables import Row, median, spread

SESSIONS = 32
MESSAGE = "Where is my parcel? It was sent last Tuesday."


async def create(http: Http, text: str | None = None) -> dict[str, Any]:
    """Make a session."""
    created: dict[str, Any] = await http.post("/v1/sessions", {} if text is None else {"message": text})
    return created


async def turn(http: Http, session_id: str) -> tuple[float, float]:
    """Say something and wait for the outcome; the seconds until it was accepted, and until it was answered."""
    began = time.perf_counter()
    accepted = await http.post(f"/v1/sessions/{session_id}/messages", {"message": MESSAGE})
    taken = time.perf_counter()
    await settled(http, accepted["submission_id"])
    return taken - began, time.perf_counter() - began


async def settled(http: Http, submission_id: str) -> None:
    """Wait until an input has its outcome."""
    found = await http.get(f"/v1/submissions/{submission_id}?wait=30")
    if found["status"] != "completed":
        raise RuntimeError(f"{found}")


async def ack_and_turn(folder: Path) -> list[Row]:
    """Accept and turn, alone and beside 32 sessions; throughput and CPU."""
    prepare(folder)
    async with serving(folder) as server, connected(server.port) as http:
        await _warm(http)
        rows = await _alone(server, http)
        rows += await _flat(http)
        return rows + await _beside_many(server, http)


async def _warm(http: Http) -> None:
    session = (await create(http))["session_id"]
    for _ in range(50):
        await turn(http, session)


async def _alone(server: Server, http: Http) -> list[Row]:
    acks, short = [], []
    spent, count = cpu(server.pid), 0
    for _ in range(100):
        began = time.perf_counter()
        created = await create(http, MESSAGE)
        await settled(http, created["submission_id"])
        short.append(time.perf_counter() - began)
        for _ in range(2):
            accepted, _ = await turn(http, created["session_id"])
            acks.append(accepted)
        count += 3
    used = (cpu(server.pid) - spent) / count
    return [
        Row("POST message → 202, idle, p50 / p99", spread(acks), f"n = {len(acks)}, durable insert included"),
        Row("turn, new sessions, p50 / p99", spread(short), f"POST → outcome read, n = {len(short)}"),
        Row("server CPU per turn, alone", f"{used * 1000:.1f} ms", "accept, turn and the request that reads the outcome"),
    ]


async def _flat(http: Http) -> list[Row]:
    session = (await create(http, MESSAGE))["session_id"]
    took = [(await turn(http, session))[1] for _ in range(199)]
    first, last = median(took[:50]), median(took[-50:])
    note = f"p50 of turns 2–51 {first * 1000:.1f} ms, of the last 50 {last * 1000:.1f} ms: × {last / first:.2f}"
    return [Row("turn, turns 2–200 of one session, p50 / p99", spread(took), note)]


async def _beside_many(server: Server, http: Http) -> list[Row]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.port)) for _ in range(SESSIONS)]
        sessions = [(await create(client))["session_id"] for client in clients]
        rates, took, used = [], [], []
        for _ in range(5):
            spent, began = cpu(server.pid), time.perf_counter()
            batches = await asyncio.gather(*(some_turns(c, s, 10) for c, s in zip(clients, sessions, strict=True)))
            turns = [one for batch in batches for one in batch]
            rates.append(len(turns) / (time.perf_counter() - began))
            used.append((cpu(server.pid) - spent) / len(turns))
            took += turns
        busy = [asyncio.create_task(_forever(c, s)) for c, s in zip(clients, sessions, strict=True)]
        await asyncio.sleep(0.5)
        mine = (await create(http))["session_id"]
        acks = [(await turn(http, mine))[0] for _ in range(100)]
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
    return [
        Row(f"POST message → 202, {SESSIONS} busy sessions, p50 / p99", spread(acks), f"n = {len(acks)}"),
        Row(f"turn, {SESSIONS} sessions at once, p50 / p99", spread(took), f"n = {len(took)}"),
        Row(f"turns/s, {SESSIONS} sessions", f"{median(rates):.0f}", f"median of {len(rates)} rounds; client on the same cores"),
        Row(f"server CPU per turn, {SESSIONS} sessions", f"{median(used) * 1000:.1f} ms", "median of rounds"),
    ]


async def some_turns(http: Http, session: str, count: int) -> list[float]:
    """Take turns one after the other; the seconds of each."""
    return [(await turn(http, session))[1] for _ in range(count)]


async def _forever(http: Http, session: str) -> None:
    while True:
        await turn(http, session)


async def answer(folder: Path) -> list[Row]:
    """An approval given → its tool has started."""
    prepare(folder)
    async with serving(folder) as server, connected(server.port) as http:
        await _warm(http)
        took = [await approve(server, http) for _ in range(60)]
    return [Row("answer sent → approved tool started, p50 / p99", spread(took), f"clock read in the tool, n = {len(took)}")]


async def approve(server: Server, http: Http) -> float:
    """Ask for the gated tool in a new session, approve, and return the seconds until it ran."""
    session_id, prompt = await park(http)
    place = len(server.lines)
    began = time.monotonic_ns()
    body = {"responses": [{"request_id": prompt["request_id"], "option_id": prompt["options"][0]["id"]}]}
    await http.post(f"/v1/sessions/{session_id}/responses", body)
    _, line = await server.line(f"mark {session_id}", after=place)
    return (int(line.split()[2]) - began) / 1e9


async def park(http: Http) -> tuple[str, dict[str, Any]]:
    """Make a session that waits for an answer; its id and the prompt."""
    session_id = (await create(http, "mark"))["session_id"]
    while True:
        view = await http.get(f"/v1/sessions/{session_id}")
        if view["open_prompts"]:
            return session_id, view["open_prompts"][0]
        await asyncio.sleep(0.002)
