"""The attack table: what an attacker tries on a sign-in, what they see, what the victim sees, and that nothing came of it.

What lives here: attacks over HTTP on the real server. What does not: what the protocol refuses by itself.

Alice asks, in the chat. Mallory attacks: he reads along where links leak, lures people to his pages, or runs a provider.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bot.principal import Principal
from bot.signins.attempt import Stage
from bot.signins.page import Page
from bot.signins.values import Offer
from channels.events import Standing
from channels.identity import IdentityProvider
from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser, Shown
from tests.bot.signins.desk import Desk, open_desk, through
from tests.oidc import SECRET, OidcPeer

MALLORY = Principal("chat:mallory", "Mallory", Standing.MEMBER, channel="chat")


async def nothing_came_of_it(desk: Desk, prompt_id: str) -> None:
    """Nobody is connected, and Alice is still asked."""
    assert await desk.credential() is None
    assert (await desk.prompt(prompt_id)).outcome is None


async def away(desk: Desk, browser: Browser, prompt_id: str) -> tuple[Offer, str]:
    """Go as far as the provider; the link, and the address to which it sends the browser back."""
    offer = await desk.offered(prompt_id)
    await browser.open(offer.url)
    await browser.press(code=offer.code or "")
    return offer, (await browser.go_on(follow=False)).headers["Location"]


def changed(url: str, **params: str | None) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | params
    return parts._replace(query=urlencode({name: value for name, value in query.items() if value is not None})).geturl()


def snapshot(path: Path) -> list[tuple[object, ...]]:
    """All that is stored, but for what a process says of itself."""
    with sqlite3.connect(path) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return [row for table in tables if "worker" not in table for row in database.execute(f"SELECT '{table}', * FROM {table}")]


# ── the state ──


@pytest.mark.parametrize("state", ["", "x", "sgn_01m8n9s5p6xbvrbj2n0b5x86fx.AAAA", "a.b.c", "\N{SNOWMAN}.x", "." * 500, None])
async def test_a_forged_or_absent_state(desk: Desk, alice: Browser, mallory: Browser, state: str | None) -> None:
    """Mallory makes up a callback: a page that knows nothing of it. Alice notices nothing and finishes."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    page = await mallory.open(changed(back, state=state, code="mallorys"))
    assert page.status == 404
    assert "Alice" not in page.text
    assert "Tracker" not in page.text
    assert desk.provider.exchanged == []
    await nothing_came_of_it(desk, prompt_id)
    assert (await alice.open(back)).status == 200
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_a_state_with_the_right_attempt_and_a_guessed_secret(desk: Desk, alice: Browser) -> None:
    """In Alice's own browser, say by a lured click: told that it belongs to an earlier try; her sign-in goes on."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    state = parse_qs(urlsplit(back).query)["state"][0]
    page = await alice.open(changed(back, state=f"{state[:-4]}AAAA", code="mallorys"))
    assert page.status == 400
    assert "earlier try" in page.text
    assert desk.provider.exchanged == []
    assert (await alice.open(back)).status == 200
    assert len(desk.provider.exchanged) == 1


async def test_a_state_is_replayed(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """Mallory replays what he read in a log: another browser. Alice reloading sees what she saw; one exchange altogether."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    done = await alice.open(back)
    stolen = await mallory.open(back)
    assert stolen.status == 403
    assert "alice@tracker" not in stolen.text
    pages = await asyncio.gather(*(alice.fetch(back) for _ in range(10)))
    assert {(page.url, page.text) for page in pages} == {(done.url, done.text)}
    assert len(desk.provider.exchanged) == 1


