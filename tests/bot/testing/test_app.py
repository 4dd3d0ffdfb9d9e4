"""A bot that runs in a test: its API, its clock, and what a restart keeps.

What lives here: `running` without any platform. What does not: conversations on Slack (test_slack_talk.py).
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from bot import Agent, Bot
from bot.testing import running
from durable_core.clock import ManualClock


def bot() -> Bot:
    return Bot(agents=[Agent("echo", "scripted", instructions="")])


async def test_a_running_bot_answers_over_its_api() -> None:
    async with running(bot()) as app:
        assert await app.api("GET", "/readyz") == {"status": "ok"}
        made = await app.api("POST", "/v1/sessions", {"message": "hello"})
        done = await app.api("GET", f"/v1/submissions/{made['submission_id']}?wait=20")
        assert "message 1" in done["reply"]["text"]
        with pytest.raises(aiohttp.ClientResponseError, match="404"):
            await app.api("GET", "/v1/sessions/ses_none")


async def test_a_folder_keeps_what_was_there(tmp_path: Path) -> None:
    async with running(bot(), data=tmp_path) as app:
        made = await app.api("POST", "/v1/sessions", {"message": "hello"})
    async with running(bot(), data=tmp_path) as app:
        assert (await app.api("GET", f"/v1/sessions/{made['session_id']}"))["session_id"] == made["session_id"]


async def test_a_file_that_was_deleted_takes_no_message_and_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.pulse.FRESH_SECONDS", 0.0)
    async with running(bot(), data=tmp_path) as app:
        made = await app.api("POST", "/v1/sessions", {"message": "hello"})
        await app.api("GET", f"/v1/submissions/{made['submission_id']}?wait=20")
        (tmp_path / "moorings.db").unlink()
        async with app.http.post(f"{app.url}/v1/sessions", json={"message": "lost?"}) as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (503, "unavailable")
        async with app.http.get(f"{app.url}/readyz") as probed:
            assert probed.status == 503
        assert await app.api("GET", "/healthz") == {"status": "ok"}


async def test_a_session_ends_when_the_manual_clock_says_so() -> None:
    clock = ManualClock(1_767_225_600_000)
    short = Bot(agents=[Agent("echo", "scripted", instructions="")], lifetime=timedelta(days=1))
    async with running(short, clock=clock) as app:
        made = await app.api("POST", "/v1/sessions", {"message": "hello"})
        await app.api("GET", f"/v1/submissions/{made['submission_id']}?wait=20")
        clock.advance(timedelta(days=2))
        async with app.http.get(f"{app.url}/v1/sessions/{made['session_id']}/events") as stream:
            last = (await stream.text()).strip().splitlines()[-1]
        assert json.loads(last)["type"] == "session.completed"
