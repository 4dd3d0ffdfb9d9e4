"""Workflows that act with somebody's account: asked for in private, connected, gone on with, in steps only.

What lives here: `ctx.authorize` and `connected` through a whole app, with a provider by its device flow. What does not: the way
through a browser (tests/bot/signins/), what a layer-less engine does (tests/durable_core/).
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.connections.connection import OAuthConnection
from bot.connections.errors import Unauthorized
from bot.flows import connected
from bot.testing import FakeSlack
from bot.testing.slack import Said
from durable_core import NotAuthorized, StepFailed
from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.registry import step, workflow
from tests.bot.flows.connecting import GRANT, codes, connect, press, private_card, privately, rows
from tests.bot.flows.threads import Obeying, check_balance, events, posted, thread
from tests.bot.signins.authority import Authority, authority

SEEN = "SELECT prompt_id FROM moor_prompt WHERE kind = 'sign-in'"


class Service:
    """An API that takes some tokens."""

    def __init__(self) -> None:
        self.taken = {"CANARY-access"}
        self.asked: list[str] = []

    async def who(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.asked.append(token)
        return web.json_response({"login": "alice"}, status=200 if token in self.taken else 401)


@pytest.fixture
async def provider() -> AsyncIterator[Authority]:
    async with authority() as made:
        yield made


@pytest.fixture
async def service(provider: Authority) -> AsyncIterator[tuple[Service, str]]:
    made, app = Service(), web.Application()
    app.router.add_get("/who", made.who)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield made, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
def tracker(provider: Authority, service: tuple[Service, str]) -> OAuthConnection:
    names: dict[str, Any] = {f"{name}_url": f"{provider.url}/{name}" for name in ("device", "token", "userinfo", "revoke")}
    return OAuthConnection(
        "tracker", title="Tracker", client_id="app", grant="device", scopes=["issues"], hosts=[service[1]], **names
    )


def flow(connection: Any, *, plain: bool = False) -> Any:
    """A workflow that asks, then says in a step whose account it is."""

    @step(name="fetch")
    async def fetch() -> str:
        return str((await connected(connection).get("/who")).json()["login"])

    @step(name="fetch")
    def fetch_plainly() -> str:
        return str(connected(connection).get("/who").wait().json()["login"])

    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        try:
            account = (await ctx.authorize(connection)).account
        except NotAuthorized as error:
            return f"not authorized: {error.reason}"
        login = await ctx.step(fetch_plainly if plain else fetch)
        return f"{service}: {login} by {account}"

    return visit


@pytest.mark.parametrize("plain", [False, True])
async def test_it_asks_in_private_and_goes_on_as_the_person(
    provider: Authority, tracker: OAuthConnection, service: tuple[Service, str], *, plain: bool
) -> None:
    provider.polled = [GRANT]
    async with thread(flow(tracker, plain=plain), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await posted(slack, asked, "Paused: waiting for Alice to connect Tracker.")
        card = await private_card(slack)
        assert [button.label for button in card.buttons] == ["Connect Tracker", "Cancel"]
        assert all(not one.buttons for one in slack.replies(asked))
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: home: alice by alice@tracker")
        await slack.until(lambda: "Alice connected Tracker." in slack.replies(asked)[0].words)
        assert all("WDJB" not in one.words for one in slack.replies(asked))
        assert await rows(app, SEEN) == 1
        seen = await events(app)
        check_balance(seen)
        required = [event.data for event in seen if event.type == "authorization.required"]
        assert [(one["name"], one["title"], one["scopes"]) for one in required] == [("tracker", "Tracker", ["issues"])]
        assert [one.data["outcome"] for one in seen if one.type == "authorization.completed"] == ["authorized"]
        [result] = [event.data for event in seen if event.type == "action.result"]
        assert result["private_to"]["name"] == "Alice"
        again = await slack.mention("alice", "general", "visit again")
        await posted(slack, again, "visit: completed: again: alice by alice@tracker")
        assert await rows(app, SEEN) == 1


async def test_what_an_account_brought_is_not_shown_to_the_turns_of_others(provider: Authority, tracker: OAuthConnection) -> None:
    provider.polled = [GRANT]
    async with thread(flow(tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: home")
        await slack.mention("bob", "general", "hello", asked)
        await posted(slack, asked, "[fetched with Alice's account; not shown here]")


async def test_nor_whose_account_it_is_there(provider: Authority, tracker: OAuthConnection) -> None:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Say which account it is."""
        return (await ctx.authorize(tracker)).account

    provider.polled = [GRANT]
    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice@tracker")
        await slack.mention("bob", "general", "hello", asked)
        await posted(slack, asked, "[fetched with Alice's account; not shown here]")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("cancel", "Alice did not connect Tracker."),
        ("expire", "Nobody connected Tracker in time."),
        ("deny", "Alice declined at Tracker. Nothing was connected."),
    ],
)
async def test_the_reason_comes_back(provider: Authority, tracker: OAuthConnection, how: str, reason: str) -> None:
    provider.polled = [{"error": "access_denied"}]
    async with thread(flow(tracker), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await private_card(slack)
        match how:
            case "cancel":
                await press(slack, "Cancel")
            case "expire":
                await slack.advance(timedelta(days=1))
            case _:
                await connect(slack, app)
        await posted(slack, asked, f"visit: completed: not authorized: {reason}")
        check_balance(await events(app))


async def test_another_process_goes_on(provider: Authority, tracker: OAuthConnection, tmp_path: Path) -> None:
    provider.polled = [GRANT]
    async with FakeSlack() as slack:
        options: dict[str, Any] = {"model": Obeying(), "slack": slack, "data": tmp_path, "connections": [tracker]}
        async with thread(flow(tracker), **options):
            asked: Said = await slack.mention("alice", "general", "visit home")
            await private_card(slack)
        async with thread(flow(tracker), **options) as (_, app):
            await connect(slack, app)
        async with thread(flow(tracker), **options) as (_, app):
            await posted(slack, asked, "visit: completed: home: alice by alice@tracker")
            assert await rows(app, SEEN) == 1
            assert len(codes(slack)) == 1


async def test_a_token_that_is_not_taken_is_asked_for_once_more(
    provider: Authority, tracker: OAuthConnection, service: tuple[Service, str]
) -> None:
    api, _ = service
    api.taken = {"second"}
    failures: list[StepFailed] = []

    @step(name="fetch")
    async def fetch() -> str:
        return str((await connected(tracker).get("/who")).json()["login"])

    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        for _ in range(2):
            await ctx.authorize(tracker)
            try:
                return await ctx.step(fetch)
            except StepFailed as error:
                failures.append(error)
        return "in vain"

    provider.polled = [{**GRANT, "refresh_token": None}, {**GRANT, "access_token": "second"}]
    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await slack.until(lambda: len([one for one in slack.replies(asked) if "Paused" in one.words]) == 1 and failures)
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: alice")
        assert {(error.code, error.attempts) for error in failures} == {("unauthorized", 1)}
        assert "ctx.authorize(…) asks them to connect it" in str(failures[0])
        assert await rows(app, SEEN) == 2


async def test_what_a_step_raises_itself_drops_the_token_it_used(provider: Authority, tracker: OAuthConnection) -> None:
    @step(name="fetch")
    async def fetch() -> None:
        await connected(tracker).get("/who")
        raise Unauthorized(tracker)

    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        await ctx.authorize(tracker)
        try:
            await ctx.step(fetch)
        except StepFailed as error:
            return f"{error.code}"
        return "?"

    provider.polled = [GRANT]
    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await posted(slack, asked, "visit: completed: unauthorized")
        assert await app.runtime.connections.listed() == []


async def test_more_is_asked_for_where_a_step_needs_more(provider: Authority, tracker: OAuthConnection) -> None:
    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker twice."""
        first = (await ctx.authorize(tracker)).account
        await ctx.authorize(tracker)
        second = (await ctx.authorize(tracker.scoped("admin"))).account
        return f"{service}: {first}, then {second}"

    provider.polled = [GRANT, {"scope": "issues admin"}]
    async with thread(visit, model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await slack.until(lambda: any("Allow more on Tracker" in one.words for one in privately(slack)))
        await connect(slack, app)
        await posted(slack, asked, "home: alice")
        assert len(provider.exchanged) == 2, "what it may already isn't asked for again"


async def test_what_the_provider_does_not_allow_is_told(provider: Authority, tracker: OAuthConnection) -> None:
    provider.polled = [GRANT]
    async with thread(flow(tracker.scoped("admin")), model=Obeying(), connections=[tracker]) as (slack, app):
        asked = await slack.mention("alice", "general", "visit home")
        await connect(slack, app)
        await posted(slack, asked, "not authorized: Tracker did not allow all that is needed: admin is missing.")


async def test_a_connection_that_the_app_does_not_know(tracker: OAuthConnection) -> None:
    others: list[list[OAuthConnection]] = [[], [dataclasses.replace(tracker, title="Another")]]
    for given in others:
        async with thread(flow(tracker), model=Obeying(), connections=given) as (slack, _):
            asked = await slack.mention("alice", "general", "visit home")
            words = "this app does not know the connection 'tracker'; give it to Bot(connections=[…])"
            await posted(slack, asked, words)


async def test_a_run_that_no_conversation_started(tracker: OAuthConnection) -> None:
    made = flow(tracker)
    async with thread(made, model=Obeying(), connections=[tracker]) as (_, app):
        async with Engine(app.runtime.store, workflows=[made], clock=app.runtime.clock, work=False, deployment="test") as engine:
            result = str(await (await engine.start(made, "home")).result())
        assert result.startswith("not authorized: Tracker works with the account of whoever asks, and this run was started by no")
        assert await rows(app, SEEN) == 0


async def test_connected_is_for_steps(tracker: OAuthConnection) -> None:
    with pytest.raises(RuntimeError):
        connected(tracker)