async def test_a_state_comes_late(desk: Desk, alice: Browser) -> None:
    """A callback that was kept for later is worth nothing: expired, and a fresh link is offered."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    desk.later(minutes=10)
    assert (await alice.open(back)).status == 410
    assert desk.provider.exchanged == []
    await nothing_came_of_it(desk, prompt_id)


async def test_a_state_is_of_256_bits_and_is_kept_as_a_hash(desk: Desk, alice: Browser) -> None:
    """Whoever reads the database, keys and all, can't come back in Alice's place."""
    prompt_id = await desk.asked()
    offer, back = await away(desk, alice, prompt_id)
    secret = parse_qs(urlsplit(back).query)["state"][0].partition(".")[2]
    assert len(secret) == 64
    attempt = await desk.attempt(offer)
    link, code = offer.url.rpartition(".")[2], offer.code or ""
    kept = str(attempt.to_json())
    for one in (secret, link, code, *alice.cookies().values()):
        assert one
        assert one not in kept


# ── another browser, another person ──


async def test_a_callback_in_another_browser(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """Mallory gets hold of Alice's callback before her browser does: refused, nothing is spent, and she finishes."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    page = await mallory.open(back)
    assert page.status == 403
    assert desk.provider.exchanged == []
    await nothing_came_of_it(desk, prompt_id)
    assert (await alice.open(back)).status == 200


