"""Tokens and client secrets show nowhere: no repr, no error, no log, no step, no event, no byte of the database."""

from __future__ import annotations

import json
import logging
import sqlite3
import traceback
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot import Agent, Bot, Model, ModelReply, ModelRequest, OAuthConnection, RequestedCall, ToolContext, tool
from bot.connections import errors
from bot.connections.client import Access, Reply
from bot.connections.credentials import Credential
from bot.connections.errors import AccountUnreachable
from bot.connections.protocol import Account, Registration, TokenGrant
from bot.connections.registrations import VaultRegistrations
from bot.environment import SecretText, env, hidden
from bot.errors import VariableMissing
from bot.history import ResultItem
from bot.operate.actions import inspect
from bot.principal import Principal
from bot.settings import Settings, sqlite_url
from bot.testing import running
from channels.events import Standing
from durable_core import codec
from durable_core.crypto import new_key_entry
from durable_core.errors import DurableError
from durable_core.store import Store
from tests.bot.connections.keeping import grant, need, tracker

CANARY = "c4nary"


def test_values_hide_what_they_hold() -> None:
    values: list[object] = [
        tracker(),
        need(),
        tracker().definition,
        tracker().static_client,
        Credential(access_token=CANARY, refresh_token=CANARY),
        Access(token=CANARY, version=1),
        Reply(connection="x", status=200, headers={"a": CANARY}, body=CANARY.encode()),
        grant(1),
        hidden(CANARY),
        Registration("i", "c", CANARY, redirect_uri="r"),
    ]
    for value in values:
        assert CANARY not in repr(value)
        assert CANARY not in str(value)
        assert CANARY not in f"{value}"


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = env("TRACKER_SECRET")
    monkeypatch.delenv("TRACKER_SECRET", raising=False)
    assert (secret.problem(), str(secret), repr(secret)) == (
        "the environment variable TRACKER_SECRET is not set",
        "<TRACKER_SECRET>",
        "SecretText(TRACKER_SECRET)",
    )
    with pytest.raises(VariableMissing, match="TRACKER_SECRET is not set"):
        secret.reveal()
    monkeypatch.setenv("TRACKER_SECRET", f" {CANARY}\n")
    assert secret.reveal() == CANARY
    assert (secret.problem(), repr(secret)) == (None, "SecretText(TRACKER_SECRET)")
    assert env("TRACKER_SECRET") == secret
    assert hash(hidden("a")) == hash(hidden("b"))
    assert hidden("a") != hidden("b")
    assert SecretText(text=CANARY).reveal() == CANARY
    with pytest.raises(ValueError, match="no name"):
        env("not a name")


def test_errors_name_a_connection_and_nothing_else() -> None:
    made = [
        errors.Unauthorized(tracker()),
        errors.HostNotBound("tracker", "https://evil.example"),
        errors.AccountUnreachable("tracker", "it is down"),
        errors.RequestFailed("tracker", "it is down", sent=True),
        errors.NotConnected("tracker"),
        errors.PrincipalRequired("Tracker"),
        errors.TokenNotExposed("tracker"),
        errors.NotDeclared("tracker", ()),
        errors.StatusRefused("tracker", 500),
    ]
    for error in made:
        assert "racker" in str(error)
        assert CANARY not in repr(vars(error))


async def test_what_a_provider_made_for_the_app_is_kept_once(store: Store) -> None:
    kept, one = VaultRegistrations(store), Registration("https://i.example", "c1", CANARY, redirect_uri="https://b.example/x")
    assert await kept.find(one.issuer, one.redirect_uri) is None
    assert await kept.keep(one) == one
    assert await kept.keep(replace(one, client_id="c2")) == one  # another replica's stands
    assert await kept.find(one.issuer, one.redirect_uri) == one
    assert await kept.find(one.issuer, "https://b.example/y") is None
    await kept.drop(replace(one, client_id="c2"))
    assert await kept.find(one.issuer, one.redirect_uri) == one
    await kept.drop(one)
    assert await kept.find(one.issuer, one.redirect_uri) is None


# ── a whole app ──


