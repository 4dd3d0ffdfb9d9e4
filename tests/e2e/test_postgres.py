"""The command on PostgreSQL: one process that serves, two that work, one of which dies in the middle.

What lives here: `moorings migrate` and `moorings start` as an operator runs them. What does not: deaths by the dozen
(test_kills.py, test_crash_matrix.py, which play on PostgreSQL too).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from sqlalchemy import make_url

from tests.bot.command import Running, environment, run, running
from tests.e2e.app import BEGIN, EFFECT, MODEL
from tests.e2e.gate import Gate
from tests.e2e.ledger import Ledger
from tests.e2e.process import KEYS

SECONDS = 60.0
APP = "from pathlib import Path\n\nfrom tests.e2e.app import build\n\nbot = build(Path(__file__).parent)\n"


@dataclass(slots=True)
class Service:
    """The running processes, and a caller of their API."""

    folder: Path
    url: str
    workers: dict[int, Running]
    http: aiohttp.ClientSession

    async def call(self, method: str, path: str, *, body: Any = None, key: str | None = None) -> Any:
        headers = {"Idempotency-Key": key} if key is not None else {}
        async with self.http.request(method, f"{self.url}{path}", json=body, headers=headers) as response:
            assert response.ok, (response.status, await response.text())
            return await response.json()

    async def until(self, session: str, kind: str) -> Any:
        """Follow a session's events; return the data of the first one of a kind."""
        async with self.http.get(f"{self.url}/v1/sessions/{session}/events?start=0&follow=true") as response:
            async for line in response.content:
                if line.strip() and (event := json.loads(line))["type"] == kind:
                    return event["data"]
        raise AssertionError(f"no {kind} came")


@pytest.fixture
def place(tmp_path: Path, postgres_url: str) -> dict[str, str]:
    """A folder with the app in it, and the environment that its processes get."""
    (tmp_path / "app.py").write_text(APP)
    url = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    return environment(
        MOORINGS_DATABASE_URL=url, MOORINGS_NAMESPACE="support", MOORINGS_ENCRYPTION_KEYS=KEYS, MOORINGS_CONCURRENCY="4"
    )


