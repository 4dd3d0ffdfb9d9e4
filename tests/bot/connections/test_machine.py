"""Client credentials at a provider that nobody here wrote: no person is asked, and one request brings a token for many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.connections.connection import Need
from bot.connections.connections import Ready
from tests.bot.signins.desk import ALICE, Desk, open_desk
from tests.oidc import SECRET, OidcPeer

NOWHERE: dict[str, Any] = dict.fromkeys(("authorize_url", "token_url", "userinfo_url", "revoke_url"))


@pytest.fixture
async def seen(tmp_path: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """A service, and the tokens it was shown."""
    tokens: list[str] = []

    async def report(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/report", report)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", tokens
    await runner.cleanup()


@pytest.fixture
async def desk(tmp_path: Path, oidc: OidcPeer, seen: tuple[str, list[str]]) -> AsyncIterator[Desk]:
    own: dict[str, Any] = {"issuer": oidc.issuer, "client_id": "machine", "client_secret": SECRET, "scopes": ()}
    more: dict[str, Any] = {"grant": "client_credentials", "owner": "app", "hosts": [seen[0]]}
    async with open_desk(tmp_path, trusted=[oidc.issuer, seen[0]], **own, **more, **NOWHERE) as made:
        yield made


async def test_nobody_is_asked_and_many_share_one_request(desk: Desk, oidc: OidcPeer, seen: tuple[str, list[str]]) -> None:
    need = Need.of(desk.connection)
    replicas = [replica.connections for replica in desk.replicas.all]
    clients = [one.lend((need,), ALICE).http(desk.connection) for one in replicas for _ in range(10)]
    replies = await asyncio.gather(*(client.get("/report") for client in clients))
    assert {reply.status for reply in replies} == {200}
    assert len(set(seen[1])) == 1
    assert len(oidc.asked("client_credentials")) == 1
    assert isinstance(await desk.connections.check((need,), ALICE), Ready)
    assert len(oidc.asked()) == 1
