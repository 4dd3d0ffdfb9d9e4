"""The same way through a provider that nobody here wrote: PKCE enforced, `iss` in every callback, pages to log in and to consent.

What lives here: what only a real one shows. What does not: refreshing (tests/bot/connections/), a real browser (tests/e2e/).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser, Shown
from tests.bot.signins.desk import Desk, open_desk
from tests.oidc import SECRET, OidcPeer

SCOPES = ("openid", "profile", "email", "offline_access", "read")


@pytest.fixture
async def real(tmp_path: Path, oidc: OidcPeer) -> AsyncIterator[Desk]:
    oidc.client(
        "tracker",
        client_secret=SECRET,
        redirect_uris=["http://127.0.0.1/connect/callback/any"],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="client_secret_basic",
    )
    own: dict[str, Any] = {"issuer": oidc.issuer, "client_id": "tracker", "client_secret": SECRET, "scopes": SCOPES}
    nowhere: dict[str, Any] = dict.fromkeys(("authorize_url", "token_url", "userinfo_url", "revoke_url"))
    async with open_desk(tmp_path, trusted=[oidc.issuer], **own, **nowhere, extra={"prompt": "consent"}) as desk:
        yield desk


async def through(
    desk: Desk, oidc: OidcPeer, browser: Browser, prompt_id: str, *, login: str = "alice", deny: bool = False
) -> Shown:
    offer = await desk.offered(prompt_id)
    await browser.open(offer.url)
    page = await browser.press(code=offer.code or "")
    return await browser.open(await oidc.sign_in(page.next, login, deny=deny))


async def test_connect(real: Desk, oidc: OidcPeer, alice: Browser) -> None:
    prompt_id = await real.asked(scopes=SCOPES)
    page = await through(real, oidc, alice, prompt_id)
    assert page.status == 200, page.text
    assert "Alice" in page.text
    assert (await real.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    assert await real.note(prompt_id) == {"account": "Alice", "text": "Tracker is connected as Alice."}
    credential = await real.credential()
    assert credential is not None
    assert credential.refresh_token
    assert credential.issuer == oidc.issuer
    assert [one["outcome"] for one in oidc.asked()] == ["granted"]
    callback = next(url for url in alice.visited if "/connect/callback/" in url)
    for _ in range(2):  # a code that is spent twice has this provider end the whole grant
        assert (await alice.open(callback)).text == page.text
    assert len(oidc.asked()) == 1


async def test_decline(real: Desk, oidc: OidcPeer, alice: Browser) -> None:
    prompt_id = await real.asked(scopes=SCOPES)
    page = await through(real, oidc, alice, prompt_id, deny=True)
    assert page.status == 200
    assert await real.note(prompt_id) == {"text": "Alice declined at Tracker. Nothing was connected."}
    assert oidc.asked() == []


@pytest.mark.parametrize("seconds", [-7_200, 7_200])
async def test_clocks_that_are_far_apart(real: Desk, oidc: OidcPeer, alice: Browser, seconds: int) -> None:
    """Its word for who it is can't be believed then: a clear page, and a fresh link once the clock is right."""
    prompt_id = await real.asked(scopes=SCOPES)
    offer = await real.offered(prompt_id)
    await alice.open(offer.url)
    leaving = (await alice.press(code=offer.code or "")).next
    oidc.settings(code_ttl=86_400)
    back = await oidc.sign_in(leaving)
    oidc.settings(skew=seconds)
    page = await alice.open(back)
    assert page.status == 400
    assert "Tracker gave an answer that can't be trusted." in page.text
    assert await real.credential() is None
    assert (await real.prompt(prompt_id)).outcome is None
    oidc.settings(skew=0)
    assert (await through(real, oidc, alice, prompt_id)).status == 200


async def test_an_answer_that_is_lost_after_the_code_was_spent(real: Desk, oidc: OidcPeer, alice: Browser) -> None:
    """Nobody knows what it gave, so it is not asked again: a fresh link."""
    oidc.plan("/token", drop="after")
    prompt_id = await real.asked(scopes=SCOPES)
    page = await through(real, oidc, alice, prompt_id)
    assert page.status == 400
    assert "Tracker did not answer." in page.text
    assert len(oidc.asked()) == 1
    assert (await through(real, oidc, alice, prompt_id)).status == 200


@pytest.mark.parametrize("login", ["alice", "mallory"])
async def test_its_word_for_an_address_is_a_proof(real: Desk, oidc: OidcPeer, alice: Browser, login: str) -> None:
    object.__setattr__(real.connection, "verifies_email", True)
    real.chat.emails["alice"] = "alice@example.test"
    prompt_id = await real.asked(scopes=SCOPES)
    page = await through(real, oidc, alice, prompt_id, login=login)
    if login == "alice":
        assert page.status == 200
        return
    assert page.status == 400
    assert await real.credential() is None
    assert (await real.offered(prompt_id)).code is not None
