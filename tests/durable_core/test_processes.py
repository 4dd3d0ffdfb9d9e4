"""Real processes on one SQLite file: races, kills and wake-ups across them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from durable_core.clock import DatabaseClock
from durable_core.model import ClaimRequest
from durable_core.store import Store
from durable_core.testing.acts import WORKERS, enrol
from durable_core.testing.builders import body, message, to_address
from durable_core.testing.histories import check_store
from tests.durable_core.conformance.sqlite import file_store
from tests.durable_core.processes import LONG_LEASE

PATIENCE = 60
"""Seconds until a child that says nothing is taken for hung."""
ROOT = Path(__file__).resolve().parents[2]
Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await file_store(DatabaseClock(), tmp_path)
    await made.open()
    await enrol(made)
    yield made
    await made.close()


@pytest.fixture
async def child(store: Store, tmp_path: Path) -> AsyncIterator[Start]:
    started: list[Process] = []

    async def start(role: str, *numbers: int) -> Process:
        command = (sys.executable, "-m", "tests.durable_core.processes", role, str(tmp_path), *map(str, numbers))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        # the rest of the output is read, so that the pipe's transport closes with the process
        await process.communicate()


async def heard(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
    assert line, "the child ended without a word"
    return dict(json.loads(line))


async def tell(process: Process, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n".encode())
    await process.stdin.drain()


async def kill(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL


async def test_two_hundred_first_messages_from_four_processes_make_one_run(store: Store, child: Start) -> None:
    racers = [await child("racer", n * 50, 50) for n in range(4)]
    for racer in racers:
        await heard(racer)
    await asyncio.gather(*(tell(racer, "go") for racer in racers))
    receipts = [await heard(racer) for racer in racers for _ in range(50)]
    assert len({r["run_id"] for r in receipts}) == 1
    assert sum(r["created"] for r in receipts) == 1
    assert sorted(r["seq"] for r in receipts) == list(range(1, 201))
    assert len({r["submission_id"] for r in receipts}) == 200
    (claim,) = await store.claim(ClaimRequest(owner="w1", lease_ms=LONG_LEASE, limit=10))
    by_seq = {r["seq"]: r for r in receipts}
    assert [c.seq for c in claim.commands] == list(range(1, 201))
    for command in claim.commands:
        assert command.submission_id == by_seq[command.seq]["submission_id"]
        assert command.body == body(str(by_seq[command.seq]["key"]))
    await check_store(store)


async def test_what_a_killed_writer_was_told_is_there(store: Store, child: Start) -> None:
    writer = await child("writer")
    accepted = [await heard(writer) for _ in range(40)]
    await kill(writer)
    assert writer.stdout is not None
    rest = await asyncio.wait_for(writer.stdout.read(), PATIENCE)
    accepted += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    for receipt in accepted:
        where = await store.submission(receipt["submission_id"])
        assert (where.run_id, where.seq) == (receipt["run_id"], receipt["seq"])
    claims = await store.claim(ClaimRequest(owner="w1", lease_ms=LONG_LEASE, limit=10))
    held = {c.submission_id for claim in claims for c in claim.commands}
    assert {r["submission_id"] for r in accepted} <= held
    assert len(claims) == 3
    await check_store(store)


async def test_runs_of_a_killed_process_are_claimed_at_once(store: Store, child: Start) -> None:
    for n in range(5):
        await store.admit(message(to_address(str(n))))
    holder = await child("holder")
    said = await heard(holder)
    assert said["taken"] == 5
    owner = said["owner"]
    assert owner in (await store.due("w1")).owners
    assert owner not in (await store.due("w1")).dead
    assert await store.claim(ClaimRequest(owner="w1", lease_ms=LONG_LEASE, limit=10)) == []
    await kill(holder)
    dead = [o for o in (await store.due("w1")).dead if o not in WORKERS]
    assert dead == [owner]
    assert await store.reap(owner) == 5
    claims = await store.claim(ClaimRequest(owner="w1", lease_ms=LONG_LEASE, limit=10))
    assert [(c.interrupted, c.charged) for c in claims] == [(True, 1)] * 5
    await check_store(store)


async def test_a_message_wakes_a_watcher_in_another_process(store: Store, child: Start) -> None:
    watcher = await child("watcher")
    assert (await heard(watcher))["ready"]
    receipt = await store.admit(message(to_address("ring")))
    assert (await heard(watcher))["heard"] in {receipt.run_id, "any"}
    assert await asyncio.wait_for(watcher.wait(), PATIENCE) == 0