async def test_a_link_that_was_begun_is_of_no_use_in_another_browser(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """Mallory opens a link that Alice uses: told so; neither her account nor what it is for is shown, and he can't press."""
    prompt_id = await desk.asked()
    offer, back = await away(desk, alice, prompt_id)
    page = await mallory.open(offer.url)
    assert page.status == 403
    assert page.forms == []
    assert "thread" not in page.html
    for press in ("", "guessed"):
        assert (await mallory.post(offer.url, site="same-origin", code=offer.code or "", press=press)).status == 403
    assert (await mallory.post(f"{offer.url}/decline", site="same-origin")).status == 403
    done = await alice.open(back)
    assert (await mallory.open(done.url)).status == 403
    assert "alice@tracker" not in mallory.page.text


async def test_a_link_opened_by_another_person_who_has_no_code(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """The code is beside the link in Alice's private chat. Mallory guesses: five times, then the link is dead; she is told."""
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await mallory.open(offer.url)
    wrong = [f"{number:06}" for number in range(6) if f"{number:06}" != offer.code][:5]
    for left, guess in zip((4, 3, 2, 1), wrong, strict=False):
        page = await mallory.press(code=guess)
        assert page.status == 422
        assert f"{left} {'try is' if left == 1 else 'tries are'} left" in page.text
    page = await mallory.press(code=wrong[4])
    assert page.status == 400
    assert (await mallory.post(offer.url, site="same-origin", code=offer.code or "")).status == 400
    assert desk.provider.authorized == []
    await nothing_came_of_it(desk, prompt_id)
    [(who, line)] = await desk.lines()
    assert who == "chat:alice"
    assert line.startswith("A wrong code was given 5 times at your link")
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200


async def test_codes_are_guessed_all_at_once(desk: Desk) -> None:
    """Fifty guesses in one breath are five tries, however they interleave; the right one among them comes too late."""
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    token = offer.url.rpartition("/")[2]
    guesses = [f"{number:06}" for number in range(51) if f"{number:06}" != offer.code][:50]
    kept = [await desk.sign_ins.begin(token, {}, {"code": guess}) for guess in guesses[:3]]
    assert all(isinstance(page, Page) and page.problem for page in kept)
    pages = await asyncio.gather(*(desk.sign_ins.begin(token, {}, {"code": guess}) for guess in guesses))
    told = [page for page in pages if isinstance(page, Page) and "isn't the code" in page.problem]
    assert len(told) <= 1
    assert (await desk.attempt(offer)).tries <= 5
    await desk.sign_ins.begin(token, {}, {"code": guesses[0]})
    await desk.sign_ins.begin(token, {}, {"code": guesses[0]})
    assert (await desk.attempt(offer)).stage is Stage.FAILED
    page = await desk.sign_ins.begin(token, {}, {"code": offer.code or ""})
    assert isinstance(page, Page)
    await nothing_came_of_it(desk, prompt_id)


@pytest.fixture
async def proving(tmp_path: Path, oidc: OidcPeer) -> AsyncIterator[Desk]:
    """The chat platform has a sign-in of its own: people there are who its OpenID provider says."""
    async with open_desk(tmp_path, trusted=[oidc.issuer]) as desk:
        yield _identified(desk, oidc)


def _identified(desk: Desk, oidc: OidcPeer) -> Desk:
    oidc.client(
        "chat",
        client_secret=SECRET,
        redirect_uris=[f"{desk.url}/connect/identity"],
        grant_types=["authorization_code"],
        token_endpoint_auth_method="client_secret_basic",
    )
    desk.chat.provider = IdentityProvider(
        oidc.issuer,
        authorize_url=f"{oidc.issuer}/auth",
        token_url=f"{oidc.issuer}/token",
        userinfo_url=f"{oidc.issuer}/me",
        jwks_url=f"{oidc.issuer}/jwks",
        client_id="chat",
        client_secret=SECRET,
        scopes=("openid",),
        pkce=True,
    )
    return desk


async def proven(oidc: OidcPeer, browser: Browser, offer: Offer, login: str) -> Shown:
    """Open a link, sign in to the chat platform as somebody, and come back."""
    await browser.open(offer.url)
    page = await browser.press()
    return await browser.open(await oidc.sign_in(page.next, login))


async def test_the_person_proves_who_they_are(proving: Desk, oidc: OidcPeer, alice: Browser) -> None:
    """No attack: Alice signs in to the chat platform, then goes on to the provider, with no code."""
    prompt_id = await proving.asked()
    offer = await proving.offered(prompt_id)
    assert offer.code is None
    page = await proven(oidc, alice, offer, "alice")
    assert page.status == 200
    assert "alice@tracker" in page.text
    assert (await proving.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_a_link_opened_by_another_person(proving: Desk, oidc: OidcPeer, alice: Browser, mallory: Browser) -> None:
    """Mallory was sent Alice's link and signs in as himself: told whom it is for, nothing is bound; Alice is told as well."""
    prompt_id = await proving.asked()
    page = await proven(oidc, mallory, await proving.offered(prompt_id), "mallory")
    assert page.status == 403
    assert page.url.startswith(f"{proving.url}/connect/done/")
    assert "Alice" in page.text
    assert proving.provider.authorized == []
    await nothing_came_of_it(proving, prompt_id)
    [(who, line)] = await proving.lines()
    assert who == "chat:alice"
    assert line.startswith("Whoever signed in at Chat is not Alice")
    assert (await proven(oidc, alice, await proving.offered(prompt_id), "alice")).status == 200


async def test_the_platforms_answer_of_somebody_elses_sign_in(
    proving: Desk, oidc: OidcPeer, alice: Browser, mallory: Browser
) -> None:
    """Mallory has Alice's platform answer, from a log: his browser is not the one that asked for it."""
    prompt_id = await proving.asked()
    offer = await proving.offered(prompt_id)
    await alice.open(offer.url)
    back = await oidc.sign_in((await alice.press()).next, "alice")
    assert (await mallory.open(back)).status == 403
    # and in an attempt of his own, his state with her code: the provider holds the code against his verifier
    own = await proving.offered(await proving.asked(who=MALLORY))
    await mallory.open(own.url)
    his = parse_qs(urlsplit((await mallory.press()).next).query)["state"][0]
    page = await mallory.open(changed(back, state=his))
    assert page.status == 400
    assert proving.provider.authorized == []
    await nothing_came_of_it(proving, prompt_id)


async def test_a_person_who_refuses_to_be_proven(proving: Desk, oidc: OidcPeer, alice: Browser) -> None:
    """Saying no to the platform is no way around it: the next link asks the platform again."""
    prompt_id = await proving.asked()
    offer = await proving.offered(prompt_id)
    await alice.open(offer.url)
    page = await alice.open(await oidc.sign_in((await alice.press()).next, deny=True))
    assert page.status == 400
    assert "Chat did not say who you are." in page.text
    assert (await proving.offered(prompt_id)).code is None
    await nothing_came_of_it(proving, prompt_id)


async def test_the_account_of_another_person(desk: Desk, mallory: Browser) -> None:
    """Mallory opens Alice's link where the provider's e-mail is the proof: his account is not bound, and is given back."""
    object.__setattr__(desk.connection, "verifies_email", True)
    desk.chat.emails["alice"] = "alice@example.test"
    desk.provider.account = {"sub": "m-1", "name": "mallory@tracker", "email": "mallory@example.test", "email_verified": True}
    prompt_id = await desk.asked()
    _, page = await through(desk, mallory, prompt_id)
    assert page.status == 400
    assert desk.provider.revoked == ["CANARY-refresh", "CANARY-access"]
    await nothing_came_of_it(desk, prompt_id)
    [(who, line)] = await desk.lines()
    assert who == "chat:alice"
    assert "mallory" not in line
    assert (await desk.offered(prompt_id)).code is not None


# ── codes and issuers ──


async def test_a_code_is_injected(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """Mallory puts the code of his own account into Alice's callback: PKCE makes it worthless; Alice is told to try again."""
    prompt_id = await desk.asked()
    _, his = await away(desk, mallory, await desk.asked(who=MALLORY))
    _, back = await away(desk, alice, prompt_id)
    page = await alice.open(changed(back, code=parse_qs(urlsplit(his).query)["code"][0]))
    assert page.status == 400
    assert "invalid_grant" in page.text
    await nothing_came_of_it(desk, prompt_id)


@pytest.mark.parametrize("issuer", ["https://evil.example", "", None])
async def test_a_mix_up_of_providers(tmp_path: Path, alice: Browser, issuer: str | None) -> None:
    """The answer comes from, or for, another provider (RFC 9207): the code goes nowhere, Alice is told to try again."""
    async with open_desk(tmp_path, discovered=True) as desk:
        desk.provider.callback = {"iss": issuer}
        prompt_id = await desk.asked()
        _, page = await through(desk, alice, prompt_id)
        assert page.status == 400
        assert "can't be trusted" in page.text
        assert desk.provider.exchanged == []
        await nothing_came_of_it(desk, prompt_id)
        assert [who for who, _ in await desk.lines()] == ["chat:alice"]


async def test_an_answer_at_the_redirect_address_of_another_connection(desk: Desk, alice: Browser) -> None:
    """Each connection has its own address, so a provider's answer can't be passed off as another's."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    page = await alice.open(back.replace("/callback/tracker", "/callback/other"))
    assert page.status == 404
    assert desk.provider.exchanged == []
    assert (await alice.open(back)).status == 200


async def test_a_parameter_that_comes_twice(desk: Desk, alice: Browser) -> None:
    """No provider sends one; what reads the first and what reads the last must not disagree."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    assert (await alice.open(f"{back}&code=mallorys")).status == 404
    assert desk.provider.exchanged == []
    await nothing_came_of_it(desk, prompt_id)


# ── addresses ──


@pytest.mark.parametrize("name", ["next", "return_to", "redirect_uri", "url", "continue", "thread_url"])
async def test_an_open_redirect(desk: Desk, alice: Browser, name: str) -> None:
    """Nothing that comes with a request says where a browser goes next."""
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    evil = f"?{name}=https://evil.example/"
    assert "evil.example" not in (await alice.open(f"{offer.url}{evil}")).html
    form = {"code": offer.code or "", name: "https://evil.example/"}
    page = await alice.post(f"{offer.url}{evil}", site="same-origin", form=form)
    assert urlsplit(page.next).netloc == urlsplit(desk.provider.url).netloc
    back = (await alice.go_on(follow=False)).headers["Location"]
    answer = await alice.open(f"{back}&{name}=https://evil.example/", follow=False)
    assert answer.headers["Location"].startswith("/connect/done/sgn_")
    assert "evil" not in answer.headers["Location"]


@pytest.mark.parametrize(
    "path",
    ["/connect//evil.example/", "/connect/done//evil.example", "/connect/done/https:%2F%2Fevil.example", "/connect/%0d%0aX:y"],
)
async def test_an_address_that_is_no_link(desk: Desk, mallory: Browser, path: str) -> None:
    page = await mallory.open(f"{desk.url}{path}", follow=False)
    assert page.status in {400, 404}
    assert "evil.example" not in page.html
    assert "Location" not in page.headers
    assert "X" not in page.headers


async def test_what_leaves_the_address_bar(desk: Desk, alice: Browser) -> None:
    """Neither the link, nor the code, nor the state is in an address that stays; nothing is sent along as a referrer."""
    _, page = await through(desk, alice, await desk.asked())
    assert urlsplit(page.url).query == ""
    assert urlsplit(page.url).path.startswith("/connect/done/sgn_")
    assert desk.provider.referers == [None]
    offer = await desk.offered(await desk.asked(scopes=("more",)))
    for url in (page.url, offer.url, f"{desk.url}/connect/unknown"):
        headers = (await alice.open(url)).headers
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


# ── requests that people did not make ──

SCANNERS = [
    {"User-Agent": "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"},
    {"Sec-Purpose": "prefetch;prerender"},
    {"Purpose": "prefetch"},
    {"User-Agent": "Mozilla/5.0 SafeLinks"},
]


@pytest.mark.parametrize("headers", SCANNERS, ids=lambda headers: " ".join(headers.values())[:20])
async def test_a_scanner_opens_the_link(desk: Desk, alice: Browser, mallory: Browser, headers: dict[str, str]) -> None:
    """Previews, scanners and prefetches look as often as they like: nothing is stored, no cookie is set, the link is good."""
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    before = snapshot(desk.database)
    for method in ("HEAD", "GET", "GET"):
        page = await mallory.open(offer.url, method=method, headers=headers)
        assert page.status == 200
        assert "Set-Cookie" not in page.headers
    assert snapshot(desk.database) == before
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    assert (await alice.go_on()).status == 200


async def test_a_scanner_opens_a_callback(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """A callback that a proxy or a history sync looks at, by HEAD or without the cookie, is not taken."""
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    before = snapshot(desk.database)
    assert (await alice.open(back, method="HEAD")).status == 404
    assert (await mallory.open(back, method="HEAD")).status == 404
    assert (await mallory.open(back)).status == 403
    assert snapshot(desk.database) == before
    assert (await alice.open(back)).status == 200


@pytest.mark.parametrize(
    ("site", "origin"),
    [("cross-site", None), ("same-site", None), ("none", None), ("", "https://evil.example"), ("", "null"), ("", None)],
)
@pytest.mark.parametrize("path", ["", "/decline"])
async def test_login_csrf_by_a_form_of_another_site(desk: Desk, alice: Browser, site: str, origin: str | None, path: str) -> None:
    """Mallory's page sends Alice's browser to his own link, code and all, so that her account becomes his: not from our page."""
    prompt_id = await desk.asked(who=MALLORY)
    offer = await desk.offered(prompt_id)
    headers = {"Origin": origin} if origin is not None else {}
    page = await alice.post(f"{offer.url}{path}", site=site, headers=headers, code=offer.code or "")
    assert page.status == 403
    assert page.next == ""
    assert alice.cookies() == {}
    assert desk.provider.authorized == []
    assert (await desk.prompt(prompt_id)).outcome is None
    assert (await desk.attempt(offer)).stage is Stage.OPENED


async def test_a_form_of_our_own_page_in_a_browser_without_fetch_metadata(desk: Desk, alice: Browser) -> None:
    offer = await desk.offered()
    page = await alice.post(offer.url, headers={"Origin": desk.url}, code=offer.code or "")
    assert page.next


async def test_login_csrf_by_a_callback(desk: Desk, alice: Browser, mallory: Browser) -> None:
    """Mallory lures Alice's browser to the callback of his own sign-in: it was not begun there, so nothing becomes hers."""
    prompt_id = await desk.asked(who=MALLORY)
    _, back = await away(desk, mallory, prompt_id)
    page = await alice.open(back)
    assert page.status == 403
    assert desk.provider.exchanged == []
    assert (await desk.prompt(prompt_id)).outcome is None


async def test_a_form_in_another_encoding(desk: Desk) -> None:
    """What a page of another site may send without asking first, text/plain, is no form of ours."""
    offer = await desk.offered()
    async with aiohttp.ClientSession() as session:
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}
        async with session.post(offer.url, data=f"code={offer.code}", headers=headers) as answer:
            assert answer.status == 415
        async with session.post(offer.url, data={"code": "1" * 5_000}, headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 413
    assert (await desk.attempt(offer)).stage is Stage.OPENED


_GARBAGE = [
    "/connect/%00a.b",
    "/connect/a.%00",
    "/connect/%ED%A0%80.b",
    "/connect/done/%00",
    "/connect/done/%ED%A0%80",
    f"/connect/done/{'x' * 5_000}",
    "/connect/identity?state=%00a.b",
    "/connect/callback/tracker?state=%00a.b&code=c",
    "/connect/callback/%00?state=%FF.b&code=c",
]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_characters_that_a_database_does_not_take(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, database: str
) -> None:
    """Mallory fills the log with errors and looks for one that tells him something: there is no such link, and no error."""
    url = request.getfixturevalue("migrated_url") if database == "postgres" else ""
    async with open_desk(tmp_path, postgres_url=url) as desk, aiohttp.ClientSession() as session:
        for path in _GARBAGE:
            async with session.get(URL(f"{desk.url}{path}", encoded=True), allow_redirects=False) as answer:
                assert (path, answer.status) == (path, 404)
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_form_of_very_many_fields(desk: Desk, alice: Browser) -> None:
    offer = await desk.offered()
    page = await alice.post(offer.url, site="same-origin", form={str(number): "1" for number in range(50)})
    assert page.status == 422


async def test_cookies_are_of_this_host_alone_and_unreadable(desk: Desk, alice: Browser) -> None:
    """On https a cookie can't be planted by a neighbour (`__Host-`), read by a script, or sent along by other sites' forms."""
    desk.connections.public_url = desk.url.replace("http://", "https://")
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    attempt_id = (await desk.attempt(offer)).attempt_id
    page = await alice.post(offer.url.replace("https://", "http://"), site="same-origin", code=offer.code or "")
    cookie = page.headers["Set-Cookie"]
    assert cookie.startswith(f"__Host-moorings-{attempt_id}=")
    assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=3600"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie


# ── a provider as the attacker ──


@pytest.mark.parametrize("field", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize("inside", ["http://169.254.169.254/latest/meta-data", "https://127.0.0.1:9/", "file:///etc/passwd"])
async def test_ssrf_through_discovery(tmp_path: Path, alice: Browser, field: str, inside: str) -> None:
    """A provider's description names an address inside: it is not asked, nobody is sent there, Alice is told."""
    async with open_desk(tmp_path, discovered=True) as desk:
        desk.provider.metadata = {field: inside}
        prompt_id = await desk.asked()
        _, page = await through(desk, alice, prompt_id)
        assert page.status == 400
        assert inside not in page.html
        assert "Tracker gave an answer that can't be trusted." in page.text
        await nothing_came_of_it(desk, prompt_id)


async def test_ssrf_to_a_server_beside(tmp_path: Path, alice: Browser) -> None:
    """The same, with somebody who would notice: a server of this machine that the author has not named."""
    hits: list[str] = []

    async def noticed(request: web.Request) -> web.Response:
        hits.append(request.path)
        return web.json_response({"access_token": "CANARY", "token_type": "Bearer"})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", noticed)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with open_desk(tmp_path, discovered=True) as desk:
            desk.provider.metadata = {"token_endpoint": f"http://127.0.0.1:{runner.addresses[0][1]}/token"}
            prompt_id = await desk.asked()
            await through(desk, alice, prompt_id)
            await nothing_came_of_it(desk, prompt_id)
    finally:
        await runner.cleanup()
    assert hits == []


async def test_metadata_of_another_issuer(tmp_path: Path, alice: Browser) -> None:
    """A description that stands at one address and speaks for another is nobody's."""
    async with open_desk(tmp_path, discovered=True) as desk:
        desk.provider.metadata = {"issuer": "https://accounts.example"}
        prompt_id = await desk.asked()
        _, page = await through(desk, alice, prompt_id)
        assert page.status == 400
        assert desk.provider.authorized == []
        await nothing_came_of_it(desk, prompt_id)


async def test_hostile_words_of_a_provider(desk: Desk, alice: Browser) -> None:
    """What a provider calls an account, or says of an error, is text: no markup in the page, no mention in the thread."""
    desk.provider.account["name"] = "<script>alert(1)</script> <@U123> \u202eecila"
    prompt_id = await desk.asked()
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200
    assert "<script" not in page.html
    assert "\u202e" not in page.text
