"""`moorings connections`: what it lists, what it revokes, and the link for the app's own account."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from bot import Agent, Bot, cli
from bot.cli import commands
from bot.connections.connection import APP
from bot.connections.connections import Connections
from bot.connections.credentials import Credential, about_of, entry_name, value_of
from bot.errors import BotError
from bot.forget import forget_principal
from bot.operate.accounts import Desk, at_desk, revoked
from bot.operate.farewell import accounts_of, disconnect_all
from bot.settings import Settings, sqlite_url
from durable_core import codec
from durable_core.model import VaultWrite
from durable_core.schema import upgrade
from durable_core.store import Store
from tests.bot.connections.keeping import ACCOUNT, ALICE, BOB, START, ToldProvider, grant, lost, replica, tracker
from tests.durable_core.conformance.sqlite import KEYS

T = TypeVar("T")

APP_FILE = """
from bot import Agent, Bot, OAuthConnection, ToolContext, tool

tracker = OAuthConnection(
    "tracker", title="Tracker", client_id="app", authorize_url="https://tracker.example/a", token_url="https://tracker.example/t",
    scopes=("issues",), hosts=("api.tracker.example",),
)
shared = OAuthConnection(
    "shared", title="Shared", client_id="app", authorize_url="https://shared.example/a", token_url="https://shared.example/t",
    owner="app",
)
machine = OAuthConnection(
    "machine", client_id="app", client_secret="s", token_url="https://machine.example/t", owner="app", grant="client_credentials"
)

@tool(connections=[tracker])
async def act(ctx: ToolContext) -> None:
    "Act."

