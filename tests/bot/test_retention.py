"""How long an app keeps content: the setting, where it is written down, and what HTTP says once it is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from bot.agent import Agent
from bot.app import Bot
from bot.errors import BadApp
from bot.retention import Retention
from bot.scripted import ScriptedModel
from bot.testing.app import App, running
from durable_core.clock import ManualClock

DAY = 24 * 60 * 60 * 1000
START = 1_800_000_000_000


def agents() -> list[Agent]:
    return [Agent("helper", ScriptedModel(), instructions="Help.")]


# The setting


@pytest.mark.parametrize(("given", "days"), [("default", 90), (0, 0), (7, 7), (36_500, 36_500), (Retention(3), 3)])
def test_days_or_the_default(given: Any, days: int) -> None:
    bot = Bot(agents=agents(), retention=given)
    bot.check()
    assert bot.retention.keep_ms == days * DAY


@pytest.mark.parametrize("given", [-1, 36_501, 1.5, True, None, "never", "90", timedelta(days=3)])
def test_anything_else_is_a_problem_at_start(given: Any) -> None:
    with pytest.raises(BadApp, match="retention= must be") as caught:
        Bot(agents=agents(), retention=given).check()
    assert "whole days from 0 to 36500" in str(caught.value)


def test_ninety_days_is_what_nobody_set() -> None:
    assert Bot(agents=agents()).retention == Retention(90)


# Over HTTP


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def app(clock: ManualClock) -> AsyncIterator[App]:
    async with running(Bot(agents=agents(), retention=1), clock=clock) as made:
        yield made


async def status(app: App, method: str, path: str, json: Any = None) -> tuple[int, str]:
    async with app.http.request(method, f"{app.url}{path}", json=json) as answer:
        if answer.content_type != "application/json":
            return answer.status, await answer.text()
        body = await answer.json()
        return answer.status, body["error"]["code"] if "error" in body and answer.status >= 400 else ""


async def over(app: App) -> tuple[str, str]:
    """Have a session that has ended; its id and the id of its message."""
    made = await app.api("POST", "/v1/sessions", {"message": "hello"})
    session, submission = made["session_id"], made["submission_id"]
    await app.api("GET", f"/v1/submissions/{submission}?wait=10")
    await app.api("POST", f"/v1/sessions/{session}/reset", {})
    return session, submission


async def test_what_is_gone_is_410_and_input_as_before(app: App, clock: ManualClock) -> None:
    session, submission = await over(app)
    assert (await status(app, "GET", f"/v1/sessions/{session}"))[0] == 200
    assert (await app.runtime.store.run(session)).purged_at is None
    clock.advance(timedelta(days=1))
    assert await app.runtime.store.purge(limit=50) == [session]
    gone = (410, "session_expired")
    assert await status(app, "GET", f"/v1/sessions/{session}") == gone
    assert await status(app, "GET", f"/v1/sessions/{session}/events?follow=false") == gone
    assert await status(app, "GET", f"/v1/sessions/{session}/events") == gone
    assert await status(app, "GET", f"/v1/submissions/{submission}") == gone
    responses = {"responses": [{"request_id": "prm_x", "option_id": "approve"}]}
    assert await status(app, "POST", f"/v1/sessions/{session}/responses", responses) == gone
    assert await status(app, "POST", f"/v1/sessions/{session}/messages", {"message": "hi"}) == (409, "session_ended")
    assert (await status(app, "POST", f"/v1/sessions/{session}/reset", {}))[0] == 200
    assert (await status(app, "POST", f"/v1/sessions/{session}/cancel", {}))[0] == 200


async def test_another_s_session_stays_unknown(app: App, clock: ManualClock) -> None:
    session, _ = await over(app)
    clock.advance(timedelta(days=1))
    await app.runtime.store.purge(limit=50)
    assert await status(app, "GET", "/v1/sessions/ses_unknown") == (404, "not_found")
    assert (await status(app, "GET", f"/v1/sessions/{session}"))[0] == 410


async def test_a_follower_s_stream_ends(app: App) -> None:
    made = await app.api("POST", "/v1/sessions", {"message": "hello"})
    session = made["session_id"]
    await app.api("GET", f"/v1/submissions/{made['submission_id']}?wait=10")
    timeout = aiohttp.ClientTimeout(total=20)
    async with app.http.get(f"{app.url}/v1/sessions/{session}/events", timeout=timeout) as answer:
        await answer.content.readline()
        await app.api("POST", f"/v1/sessions/{session}/reset", {})
        assert await app.runtime.store.forget(session)
        await answer.read()  # to a clean end: a cut connection would raise
    assert await status(app, "GET", f"/v1/sessions/{session}") == (410, "session_expired")
