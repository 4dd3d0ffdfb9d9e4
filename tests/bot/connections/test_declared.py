"""Declaring connections: on tools, on bots, and what keeps an app from starting."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot import Agent, Bot, OAuthConnection, ToolContext, env, oauth, tool
from bot.approvals import Approval, always
from bot.connections.connection import Need
from bot.connections.declared import address_problems
from bot.errors import BadApp, BadTool
from bot.runtime import open_runtime
from bot.settings import Settings, sqlite_url
from bot.surface import surface
from durable_core.crypto import new_key_entry
from tests.bot.connections.keeping import tracker


def bot_of(*connections: OAuthConnection | Need, given: tuple[OAuthConnection, ...] = ()) -> Bot:
    @tool(connections=connections)
    async def act(ctx: ToolContext) -> None:
        """Act."""

    return Bot(agents=[Agent("helper", "scripted", tools=[act])], connections=given)


def problems(bot: Bot) -> tuple[str, ...]:
    try:
        bot.check()
    except BadApp as error:
        return error.problems
    return ()


def test_a_tool_says_what_it_acts_with() -> None:
    other = replace(tracker(), name="other")

    @tool(connections=[tracker(), other.scoped("admin"), tracker().scoped("admin", "issues")])
    async def act(ctx: ToolContext) -> None:
        """Act."""

    assert act.connections == (Need(tracker(), ("issues", "admin")), Need(other, ("issues", "admin")))

    @tool
    async def nothing(ctx: ToolContext) -> None:
        """Do nothing."""

    assert nothing.connections == ()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["tracker"], "holds str"),
        ([tracker(), replace(tracker(), title="Other")], "two that are named 'tracker'"),
        ([None], "NoneType"),
    ],
)
def test_a_tool_acts_with_connections_only(given: Any, why: str) -> None:
    with pytest.raises(BadTool, match=why):

        @tool(connections=given)
        async def act(ctx: ToolContext) -> None:
            """Act."""


def test_a_single_one_needs_no_list() -> None:
    single: Any = tracker()

    @tool(connections=single)
    async def act(ctx: ToolContext) -> None:
        """Act."""

    assert act.connections == (Need(tracker(), ("issues",)),)


def test_a_bot_knows_those_of_its_tools_and_those_it_is_given() -> None:
    other = replace(tracker(), name="other")
    assert bot_of(tracker().scoped("admin"), given=(other, tracker())).connections == {"tracker": tracker(), "other": other}
    assert problems(bot_of(tracker(), given=(other, tracker()))) == ()
    strange: Any = "github"
    assert problems(bot_of(given=(strange,))) == ("connections= holds str, which is no connection; see bot.oauth",)


def test_one_name_is_one_connection() -> None:
    twice = bot_of(tracker(), given=(replace(tracker(), hosts=("evil.example",)),))
    assert problems(twice) == ("two connections are named 'tracker', and are not the same: give one of them another name",)
    other_secret = bot_of(tracker(), given=(replace(tracker(), client_secret="another"),))
    assert len(problems(other_secret)) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "Git Hub"}, "a name is 1 to 64"),
        ({"name": "a" * 65}, "a name is 1 to 64"),
        ({"client_id": ""}, "client_id= is missing"),
        ({"client_id": env("MOORINGS_NOT_SET")}, "client_id: the environment variable MOORINGS_NOT_SET is not set"),
        ({"client_secret": env("MOORINGS_NOT_SET")}, "client_secret: the environment variable MOORINGS_NOT_SET is not set"),
        ({"token_url": None}, "give issuer=, or token_url="),
        ({"authorize_url": None, "token_url": None}, "give issuer=, or authorize_url= and token_url="),
        ({"grant": "device"}, "give issuer=, or device_url="),
        ({"authorize_url": "http://tracker.example/a"}, "authorize_url= must be an https address"),
        ({"token_url": "https://user@tracker.example/a"}, "token_url= must be an https address"),
        ({"token_url": "//tracker.example/a"}, "token_url= must be an https address"),
        ({"issuer": "tracker.example"}, "issuer= must be an https address"),
        ({"hosts": ("http://tracker.example",)}, "hosts= names 'http://tracker.example'"),
        ({"extra": {"state": "x"}}, "extra= may not give 'state'"),
        ({"extra": {"redirect_uri": "x"}}, "extra= may not give 'redirect_uri'"),
        ({"expires": timedelta(0)}, "expires= must be in the future"),
        ({"scopes": ("a", "")}, "scopes= names ''"),
        ({"grant": "client_credentials"}, "grant='client_credentials' is the app's own: owner='app'"),
        ({"client_secret": None, "client_auth": "client_secret_basic"}, "client_auth='client_secret_basic' needs client_secret="),
        ({"approval": Approval(quorum=0)}, "approval: quorum=0 must be at least 1"),
    ],
)
def test_what_keeps_an_app_from_starting(changed: dict[str, Any], why: str) -> None:
    made = replace(tracker(), **changed)
    found = problems(bot_of(made))
    assert any(why in problem and problem.startswith(f"connection {made.name!r}: ") for problem in found), found


def test_all_is_said_at_once() -> None:
    assert len(problems(bot_of(replace(tracker(), name="Git Hub", client_id="", expires=timedelta(0))))) == 4


def test_an_address_may_be_on_the_apps_own() -> None:
    own = OAuthConnection("demo", client_id="c", authorize_url="/demo/authorize", token_url="/demo/token", hosts=("/demo/api",))
    assert own.problems() == ()
    assert own.on_own_address
    assert own.url("authorize_url", "http://127.0.0.1:8700/") == "http://127.0.0.1:8700/demo/authorize"
    assert own.url("userinfo_url", "http://127.0.0.1:8700") is None
    assert own.trusted == ()


@pytest.mark.parametrize(
    ("public_url", "connection", "why"),
    [
        (None, tracker(), "set MOORINGS_PUBLIC_URL"),
        ("http://bot.example.com", tracker(), "must be an https address"),
        ("http://127.0.0.1:8700", tracker(), None),
        ("https://bot.example.com", tracker(), None),
        (None, tracker(grant="device", device_url="https://tracker.example/d"), None),
        (None, tracker(grant="client_credentials", owner="app"), None),
    ],
)
def test_people_find_the_way_back(public_url: str | None, connection: OAuthConnection, why: str | None) -> None:
    found = address_problems([connection], public_url)
    assert (why is None) is (found == [])
    assert why is None or why in found[0]


async def test_a_runtime_does_not_open_without_the_way_back(tmp_path: Path) -> None:
    settings = Settings(tmp_path, sqlite_url(tmp_path), encryption_keys=new_key_entry())
    with pytest.raises(BadApp, match="MOORINGS_PUBLIC_URL"):
        await open_runtime(bot_of(tracker()), settings)


def test_the_surface_shows_accounts() -> None:
    app = bot_of(
        replace(tracker(), expose_token=True).scoped("admin"), oauth.notion(client_id="c", client_secret="s", owner="app")
    )
    (row,) = surface(app.agents)
    assert row.accounts == ("the requester's at Tracker (tracker, given its token)", "the app's own at Notion (notion)")
    assert row.scopes == ("tracker: issues admin",)
    assert row.hosts == ("api.tracker.example", "https://api.notion.com/v1")


def test_an_approval_of_a_connection_holds_for_tools_that_write_and_declare_none() -> None:
    asking = replace(tracker(), approval=always)
    (gated,) = bot_of(asking).agents[0].gated
    assert gated.approval == always