def rows(env: dict[str, str], statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(env["MOORINGS_DATABASE_URL"], options="-c search_path=support") as connection:
        return connection.execute(statement.encode()).fetchall()


@pytest.fixture
def started(tmp_path: Path, place: dict[str, str]) -> Iterator[tuple[str, dict[int, Running]]]:
    """The address of the process that serves, and the two that work, by process id."""
    assert run(tmp_path, "migrate", env=place).returncode == 0
    with ExitStack() as stack:
        serving = stack.enter_context(running(tmp_path, "start", "app:bot", "--role", "web", "--port", "0", env=place))
        workers = [stack.enter_context(running(tmp_path, "start", "app:bot", "--role", "worker", env=place)) for _ in range(2)]
        address = serving.until(r"Listening on (\S+)$")[1]
        yield address, {worker.process.pid: worker for worker in workers}
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
                assert worker.end() == 0, worker.said
        serving.process.send_signal(signal.SIGTERM)
        assert serving.end() == 0, serving.said


@pytest.fixture
async def service(tmp_path: Path, started: tuple[str, dict[int, Running]]) -> AsyncIterator[Service]:
    address, workers = started
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http:
        yield Service(tmp_path, address, workers, http)


async def enrolled(env: dict[str, str], count: int) -> None:
    """Wait until so many workers are there."""
    while len(await asyncio.to_thread(rows, env, "SELECT 1 FROM moor_worker WHERE gone_at IS NULL")) < count:
        await asyncio.sleep(0)


async def test_a_killed_workers_call_is_taken_over_at_once_and_takes_effect_once(service: Service, place: dict[str, str]) -> None:
    async with asyncio.timeout(SECONDS), Gate.at(service.folder) as gate:
        await enrolled(place, 2)
        said = await service.call("POST", "/v1/sessions", body={"message": "refund ch_1"}, key="said")
        again = await service.call("POST", "/v1/sessions", body={"message": "refund ch_1"}, key="said")
        assert again == {**said, "deduplicated": True}
        session, submission = said["session_id"], said["submission_id"]
        asked = await service.until(session, "input.requested")
        answer = {"responses": [{"request_id": asked["requests"][0]["request_id"], "option_id": "approve"}]}
        await service.call("POST", f"/v1/sessions/{session}/responses", body=answer, key="yes")
        call = await gate.arrived()
        (begun,) = Ledger(service.folder).lines(BEGIN)
        assert begun.pid in service.workers

        os.kill(begun.pid, signal.SIGKILL)
        assert await gate.arrived() == call, "the gate waits 10 s, a lease takes 60 to end"
        gate.open()
        outcome = await service.call("GET", f"/v1/submissions/{submission}?wait=30")

    assert outcome["status"] == "completed"
    ledger = Ledger(service.folder)
    (effect,) = ledger.lines(EFFECT)
    assert (effect.key, effect.pid != begun.pid) == (call, True)
    assert [line.pid for line in ledger.lines(BEGIN)] == [begun.pid, effect.pid]
    assert len(ledger.lines(MODEL)) == 2, "a reply that was paid for was asked for again"
    found = await asyncio.to_thread(rows, place, "SELECT kind, outcome FROM moor_admission ORDER BY at, kind")
    assert found == [("message", "completed"), ("response", "completed")]
    async with service.http.get(f"{service.url}/v1/sessions/{session}/events?start=0&follow=false") as response:
        told = [json.loads(line)["type"] for line in (await response.text()).splitlines() if line]
    assert [kind for kind in told if kind.startswith("turn.")] == ["turn.started", "turn.waiting", "turn.completed"]


async def test_all_at_once_serves_and_works(tmp_path: Path, place: dict[str, str]) -> None:
    assert (await asyncio.to_thread(run, tmp_path, "migrate", env=place)).returncode == 0
    with running(tmp_path, "start", "app:bot", "--role", "all", "--port", "0", env=place) as process:
        address = await asyncio.to_thread(lambda: process.until(r"Listening on (\S+)$")[1])
        async with aiohttp.ClientSession() as http, asyncio.timeout(SECONDS):
            service = Service(tmp_path, address, {}, http)
            said = await service.call("POST", "/v1/sessions", body={"message": "hello"})
            outcome = await service.call("GET", f"/v1/submissions/{said['submission_id']}?wait=30")
        assert outcome["status"] == "completed"
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.end) == 0
    assert await asyncio.to_thread(rows, place, "SELECT 1 FROM moor_worker WHERE gone_at IS NULL") == []


def test_start_asks_for_the_schema_of_its_namespace(tmp_path: Path, place: dict[str, str]) -> None:
    assert run(tmp_path, "migrate", env={**place, "MOORINGS_NAMESPACE": "other"}).stdout.startswith("The database is at")
    done = run(tmp_path, "start", "app:bot", "--role", "worker", env=place)
    assert done.returncode == 2
    assert "run `moorings migrate`" in done.stderr
    assert run(tmp_path, "migrate", env=place).stdout.endswith(" now.\n")
    assert run(tmp_path, "migrate", env=place).stdout.endswith(" already.\n")


@pytest.mark.parametrize(("command", "driver"), [(("start", "app:bot"), "asyncpg"), (("migrate",), "psycopg")])
def test_a_missing_driver_is_named_with_its_extra(
    tmp_path: Path, place: dict[str, str], command: tuple[str, ...], driver: str
) -> None:
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(f"import sys; sys.modules[{driver!r}] = None\n")
    place["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'hide'}"
    done = run(tmp_path, *command, env=place)
    assert done.returncode == 2
    assert f"the package {driver} is not installed; install it with: pip install 'moorings[postgres]'" in done.stderr


def test_a_server_that_is_away_may_be_back_later(tmp_path: Path, place: dict[str, str]) -> None:
    place["MOORINGS_DATABASE_URL"] = "postgresql://localhost:1/nowhere"
    for command in (("migrate",), ("start", "app:bot", "--role", "worker")):
        done = run(tmp_path, *command, env=place)
        assert done.returncode == 1
        assert "the database is unavailable" in done.stderr
        assert "Traceback" not in done.stderr
