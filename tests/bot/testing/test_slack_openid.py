"""Signing in with the simulated Slack: what it takes, what it refuses, and what its claims say."""

from __future__ import annotations

import base64
import json
import time
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from bot.testing import FakeSlack
from bot.testing.slack.refusals import Refused
from channels.slack import Slack

BACK = "https://bot.example/connect/identity"


def page(slack: FakeSlack, **changed: str | None) -> str:
    given = {
        "client_id": slack.openid.client_id,
        "redirect_uri": BACK,
        "response_type": "code",
        "scope": "openid profile",
        "state": "kept & told",
        "nonce": "once",
    } | changed
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return f"{slack.openid.base}/openid/connect/authorize?{query}"


def told(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def call(slack: FakeSlack, method: str, *, bearer: str = "", **form: str) -> Any:
    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        answer = await http.post(f"{slack.api_url}{method}", data=form, headers=headers)
        return await answer.json()


async def exchange(slack: FakeSlack, code: str, **changed: str) -> Any:
    client = {"client_id": slack.openid.client_id, "client_secret": slack.openid.client_secret}
    return await call(slack, "openid.connect.token", **(client | {"code": code, "redirect_uri": BACK} | changed))


def opened(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=="))


def number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=="), "big")


async def test_somebody_signs_in_and_the_adapter_knows_them() -> None:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        slack.openid.redirect_urls.add(BACK)
        client = {"client_id": slack.openid.client_id, "client_secret": slack.openid.client_secret}
        channel = Slack(bot_token=slack.token, signing_secret="s", api_url=slack.api_url, **client)  # type: ignore[arg-type]
        provider = channel.identity()
        assert provider is not None
        described = await (await http.get(f"{slack.openid.base}/.well-known/openid-configuration")).json()
        assert provider.issuer == described["issuer"] == slack.openid.base
        assert provider.authorize_url == described["authorization_endpoint"]
        assert provider.token_url == described["token_endpoint"]
        assert provider.userinfo_url == described["userinfo_endpoint"]
        assert provider.jwks_url == described["jwks_uri"]

        back = slack.openid.choose(page(slack, team=slack.workspace.id), "alice")
        assert back.startswith(f"{BACK}?")
        assert told(back)["state"] == "kept & told"
        answer = await exchange(slack, told(back)["code"])
        head, body, signature = answer["id_token"].split(".")
        (key,) = (await (await http.get(provider.jwks_url)).json())["keys"]
        assert opened(head)["kid"] == key["kid"]
        public = rsa.RSAPublicNumbers(number(key["e"]), number(key["n"])).public_key()
        public.verify(base64.urlsafe_b64decode(signature + "=="), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
        claims = opened(body)
        assert (claims["iss"], claims["aud"], claims["nonce"]) == (slack.openid.base, slack.openid.client_id, "once")
        assert abs(claims["exp"] - 300 - time.time()) < 60
        assert channel.author_of(claims) == (slack.workspace.id, slack.user("alice").id)
        assert (claims["name"], "email" in claims) == ("Alice", False)
        info = await call(slack, "openid.connect.userInfo", bearer=answer["access_token"])
        assert channel.author_of(info) == channel.author_of(claims)
        assert slack.openid.client_secret not in repr(slack.calls)
        assert told(back)["code"] not in repr(slack.calls)


async def test_a_code_is_good_once_for_one_client_and_for_a_while() -> None:
    async with FakeSlack() as slack:
        slack.openid.redirect_urls.add(BACK)

        def code() -> str:
            return told(slack.openid.choose(page(slack), "alice"))["code"]

        first = code()
        assert (await exchange(slack, first))["ok"]
        assert (await exchange(slack, first))["error"] == "invalid_code"
        assert (await exchange(slack, "1.2.3"))["error"] == "invalid_code"
        assert (await exchange(slack, code(), client_secret="guessed"))["error"] == "bad_client_secret"
        assert (await exchange(slack, code(), client_id="1.2"))["error"] == "invalid_client_id"
        assert (await exchange(slack, code(), redirect_uri=f"{BACK}/"))["error"] == "bad_redirect_uri"
        assert (await exchange(slack, code(), grant_type="password"))["error"] == "invalid_grant_type"
        late = code()
        await slack.advance(timedelta(minutes=10, seconds=1))
        assert (await exchange(slack, late))["error"] == "invalid_code"


async def test_a_client_may_come_in_the_header() -> None:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        slack.openid.redirect_urls.add(BACK)
        code = told(slack.openid.choose(page(slack), "alice"))["code"]
        client = f"{slack.openid.client_id}:{slack.openid.client_secret}"
        headers = {"Authorization": f"Basic {base64.b64encode(client.encode()).decode()}"}
        form = {"code": code, "redirect_uri": BACK, "grant_type": "authorization_code"}
        answer = await http.post(f"{slack.api_url}openid.connect.token", data=form, headers=headers)
        assert (await answer.json())["ok"]


async def test_who_turns_away_is_sent_back_with_an_error() -> None:
    async with FakeSlack() as slack:
        slack.openid.redirect_urls.add(BACK)
        assert told(slack.openid.choose(page(slack), None)) == {"error": "access_denied", "state": "kept & told"}


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_id": "1.2"}, "invalid_client_id"),
        ({"redirect_uri": "https://evil.example/"}, "bad_redirect_uri"),
        ({"redirect_uri": f"{BACK}?x=1"}, "bad_redirect_uri"),
        ({"redirect_uri": "http://bot.example/plain"}, "bad_redirect_uri"),
        ({"response_type": None}, "invalid_response_type"),
        ({"response_type": "token"}, "invalid_response_type"),
        ({"scope": "profile"}, "invalid_scope"),
        ({"scope": "openid chat:write"}, "invalid_scope"),
        ({"code_challenge": "x", "code_challenge_method": "S256"}, "pkce_not_enabled"),
    ],
)
async def test_a_page_that_is_asked_for_wrongly_sends_nobody_anywhere(changed: dict[str, str | None], error: str) -> None:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        slack.openid.redirect_urls |= {BACK, "http://bot.example/plain"}
        with pytest.raises(Refused, match=error):
            slack.openid.choose(page(slack, **changed), "alice")
        answer = await http.get(page(slack, **changed), allow_redirects=False)
        assert (answer.status, error in await answer.text()) == (400, True)


async def test_the_page_asks_a_browser_who_it_is_and_a_workspace_has_its_own_people() -> None:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        slack.openid.redirect_urls.add(BACK)
        shown = await (await http.get(page(slack, team=slack.workspace.id))).text()
        assert "Allow as alice" in shown
        for name in ("otto", "robo", "dora"):
            assert f"Allow as {name}" not in shown
            with pytest.raises(Refused):
                slack.openid.choose(page(slack, team=slack.workspace.id), name)
        assert "Allow as otto" in await (await http.get(page(slack))).text()
        chosen = page(slack).replace("/authorize?", f"/choice?as={slack.user('bob').id}&")
        answer = await http.get(chosen, allow_redirects=False)
        assert answer.status == 302
        assert parse_qs(urlsplit(answer.headers["Location"]).query)["state"] == ["kept & told"]


async def test_only_a_persons_token_tells_who_they_are() -> None:
    async with FakeSlack() as slack:
        assert (await call(slack, "openid.connect.userInfo"))["error"] == "not_authed"
        assert (await call(slack, "openid.connect.userInfo", bearer=slack.token))["error"] == "invalid_auth"
