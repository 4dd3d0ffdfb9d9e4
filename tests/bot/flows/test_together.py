"""Several who want the same account at once: branches of a workflow share one request, others are served by one sign-in.

What lives here: `ctx.authorize` in branches, in two runs, in two threads. What does not: one who wants it (test_authorize.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.testing import FakeSlack
from bot.testing.app import App
from bot.tools import tool
from durable_core import NotAuthorized
from durable_core.context import WorkflowContext
from durable_core.registry import workflow
from tests.bot.flows.connecting import GRANT, codes, connect, press, private_card, privately, rows
from tests.bot.flows.threads import Obeying, check_balance, events, posted, thread, until
from tests.bot.signins.authority import Authority, authority

ASKED = "SELECT prompt_id FROM moor_prompt WHERE kind = 'sign-in'"
OPEN = f"{ASKED} AND outcome IS NULL"
WITHDRAWN = f"{ASKED} AND outcome = 'cancelled'"


@pytest.fixture
async def provider() -> AsyncIterator[Authority]:
    async with authority() as made:
        made.polled = [GRANT]
        yield made


@pytest.fixture
def tracker(provider: Authority) -> OAuthConnection:
    names: dict[str, Any] = {f"{name}_url": f"{provider.url}/{name}" for name in ("device", "token", "userinfo", "revoke")}
    return OAuthConnection("tracker", title="Tracker", client_id="app", grant="device", scopes=["issues"], **names)


async def told(ctx: WorkflowContext, connection: Any) -> str:
    try:
        return (await ctx.authorize(connection)).account
    except NotAuthorized as error:
        return error.reason


def both(first: Any, second: Any) -> Any:
    """A workflow whose two branches each want an account."""

    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker twice at once."""
        return " and ".join(await asyncio.gather(told(ctx, first), told(ctx, second)))

    return visit


def alone(connection: Any) -> Any:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        return await told(ctx, connection)

    return visit


async def test_branches_of_a_run_share_one_request(provider: Authority, tracker: OAuthConnection) -> None:
    async with thread(both(tracker, tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice@tracker and alice@tracker")
        assert await rows(app, ASKED) == 1
        assert len([one for one in privately(slack) if "Connect Tracker" in [button.label for button in one.buttons]]) <= 1
        assert len(provider.exchanged) == 1
        check_balance(await events(app))


async def test_what_is_declined_is_declined_for_all_branches(tracker: OAuthConnection) -> None:
    async with thread(both(tracker, tracker.scoped("admin")), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await press(slack, "Cancel")
        await posted(slack, asked, "Alice did not connect Tracker. and Alice did not connect Tracker.")
        assert await rows(app, ASKED) == 1


async def test_a_branch_that_needs_more_asks_once_the_first_is_answered(provider: Authority, tracker: OAuthConnection) -> None:
    provider.polled = [GRANT, {"scope": "issues admin"}]
    async with thread(both(tracker, tracker.scoped("admin")), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await private_card(slack)
        assert await rows(app, ASKED) == 1
        await connect(slack, app)
        await slack.until(lambda: any("Allow more on Tracker" in one.words for one in privately(slack)))
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice@tracker and alice@tracker")
        assert await rows(app, ASKED) == 2


async def test_the_request_stays_for_those_who_still_wait(provider: Authority, tracker: OAuthConnection) -> None:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Give one branch up, and have the other go on."""
        first, second = asyncio.create_task(told(ctx, tracker)), asyncio.create_task(told(ctx, tracker))
        await asyncio.wait([first], timeout=5)
        first.cancel()
        return await second

    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await private_card(slack)
        await slack.advance(timedelta(seconds=6))
        await until(app, "SELECT name FROM moor_step WHERE name = 'timer:5000#0'")
        assert await rows(app, OPEN) == 1
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice@tracker")
        assert await rows(app, ASKED) == 1


async def test_the_last_who_leaves_withdraws_it(tracker: OAuthConnection) -> None:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Give both branches up."""
        branches = [asyncio.create_task(told(ctx, tracker)) for _ in range(2)]
        await asyncio.wait(branches, timeout=5)
        for one in branches:
            one.cancel()
        await ctx.sleep(1)
        return "went on"

    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await private_card(slack)
        await slack.advance(timedelta(seconds=6))
        await until(app, WITHDRAWN)
        await slack.advance(timedelta(seconds=2))
        await posted(slack, asked, "visit: completed: went on")
        assert (await rows(app, ASKED), await rows(app, OPEN)) == (1, 0)
        check_balance(await events(app))


async def test_another_process_goes_on_with_all_branches(provider: Authority, tracker: OAuthConnection, tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        options: dict[str, Any] = {"model": Obeying(), "slack": slack, "data": tmp_path, "connections": [tracker]}
        async with thread(both(tracker, tracker), **options):
            asked = await slack.mention("alice", "general", "visit home")
            await private_card(slack)
        async with thread(both(tracker, tracker), **options) as (_, app):
            await connect(slack, app)
            await posted(slack, asked, "visit: completed: alice@tracker and alice@tracker")
            assert await rows(app, ASKED) == 1


async def test_one_sign_in_serves_two_runs_of_one_turn(provider: Authority, tracker: OAuthConnection) -> None:
    async with thread(alone(tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit a + visit b")
        await slack.until(lambda: cards(slack) == 2)
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice@tracker; visit: completed: alice@tracker")
        assert (await rows(app, ASKED), await rows(app, OPEN)) == (2, 0)
        assert len(provider.exchanged) == len(codes(slack)) == 1
        assert cards(slack) == 0
        check_balance(await events(app))


async def test_one_sign_in_serves_all_threads_of_a_person_and_nobody_else(provider: Authority, tracker: OAuthConnection) -> None:
    @tool(connections=[tracker], effect="read")
    async def fetch(ctx: ToolContext[Any], service: str) -> str:
        """Fetch something."""
        return f"{service} as {ctx.principal.name}"

    more = alone(tracker.scoped("admin"))
    async with thread(fetch, more, model=Obeying(), connections=[tracker]) as (slack, app):
        await slack.mention("alice", "general", "fetch here")
        await slack.mention("alice", "general", "fetch there")
        await slack.mention("alice", "general", "visit admins")
        await slack.mention("bob", "general", "fetch mine")
        await slack.until(lambda: cards(slack) == 3)
        await until(app, f"SELECT n FROM (SELECT count(*) AS n FROM ({OPEN})) WHERE n = 4")
        await connect(slack, app, nth=0)
        completed = "SELECT submission_id FROM moor_admission WHERE kind = 'message' AND outcome = 'completed'"
        await until(app, f"SELECT n FROM (SELECT count(*) AS n FROM ({completed})) WHERE n = 2")
        assert await replies(app) == ["fetch: completed: here as Alice", "fetch: completed: there as Alice"]
        assert await rows(app, OPEN) == 2, "one asks for more, one asks somebody else"
        settled = "SELECT place FROM moor_audit WHERE act = 'settled' ORDER BY n"
        assert [row[0] for row in await app.runtime.store.rows(settled, {})] == ["proven by a code alone", "connected before"]


def cards(slack: FakeSlack) -> int:
    """How many cards of Alice's wait for her to connect it."""
    return sum("Connect Tracker" in [button.label for button in one.buttons] for one in privately(slack))


async def replies(app: App) -> list[str]:
    """All that was answered, in whichever thread."""
    runs = await app.runtime.store.rows("SELECT run_id FROM moor_run WHERE kind = 'session'", {})
    told = [event for (run,) in runs for event in await app.runtime.streams.read(str(run), start=0)]
    return sorted(event.data["message"] for event in told if event.type == "message.completed")