bot = Bot(agents=[Agent("helper", "scripted", tools=[act])], connections=[shared, machine])
"""


class Place:
    """A folder with an app in it, and a database."""

    def __init__(self, folder: Path) -> None:
        self.app = f"accounts_app_{id(self)}"
        (folder / f"{self.app}.py").write_text(APP_FILE, encoding="utf-8")
        self.env = {
            "MOORINGS_DATABASE_URL": f"sqlite:///{folder / 'm.db'}",
            "MOORINGS_ENCRYPTION_KEYS": KEYS,
            "MOORINGS_PUBLIC_URL": "https://bot.example.com",
        }
        upgrade(self.env["MOORINGS_DATABASE_URL"])

    def invoke(self, *arguments: str) -> tuple[int, str]:
        return self.command("connections", *arguments)

    def command(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, list(arguments), env=self.env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            assert isinstance(done.exception, BotError), done.exception
            return 2, str(done.exception)
        return done.exit_code, done.output

    def at_desk(self, act: Callable[[Desk], Awaitable[T]]) -> T:
        async def run() -> T:
            async with at_desk(f"{self.app}:bot", None) as desk:
                return await act(desk)

        return asyncio.run(run())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    made = Place(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


async def _keep(desk: Desk, name: str, owner: str) -> None:
    connection, one = desk.bot.connections[name], Credential(access_token="c4nary", account="alice@tracker", signed_in_at=START)
    write = VaultWrite(
        name=entry_name(connection, owner), kind="credential", owner=owner, value=value_of(one), about=about_of(one, connection)
    )
    assert await desk.store.vault_write([write]) is not None


def test_the_list_shows_redirect_uris_and_whose_accounts_are_connected(place: Place) -> None:
    assert place.invoke() == (0, "No account is connected.\n")
    place.at_desk(lambda desk: _keep(desk, "tracker", "slack:T1:U1"))
    place.at_desk(lambda desk: _keep(desk, "shared", APP))
    code, text = place.invoke("list", "--app", f"{place.app}:bot")
    assert code == 0
    assert (
        "tracker: Tracker, each person's own account\n  redirect URI: https://bot.example.com/connect/callback/tracker\n" in text
    )
    assert "  scopes: issues\n  hosts: api.tracker.example\n" in text
    assert "shared: Shared, the app's own account\n" in text
    assert "machine: machine, the app's own account\n\n" in text
    assert [line.split()[:2] for line in text.splitlines()[-2:]] == [["shared", "the"], ["tracker", "slack:T1:U1"]]
    assert "alice@tracker" in text
    assert "c4nary" not in text
    assert "slack:T1:U1" not in place.invoke("list", "--as", "slack:T1:U2")[1]


def test_without_a_public_url_the_list_says_the_redirect_uri_of_dev_and_what_is_missing(place: Place) -> None:
    del place.env["MOORINGS_PUBLIC_URL"]
    place.env["MOORINGS_PUBLIC_URL"] = ""
    shown = place.invoke("list", "--app", f"{place.app}:bot")[1]
    said = " with `moorings dev`; set MOORINGS_PUBLIC_URL to see the one of `moorings start`"
    assert f"redirect URI: http://127.0.0.1:{cli._PORT}/connect/callback/tracker{said}\n" in shown


def test_a_revoked_account_is_forgotten(place: Place) -> None:
    place.at_desk(lambda desk: _keep(desk, "tracker", "slack:T1:U1"))
    code, text = place.invoke("revoke", "tracker", "--app", f"{place.app}:bot", "--as", "slack:T1:U1")
    assert (code, text) == (
        0,
        "Forgotten: tracker of slack:T1:U1. Tracker has no way to be told: end the access there, too.\n",
    )
    again = place.invoke("revoke", "tracker", "--app", f"{place.app}:bot", "--as", "slack:T1:U1")
    assert again == (0, "Nothing is connected at Tracker there.\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("revoke", "tracker"), "tracker is a person's account: say whose with --as."),
        (("revoke", "shared", "--as", "slack:T1:U1"), "shared is the app's own account: leave out --as."),
        (("revoke", "other"), "There is no connection other. The connections are: tracker, shared, machine."),
        (("connect", "tracker"), "tracker is a person's account"),
        (("connect", "machine"), "machine needs nobody to connect it"),
    ],
)
def test_what_is_refused(place: Place, arguments: tuple[str, ...], why: str) -> None:
    code, text = place.invoke(*arguments, "--app", f"{place.app}:bot")
    assert (code, why in text) == (2, True), text


def test_an_app_whose_connections_are_wrong_says_so(place: Place) -> None:
    path = Path(f"{place.app}.py")
    path.write_text(path.read_text(encoding="utf-8").replace('"Tracker", client_id="app"', '"Tracker"'), encoding="utf-8")
    code, text = place.invoke("connect", "shared", "--app", f"{place.app}:bot")
    assert (code, "client_id= is missing" in text) == (2, True)


def test_an_operator_is_given_a_link(place: Place) -> None:
    code, text = place.invoke("connect", "shared", "--app", f"{place.app}:bot")
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == "Open this to connect Shared for the app, yourself and soon:"
    assert lines[1].startswith("https://bot.example.com/connect/")
    other = place.invoke("connect", "shared", "--app", f"{place.app}:bot")[1].splitlines()[1]
    assert other != lines[1]


async def test_what_a_provider_says_to_a_revocation(store: Store, provider: ToldProvider, tmp_path: Path) -> None:
    kept = replica(store, provider)
    desk = _desk(kept, tmp_path)
    for number, says, words in (
        (1, True, "Tracker was told."),
        (2, lost(), "could not be told"),
        (3, False, "no way to be told"),
    ):
        await kept.keep(tracker(), ALICE.id, grant(number), ACCOUNT)
        await kept.keep(tracker(), BOB.id, grant(number + 10), ACCOUNT)
        provider.revokes = says
        assert words in await revoked(desk, "tracker", ALICE.id)
        assert [one.owner for one in await kept.listed()] == [BOB.id]


# forget


def test_forgetting_somebody_tells_their_services_where_the_app_is_known(place: Place) -> None:
    place.at_desk(lambda desk: _keep(desk, "tracker", "slack:T1:U1"))
    app = ("--app", f"{place.app}:bot")
    code, text = place.command("forget", "slack:T1:U1", *app)
    assert (code, "These services would be told first: Tracker. Add --yes" in text) == (2, True), text
    code, text = place.command("forget", "slack:T1:U1", "--yes", *app)
    assert (code, text.splitlines()[1:]) == (0, ["  Tracker has no way to be told: end the access there, too."])
    assert place.invoke() == (0, "No account is connected.\n")


def test_forgetting_somebody_without_the_app_says_that_nobody_was_told(place: Place) -> None:
    place.at_desk(lambda desk: _keep(desk, "tracker", "slack:T1:U1"))
    code, text = place.command("forget", "slack:T1:U1")
    assert (code, "would not be told without --app APP" in text) == (2, True), text
    code, text = place.command("forget", "slack:T1:U1", "--yes")
    assert (code, text.splitlines()[-1]) == (0, "  not told, as --app was not given: Tracker; end the access there, too")
    assert place.invoke() == (0, "No account is connected.\n")


async def test_what_services_are_told_of_somebody_who_is_forgotten(store: Store, provider: ToldProvider, tmp_path: Path) -> None:
    kept = replica(store, provider)
    desk = _desk(kept, tmp_path)
    for number, says, words in (
        (1, True, "  Tracker was told."),
        (2, lost(), "  Tracker could not be told: end the access there, too."),
    ):
        await kept.keep(tracker(), ALICE.id, grant(number), ACCOUNT)
        await kept.keep(tracker(), BOB.id, grant(number + 10), ACCOUNT)
        provider.revokes, provider.revoked = says, []
        assert await disconnect_all(desk, ALICE.id, await accounts_of(store, ALICE.id)) == [words]
        assert {token for token, _ in provider.revoked} == {f"c4nary-refresh-{number}", f"c4nary-access-{number}"}
        assert [one.owner for one in await kept.listed()] == [BOB.id]


async def test_an_account_that_can_not_be_told_keeps_nobody_from_being_forgotten(
    store: Store, provider: ToldProvider, tmp_path: Path
) -> None:
    kept = replica(store, provider)
    desk = _desk(kept, tmp_path)
    await kept.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    about = codec.encode({"connection": "gone", "title": "Gone"})
    await store.vault_write([VaultWrite(name="credential/gone", kind="credential", owner=ALICE.id, value=b"x", about=about)])
    assert await disconnect_all(desk, ALICE.id, await accounts_of(store, ALICE.id)) == [
        "  Gone was not told, as the app has no such connection any more: end the access there, too.",
        "  Tracker was told.",
    ]
    assert (await forget_principal(store, ALICE.id, by="operator", seconds=0)).entries == 1
    assert await accounts_of(store, ALICE.id) == []


def _desk(kept: Connections, folder: Path) -> Desk:
    bot = Bot(agents=[Agent("helper", "scripted")], connections=list(kept.by_name.values()))
    return Desk(bot=bot, settings=Settings(folder, sqlite_url(folder)), store=kept.store, connections=kept)
