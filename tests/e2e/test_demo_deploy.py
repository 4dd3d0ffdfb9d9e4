"""The real demo is killed three times during `deploy api`: at the card, at the click, in the sleep. One run comes of it.

What lives here: that story. What does not: each failpoint of it (test_crash_matrix.py), processes (demo.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from bot.demo import compute_plan, roll_out
from tests.e2e.data import reading
from tests.e2e.demo import Demo
from tests.e2e.story import Bell

SAID = "deploy api"
SECONDS = 60.0
ASLEEP = "SELECT 1 FROM moor_run WHERE kind = 'workflow' AND (status = 'ended' OR owner IS NULL AND wake_at > last_at)"
"""Or awake again, where the machine is slow."""


class Page:
    """The demo's console as Alice's browser sees it; its key and its port outlive the process."""

    def __init__(self, demo: Demo, http: aiohttp.ClientSession, bell: Bell) -> None:
        self._demo, self._http, self._bell = demo, http, bell

    async def open(self) -> None:
        async with self._http.get(self._demo.address) as answer:
            assert answer.status == 200

    async def post(self, path: str, **body: str) -> Any:
        async with self._http.post(f"{self._demo.base}/console/api/threads{path}", json={"author": "alice", **body}) as answer:
            assert answer.ok, await answer.text()
            return await answer.json()

    async def messages(self, thread: str) -> list[dict[str, Any]]:
        async with self._http.get(f"{self._demo.base}/console/api/threads/{thread}?viewer=alice") as answer:
            return [message for message in (await answer.json())["messages"] if message["text"] != SAID]

    async def until(self, thread: str, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not (seen := [message for message in await self.messages(thread) if found(message)]):
            await self._bell.wait()
        return seen[0]

    async def until_row(self, sql: str) -> None:
        while not self.rows(sql):
            await self._bell.wait()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with reading(self._demo.data) as read:
            return [tuple(row.values()) for row in read(sql)]

    async def die(self) -> None:
        """Kill both processes, and start again."""
        await asyncio.to_thread(self._demo.kill)
        await asyncio.to_thread(self._demo.start)
        await self.open()


async def test_a_deployment_survives_the_death_of_the_demo_at_each_of_its_waits(own_demo: Demo) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with asyncio.timeout(SECONDS), aiohttp.ClientSession(cookie_jar=jar) as http, Bell.on(own_demo.data) as bell:
        page = Page(own_demo, http, bell)
        await page.open()
        thread = (await page.post("", text=SAID, client_id="deploy-0001"))["thread_id"]
        await page.until(thread, lambda message: message["card"] is not None)
        await page.die()
        card = await page.until(thread, lambda message: message["card"] is not None)
        [button] = [button for button in card["card"]["buttons"] if button["label"] == "Deploy"]
        click = {"message_id": card["id"], "value": button["value"], "client_id": "click-0001"}
        await page.post(f"/{thread}/clicks", **click)
        await page.die()
        await page.until_row(ASLEEP)
        await page.die()
        await page.until(thread, lambda message: "is deployed" in message["text"])
        await page.until_row("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM moor_admission WHERE outcome IS NULL)")
        settled, reply = await page.messages(thread)
    assert reply["text"] == roll_out(compute_plan("api"))
    assert settled["card"]["buttons"] == []
    assert "Answered by Alice" in str(settled["card"]["outcome"])
    assert page.rows("SELECT status, end_reason FROM moor_run WHERE kind = 'workflow'") == [("ended", "completed")]
    assert page.rows("SELECT outcome FROM moor_prompt") == [("answered",)]
    log = "SELECT s.name, count(*) FROM moor_step s JOIN moor_run r USING (run_id) WHERE r.kind = 'workflow'"
    assert set(page.rows(f"{log} AND s.name LIKE '%:%' GROUP BY s.name")) == {
        ("step:compute_plan#0", 1),
        ("ask:#0", 1),
        ("timer:5000#0", 1),
        ("step:roll_out#0", 1),
    }
