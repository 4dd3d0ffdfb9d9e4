"""Buttons that are pressed again and again: so many links, so many refusals, and then nothing is written any more.

What lives here: the bound through Slack and over HTTP. What does not: counting (durable_core.testing.bounds).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bot.answers import MOST_A_MINUTE
from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.errors import Problem
from bot.principal import Principal
from bot.prompts import Prompts
from bot.testing.app import App
from bot.tools import tool
from channels.events import Standing
from tests.bot.flows.connecting import private_card, rows
from tests.bot.flows.threads import Obeying, thread
from tests.bot.signins.authority import authority

LINKS = "SELECT name FROM moor_vault WHERE kind = 'sign-in'"
AUDIT = "SELECT n FROM moor_audit"
ANSWERS = "SELECT submission_id FROM moor_admission WHERE kind = 'response'"
OWED = "SELECT delivery_id FROM moor_outbox"


@pytest.fixture
async def tracker() -> AsyncIterator[OAuthConnection]:
    async with authority() as provider:
        names: dict[str, Any] = {f"{name}_url": f"{provider.url}/{name}" for name in ("device", "token", "userinfo", "revoke")}
        yield OAuthConnection("tracker", title="Tracker", client_id="app", grant="device", scopes=["issues"], **names)


def fetching(connection: OAuthConnection) -> Any:
    @tool(connections=[connection], effect="read")
    async def fetch(ctx: ToolContext[Any], service: str) -> str:
        """Fetch something."""
        return f"{service} as {ctx.principal.name}"

    return fetch


async def written(app: App) -> tuple[int, int, int]:
    return await rows(app, AUDIT), await rows(app, ANSWERS), await rows(app, OWED)


async def test_links_have_an_end(tracker: OAuthConnection) -> None:
    async with thread(fetching(tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        await slack.mention("alice", "general", "fetch it")
        card = await private_card(slack)
        before = await written(app)
        for _ in range(MOST_A_MINUTE):
            await slack.click(card, "Connect Tracker", "alice")
        full = await written(app)
        assert [after - first for after, first in zip(full, before, strict=True)] == [MOST_A_MINUTE] * 3
        for _ in range(3):
            await slack.click(card, "Connect Tracker", "alice")
        assert await written(app) == full
        await slack.advance(timedelta(minutes=1))
        await slack.click(card, "Connect Tracker", "alice")
        assert await rows(app, AUDIT) == full[0] + 1


async def test_refused_clicks_have_an_end() -> None:
    async with thread() as (slack, app):
        asked = await slack.mention("alice", "general", "deploy api")
        card = await slack.until(lambda: slack.card(asked))
        before = await written(app)
        for _ in range(MOST_A_MINUTE + 3):
            await slack.click(card, "Deploy", "bob")
        assert [after - first for after, first in zip(await written(app), before, strict=True)] == [MOST_A_MINUTE] * 3
        await slack.click(card, "Deploy", "alice")
        await slack.until(lambda: "Answered by Alice" in slack.replies(asked)[0].words)


async def test_over_http_the_caller_is_told_when_to_come_again(tracker: OAuthConnection) -> None:
    async with thread(fetching(tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        await slack.mention("alice", "general", "fetch it")
        await private_card(slack)
        [[prompt_id, requester]] = await app.runtime.store.rows("SELECT prompt_id, requester FROM moor_prompt", {})
        alice = Principal(str(requester), "Alice", Standing.MEMBER, channel="slack")
        prompts = app.runtime.prompts
        assert isinstance(prompts, Prompts)
        for _ in range(MOST_A_MINUTE):
            assert (await prompts.connect(alice, str(prompt_id), key=None))["code"]
        with pytest.raises(Problem) as refused:
            await prompts.connect(alice, str(prompt_id), key=None)
        error = refused.value
        assert (error.status, error.code, error.retryable, error.retry_after) == (429, "too_often", True, 60)
        assert await rows(app, LINKS) == MOST_A_MINUTE
        await slack.advance(timedelta(minutes=1))
        assert (await prompts.connect(alice, str(prompt_id), key=None))["code"]
