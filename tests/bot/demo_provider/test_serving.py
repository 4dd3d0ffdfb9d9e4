"""The provider in the demo's process: whose tokens the panel revokes, where the file is, and that nobody else serves it."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bot import launch
from bot.demo_provider.accounts import Person, challenge_of
from bot.demo_provider.serving import FILE, install_provider
from channels.console.cast import CAST

ORIGIN = "http://127.0.0.1:8700"


async def test_the_panel_revokes_what_a_cast_member_agreed_to(tmp_path: Path) -> None:
    app = web.Application()
    provider = install_provider(app, folder=tmp_path, origin=ORIGIN)
    async with TestClient(TestServer(app)):
        code = await provider.accounts.grant(
            Person("alice@example.test", "Alice", verified=True), scope="issues", redirect_uri="x", challenge=challenge_of("v")
        )
        issued = await provider.accounts.exchange(code, verifier="v", redirect_uri="x")
        assert await provider.revoke_tokens("bob") == 0
        assert await provider.revoke_tokens("nobody") == 0
        assert await provider.accounts.bearer(issued.access_token) is not None
        assert await provider.revoke_tokens("alice") == 1
        assert await provider.accounts.bearer(issued.access_token) is None
    assert (tmp_path / FILE).is_file()


async def test_everybody_of_the_cast_can_be_signed_in_there(tmp_path: Path) -> None:
    app = web.Application()
    install_provider(app, folder=tmp_path, origin=ORIGIN)
    asked = {
        "response_type": "code",
        "client_id": "moorings-demo",
        "redirect_uri": f"{ORIGIN}/connect/callback/tracker",
        "scope": "issues",
        "code_challenge": challenge_of("v"),
        "code_challenge_method": "S256",
    }
    async with TestClient(TestServer(app)) as client, client.get("/demo/authorize", params=asked) as answer:
        html = await answer.text()
    assert all(f"<span>{member.name}</span><small>{member.email}</small>" in html for member in CAST)


@pytest.mark.parametrize(
    ("app", "url", "found"),
    [
        (launch.DEMO_APP, "", ORIGIN),
        (launch.DEMO_APP, "https://tunnel.example.test", ORIGIN),
        ("app:bot", "", ORIGIN),
        ("app:bot", "https://tunnel.example.test", "https://tunnel.example.test"),
    ],
)
def test_only_the_demo_may_call_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str, url: str, found: str) -> None:
    monkeypatch.setenv("MOORINGS_PUBLIC_URL", url)
    settings = launch.own_settings(app, tmp_path, environ=launch._environ(app, ORIGIN))
    assert settings.public_url == found
    assert settings.trusted_origins == ((ORIGIN,) if app == launch.DEMO_APP else ())


def test_the_demo_names_its_deployments_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORINGS_DEPLOYMENT", "2.7")
    assert launch._environ(launch.DEMO_APP, ORIGIN, deployment="v3")["MOORINGS_DEPLOYMENT"] == "v3"
    assert launch._environ("app:bot", ORIGIN, deployment="v3")["MOORINGS_DEPLOYMENT"] == "2.7"