@dataclass
class Service:
    """A token endpoint and an API: takes the newest token only, and shows what it was shown in every error."""

    url: str = ""
    number: int = 1
    down: bool = False
    calls: list[str] = field(default_factory=list)

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.calls.append("token")
        if self.down:
            return web.json_response({"error": "server_error", "error_description": str(form["refresh_token"])}, status=500)
        self.number += 1
        return web.json_response(
            {
                "access_token": f"{CANARY}-access-{self.number}",
                "refresh_token": f"{CANARY}-refresh-{self.number}",
                "token_type": "bearer",
                "expires_in": 3600,
            }
        )

    async def api(self, request: web.Request) -> web.Response:
        self.calls.append("api")
        if request.headers.get("Authorization") != f"Bearer {CANARY}-access-{self.number}":
            return web.json_response({"you sent": request.headers.get("Authorization")}, status=401)
        return web.json_response({"issue": 7})


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    one = Service()
    app = web.Application()
    app.router.add_post("/token", one.token)
    app.router.add_route("*", "/api/{rest:.*}", one.api)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield one
    await runner.cleanup()


class Asking(Model):
    """Calls the tool that a message names, then says what came of it."""

    name = "asking"

    async def reply(self, request: ModelRequest, on_text: Any) -> ModelReply:
        last = request.history[-1]
        if isinstance(last, ResultItem):
            return ModelReply(f"done: {last.content}", ())
        return ModelReply("", (RequestedCall("look", {"how": getattr(last, "text", "")}, provider_id=f"c{request.sequence}"),))


def made(service: Service) -> tuple[Bot, OAuthConnection]:
    connection = OAuthConnection(
        "tracker",
        client_id="app",
        client_secret=f"{CANARY}-secret",
        authorize_url=f"{service.url}/authorize",
        token_url=f"{service.url}/token",
        hosts=(f"{service.url}/api",),
    )

    @tool(effect="read", connections=[connection])
    async def look(ctx: ToolContext, how: str) -> Any:
        """Look."""
        reply = await ctx.http(connection).get("/issues")
        await ctx.progress(f"{ctx!r} {ctx.http(connection)!r} {ctx.lent!r} {reply!r}")
        if how == "break":
            raise RuntimeError(f"{ctx.http(connection)} {ctx.lent}")
        return reply.json()

    return Bot(agents=[Agent("helper", Asking(), tools=[look])]), connection


async def test_no_token_is_in_a_log_a_step_an_event_or_the_database(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bot, connection = made(service)
    settings = Settings(
        tmp_path, sqlite_url(tmp_path), encryption_keys=new_key_entry(), deployment="test", public_url="http://127.0.0.1:1"
    )
    told: list[str] = []
    async with running(bot, settings=settings, data=tmp_path) as app:
        connections = app.runtime.connections
        owner = await _caller(app)
        await connections.keep(connection, owner, _first(), Account("1", "alice"))
        for text in ("go", "break", "go"):
            begun = await app.api("POST", "/v1/sessions", {"message": text})
            done = await app.api("GET", f"/v1/submissions/{begun['submission_id']}?wait=20")
            told.append(json.dumps(done))
            found = await inspect(app.runtime.store, begun["session_id"])
            told.append(json.dumps([found.steps, found.records, found.prompts, found.events], default=str))
            service.number += 1  # the API takes another one from now on: a 401, a renewal, and on
        assert service.calls.count("token") == 3
        assert "issue" in told[0]
        service.down = True
        service.number += 1
        lent = connections.lend(bot.agents[0].offered[0].connections, _person(owner))
        with pytest.raises(AccountUnreachable) as failed:
            await lent.http(connection).get("/issues")
        told.append("".join(traceback.format_exception(failed.value)))
        told.append(repr(await connections.listed()))
    told += [record.getMessage() + str(record.exc_text or "") for record in caplog.records]
    assert all(CANARY not in text for text in told)
    files, cells = _kept(tmp_path)
    assert all(CANARY.encode() not in content for content in files)
    assert any("alice" in text for text in cells), "what lists show is there to be read"
    assert all(CANARY not in text for text in cells)


def _kept(folder: Path) -> tuple[list[bytes], list[str]]:
    """Every file as it is, and every cell of the database as text: unpacked, where it is packed and not sealed."""
    texts: list[str] = []
    with closing(sqlite3.connect(folder / "moorings.db")) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f"SELECT * FROM {table}"):
                texts += [_text(cell) for cell in row]
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()], texts


def _text(cell: Any) -> str:
    if isinstance(cell, bytes):
        try:
            return str(codec.decode(cell))
        except DurableError:
            return repr(cell)
    return str(cell)


def _first() -> TokenGrant:
    return TokenGrant(f"{CANARY}-access-0", refresh_token=f"{CANARY}-refresh-0", expires_in=3600)


def _person(owner: str) -> Principal:
    return Principal(owner, "somebody", Standing.MEMBER)


async def _caller(app: Any) -> str:
    """Whoever calls the API of a test."""
    begun = await app.api("POST", "/v1/sessions", {})
    run = await app.runtime.store.run(begun["session_id"])
    return str(run.creator)
