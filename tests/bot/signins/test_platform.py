"""A chat platform's own sign-in is the proof where it can send people back, and is asked without PKCE where it takes none."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from channels.identity import IdentityProvider
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk


def identity(base: str, *, pkce: bool = False) -> IdentityProvider:
    return IdentityProvider(
        base,
        authorize_url=f"{base}/authorize",
        token_url=f"{base}/token",
        userinfo_url=f"{base}/userinfo",
        jwks_url=f"{base}/keys",
        client_id="me",
        client_secret="CANARY-platform-secret",
        scopes=("openid",),
        pkce=pkce,
    )


async def test_a_platform_on_https_sends_nobody_back_to_a_plain_address(desk: Desk) -> None:
    desk.chat.provider = identity("https://chat.example.test")
    assert (await desk.offered()).code is not None
    desk.sign_ins.connections.public_url = "https://bot.example.test"
    assert (await desk.offered()).code is None


@pytest.mark.parametrize("pkce", [True, False])
async def test_pkce_goes_along_where_the_platform_takes_it(desk: Desk, alice: Browser, pkce: bool) -> None:
    desk.chat.provider = identity(desk.provider.url, pkce=pkce)
    await alice.open((await desk.offered()).url)
    page = await alice.press()
    asked = parse_qs(urlsplit(page.next).query)
    assert ("code_challenge" in asked, "code_challenge_method" in asked) == (pkce, pkce)
    assert asked["nonce"]
    assert asked["redirect_uri"] == [f"{desk.url}/connect/identity"]
