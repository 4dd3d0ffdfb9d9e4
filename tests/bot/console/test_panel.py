"""The panel of the demo's page over HTTP: what it moves, and who may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bot.console.page import install_console
from bot.console.panel import Panel
from bot.console.port import NothingToDeploy
from bot.moved import MOST_AHEAD_MS, MarkKind, Moved, MovedClock, MovedFile
from bot.processes import WorkerProcess
from bot.rolling import RollingWorker
from tests.bot.console import stories
from tests.bot.console.fake_port import FakePort
from tests.durable_core.conformance.sqlite import new_file

if TYPE_CHECKING:
    from durable_core.store import Store

KEY = "the-key"
API = "/console/api"
DAYS_MS = 3 * 86_400_000
Client = TestClient[web.Request, web.Application]


@pytest.fixture
def file(tmp_path: Path) -> MovedFile:
    (tmp_path / "moorings.db").write_bytes(new_file())
    return MovedFile(tmp_path)


@asynccontextmanager
async def served(panel: Panel, port: FakePort | None = None) -> AsyncIterator[Client]:
    app = web.Application()
    install_console(app, port or FakePort(), key=KEY, public_port=8700, panel=panel)
    async with TestClient(TestServer(app)) as client:
        yield client


async def posted(client: Client, path: str) -> tuple[int, Any]:
    answer = await client.post(f"{API}/{path}", json={})
    return answer.status, await answer.json()


def panel_on(file: MovedFile, *, demo: bool = True) -> Panel:
    return Panel(file, database=file.path.parent / "moorings.db", demo=demo)


async def test_each_press_moves_the_clock_on_by_three_days(file: MovedFile) -> None:
    panel, told = panel_on(file), asyncio.Event()
    panel.changed = told.set
    async with served(panel) as client:
        assert (await posted(client, "clock"))[1]["error"]["code"] == "locked"
        await client.get(f"/console/?k={KEY}")
        assert (await (await client.get(f"{API}/state")).json())["ahead_ms"] == 0
        began = panel.now()
        for times in (1, 2):
            status, state = await posted(client, "clock")
            assert (status, state["ahead_ms"]) == (200, times * DAYS_MS)
            assert panel.now() >= began + times * DAYS_MS
            assert told.is_set()
            told.clear()
        assert {"kind": "clock", "ahead_ms": 2 * DAYS_MS} in panel.changes()
    assert MovedClock(MovedFile(file.path.parent)).now() >= began + 2 * DAYS_MS
    assert [(mark.kind, mark.to) for mark in panel.marks()] == [(MarkKind.CLOCK, DAYS_MS)] * 2


async def test_presses_at_once_each_count_once(file: MovedFile) -> None:
    panel = panel_on(file)
    await asyncio.gather(*(panel.pass_days() for _ in range(5)))
    assert file.read().ahead_ms == 5 * DAYS_MS
    ats = [mark.at for mark in panel.marks()]
    assert ats == sorted(ats)


async def test_it_does_not_go_on_for_ever(file: MovedFile) -> None:
    file.write(Moved(ahead_ms=MOST_AHEAD_MS))
    async with served(panel_on(file)) as client:
        await client.get(f"/console/?k={KEY}")
        status, body = await posted(client, "clock")
        assert (status, body["error"]["code"]) == (409, "far_enough")
    assert MovedFile(file.path.parent).read().ahead_ms == MOST_AHEAD_MS


async def test_dev_tells_the_moved_time_and_moves_nothing(file: MovedFile) -> None:
    file.write(Moved(ahead_ms=DAYS_MS))
    port = FakePort()
    port.add_thread("t1", "hello")
    panel = panel_on(file, demo=False)
    port.log["t1"] = stories.told(panel.now() - 60_000, (0, "turn.started", {"turn_id": "turn_0"}, 1), (1, "step.started", {}, 1))
    async with served(panel, port) as client:
        await client.get(f"/console/?k={KEY}")
        state = await (await client.get(f"{API}/state")).json()
        assert (state["moves"], state["ahead_ms"]) == (False, DAYS_MS)
        assert (await posted(client, "clock"))[0] == 404
        [turn] = (await (await client.get(f"{API}/threads/t1/timeline")).json())["turns"]
        assert 59_000 <= turn["steps"][0]["duration_ms"] < 3_600_000


# ── deploys ──


class Nobody:
    """A store in which no worker ever enrols."""

    async def rows(self, _sql: str, _given: object) -> list[tuple[object, ...]]:
        return []


async def rolling(file: MovedFile, command: list[str]) -> Panel:
    roller = RollingWorker(lambda name: WorkerProcess(["sleep", "600"] if name == "v1" else command), "v1")
    await roller.start()
    return Panel(file, database=file.path.parent / "moorings.db", store=cast("Store", Nobody()), roller=roller, demo=True)


async def test_only_one_deploy_at_a_time_is_begun(file: MovedFile) -> None:
    panel = await rolling(file, ["sleep", "600"])
    assert panel.roller is not None
    async with served(panel) as client:
        await client.get(f"/console/?k={KEY}")
        assert await posted(client, "deployments") == (202, {"deployment": "v2"})
        status, body = await posted(client, "deployments")
        assert (status, body["error"]["code"]) == (409, "rollout_under_way")
        [told] = [change for change in panel.changes() if change["kind"] == "deployment"]
        assert (told["runs"], told["next"], told["stage"], told["leaves"]) == ("v1", "v2", "starting", None)
    await panel.roller.stop(seconds=5)
    assert file.read().deployment == 1


async def test_a_deploy_that_comes_to_nothing_is_told(file: MovedFile, caplog: pytest.LogCaptureFixture) -> None:
    panel, changed = await rolling(file, ["/no/such/program"]), asyncio.Event()
    assert panel.roller is not None
    panel.changed = changed.set
    await panel.deploy()
    async with asyncio.timeout(30):
        await changed.wait()
    assert panel.changes()[-1]["failed"] == "The new worker could not be started."
    assert panel.changes()[-1]["runs"] == "v1"
    assert "a deploy came to nothing" in caplog.text
    await panel.roller.stop(seconds=5)
    assert (file.read().deployment, panel.marks()) == (1, ())


async def test_dev_has_nothing_to_deploy(file: MovedFile) -> None:
    async with served(panel_on(file, demo=False)) as client:
        await client.get(f"/console/?k={KEY}")
        assert (await (await client.get(f"{API}/state")).json())["deploys"] is False
        assert (await posted(client, "deployments"))[0] == 404
    with pytest.raises(NothingToDeploy):
        await panel_on(file).deploy()
