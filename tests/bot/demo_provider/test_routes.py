"""The demo's provider over HTTP: what it grants, and whom it refuses how."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bot.demo_provider.accounts import Accounts, Person, challenge_of
from bot.demo_provider.registered import CLIENT_ID, CLIENT_SECRET
from bot.demo_provider.routes import BODY_LIMIT, ProviderRoutes

ORIGIN = "http://127.0.0.1:8700"
BACK = f"{ORIGIN}/connect/callback/tracker"
PEOPLE = [Person("alice@example.test", "Alice", verified=True), Person("bob@example.test", "Bob <b>", verified=True)]
VERIFIER = "v" * 43
ASKED = {
    "response_type": "code",
    "client_id": CLIENT_ID,
    "redirect_uri": BACK,
    "scope": "issues",
    "state": "s-1 &x=y",
    "code_challenge": challenge_of(VERIFIER),
    "code_challenge_method": "S256",
}
CLIENT = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
Client = TestClient[web.Request, web.Application]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
async def client(accounts: Accounts) -> AsyncIterator[Client]:
    app = web.Application()
    app.add_routes(ProviderRoutes(accounts, origin=ORIGIN, people=PEOPLE).routes())
    async with TestClient(TestServer(app)) as client:
        yield client


async def form_of(client: Client, **changed: str) -> dict[str, str]:
    """Open the page and return what its form sends without a choice."""
    async with client.get("/demo/authorize", params={**ASKED, **changed}) as answer:
        assert answer.status == 200
        html = await answer.text()
    return {unescape(name): unescape(value) for name, value in re.findall(r'type="hidden" name="(.*?)" value="(.*?)"', html)}


async def decide(client: Client, form: Mapping[str, str], **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post("/demo/authorize", data=form, headers=sent, allow_redirects=False)


def came_back(answer: Any) -> dict[str, str]:
    """Return what the browser carries back to the app."""
    assert answer.status == 303
    where = urlsplit(answer.headers["Location"])
    assert f"{where.scheme}://{where.netloc}{where.path}" == BACK
    return dict(parse_qsl(where.query, strict_parsing=True))


async def code_of(client: Client, who: str = "alice@example.test", **more: str) -> str:
    form = {**await form_of(client), "who": who, "decision": "authorize", **more}
    return came_back(await decide(client, form))["code"]


async def token(client: Client, **changed: str) -> tuple[int, dict[str, Any]]:
    async with client.post("/demo/token", data={**CLIENT, **changed}) as answer:
        return answer.status, await answer.json()


async def tokens(client: Client, who: str = "alice@example.test", **more: str) -> dict[str, Any]:
    code = await code_of(client, who, **more)
    status, given = await token(client, grant_type="authorization_code", code=code, code_verifier=VERIFIER, redirect_uri=BACK)
    assert status == 200
    return given


def basic(client_id: str, secret: str) -> str:
    return f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"


def bearer(given: Mapping[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {given['access_token']}"}


# The page


async def test_the_page_says_who_asks_for_what_and_runs_nothing(client: Client) -> None:
    answer = await client.get("/demo/authorize", params=ASKED)
    html = await answer.text()
    assert "Demo account provider" in html
    assert "Moorings demo asks to use your demo account" in html
    assert "Open issues and read them, in your name" in html
    assert 'value="alice@example.test" checked' in html
    assert "Bob &lt;b&gt;" in html
    assert "<script" not in html
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script" not in policy
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "strict-origin")
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    assert (await client.get("/demo/style.css")).content_type == "text/css"


async def test_looking_changes_nothing(client: Client, accounts: Accounts) -> None:
    before = accounts._database.total_changes
    for method in ("GET", "HEAD", "GET"):
        assert (await client.request(method, "/demo/authorize", params=ASKED)).status == 200
    assert accounts._database.total_changes == before


async def test_what_was_asked_is_drawn_escaped(client: Client) -> None:
    html = await (await client.get("/demo/authorize", params={**ASKED, "state": '"><script>x'})).text()
    assert "<script" not in html
    assert (await form_of(client, state='"><script>x'))["state"] == '"><script>x'


async def test_authorize_leads_back_with_a_code(client: Client) -> None:
    form = {**await form_of(client), "who": "alice@example.test", "decision": "authorize"}
    told = came_back(await decide(client, form, Origin=ORIGIN, Sec_Fetch_Site="same-origin"))
    assert set(told) == {"code", "state", "iss"}
    assert (told["state"], told["iss"]) == ("s-1 &x=y", f"{ORIGIN}/demo")


async def test_refuse_leads_back_without_one(client: Client) -> None:
    told = came_back(await decide(client, {**await form_of(client), "decision": "refuse"}))
    assert told == {"error": "access_denied", "state": "s-1 &x=y", "iss": f"{ORIGIN}/demo"}


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "issues everything"}, "invalid_scope"),
        ({"scope": ""}, "invalid_scope"),
    ],
)
async def test_a_request_that_can_not_be_granted_leads_back_with_the_reason(
    client: Client, changed: dict[str, str], error: str
) -> None:
    answer = await client.get("/demo/authorize", params={**ASKED, **changed}, allow_redirects=False)
    assert came_back(answer)["error"] == error


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "somebody"},
        {"redirect_uri": "https://evil.test/connect/callback/tracker"},
        {"redirect_uri": f"{BACK}/"},
        {"redirect_uri": f"{BACK}?next=https://evil.test"},
        {"redirect_uri": ""},
    ],
)
async def test_nobody_unknown_is_led_anywhere(client: Client, changed: dict[str, str]) -> None:
    sent = {**ASKED, **changed}
    for answer in (
        await client.get("/demo/authorize", params=sent, allow_redirects=False),
        await client.post("/demo/authorize", data=sent, allow_redirects=False),
    ):
        assert answer.status == 400
        assert "Location" not in answer.headers
        assert "evil.test" not in await answer.text()


async def test_a_form_that_another_page_sends_decides_nothing(client: Client, accounts: Accounts) -> None:
    form = {**await form_of(client), "who": "alice@example.test", "decision": "authorize"}
    forged = [
        ({**form, "check": "0" * 64}, {}),
        ({**form, "check": "\udcff"}, {}),
        ({**form, "scope": "issues", "state": "another"}, {}),
        (form, {"Origin": "https://evil.test"}),
        (form, {"Origin": "null"}),
        (form, {"Sec_Fetch_Site": "cross-site"}),
        (form, {"Sec_Fetch_Site": "same-site"}),
    ]
    for sent, headers in forged:
        body = {name: value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, value in sent.items()}
        assert (await decide(client, body, **headers)).status == 403
    client.session.cookie_jar.clear()
    assert (await decide(client, form)).status == 403
    await form_of(client)  # another browser's cookie doesn't fit the first one's form
    assert (await decide(client, form)).status == 403
    assert accounts._database.execute("SELECT count(*) FROM account_grant").fetchone() == (0,)


@pytest.mark.parametrize(
    ("filled", "says"),
    [
        ({"who": "mallory@example.test"}, "Choose who you are"),
        ({}, "Choose who you are"),
        ({"who": "typed", "email": ""}, "Type an email address"),
        ({"who": "typed", "email": "no address"}, "Type an email address"),
        ({"who": "alice@example.test", "email": "me@example.test"}, "somebody from the list is chosen"),
    ],
)
async def test_the_page_says_what_is_wrong_and_keeps_what_was_filled_in(
    client: Client, filled: dict[str, str], says: str
) -> None:
    answer = await decide(client, {**await form_of(client), "decision": "authorize", **filled})
    html = await answer.text()
    assert answer.status == 400
    assert says in html
    assert f'value="{filled.get("email", "")}" placeholder' in html


async def test_only_who_is_known_has_a_verified_address(client: Client) -> None:
    for who, email, verified in (("alice@example.test", "", True), ("typed", "alice@example.test", False)):
        given = await tokens(client, who, email=email)
        async with client.get("/demo/userinfo", headers=bearer(given)) as answer:
            told = await answer.json()
        assert told["email"] == "alice@example.test"
        assert told["email_verified"] is verified
        assert told["sub"]


# What the app calls


async def test_tokens_are_given_for_a_code_and_renewed(client: Client) -> None:
    given = await tokens(client)
    assert set(given) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
    assert (given["token_type"], given["scope"]) == ("Bearer", "issues")
    status, renewed = await token(client, grant_type="refresh_token", refresh_token=given["refresh_token"])
    assert status == 200
    assert renewed["refresh_token"] != given["refresh_token"]


async def test_the_client_proves_itself_in_one_way(client: Client) -> None:
    code = await code_of(client)
    fields = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER, "redirect_uri": BACK}
    secret = {"Authorization": basic(CLIENT_ID, CLIENT_SECRET)}
    wrong = {"Authorization": basic(CLIENT_ID, "guessed")}
    refused: list[tuple[dict[str, str], dict[str, str]]] = [
        (fields, {}),
        ({**fields, "client_id": CLIENT_ID}, {}),
        ({**fields, "client_id": CLIENT_ID, "client_secret": "guessed"}, {}),
        ({**fields, **CLIENT}, secret),
        ({**fields, **CLIENT}, wrong),
        (fields, wrong),
        (fields, {"Authorization": "Basic \xff"}),
    ]
    for path in ("/demo/token", "/demo/revoke"):
        for sent, headers in refused:
            async with client.post(path, data=sent, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]) == (401, "invalid_client")
    async with client.post("/demo/token", data=fields, headers=secret) as answer:
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"code": "nothing"}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_grant"),
        ({"redirect_uri": f"{ORIGIN}/elsewhere"}, "invalid_grant"),
    ],
)
async def test_a_token_request_that_is_wrong_gets_none(client: Client, changed: dict[str, str], error: str) -> None:
    fields = {"grant_type": "authorization_code", "code": await code_of(client), "code_verifier": VERIFIER, "redirect_uri": BACK}
    status, told = await token(client, **{**fields, **changed})
    assert (status, told["error"]) == (400, error)


async def test_a_field_that_comes_twice_counts_as_none(client: Client) -> None:
    body = f"grant_type=refresh_token&client_id={CLIENT_ID}&client_secret={CLIENT_SECRET}&client_secret={CLIENT_SECRET}"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await client.post("/demo/token", data=body, headers=headers)).status == 401


async def test_a_revoked_token_is_taken_nowhere(client: Client) -> None:
    given = await tokens(client)
    assert (await client.post("/demo/revoke", data={**CLIENT, "token": given["refresh_token"]})).status == 200
    assert (await client.post("/demo/revoke", data={**CLIENT, "token": "unknown"})).status == 200
    for path in ("/demo/userinfo", "/demo/api/issues"):
        async with client.get(path, headers=bearer(given)) as answer:
            assert answer.status == 401
            assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


async def test_issues_are_opened_by_who_signed_in_once_per_key(client: Client) -> None:
    given = await tokens(client)
    headers = {**bearer(given), "Idempotency-Key": "ses_1:0.1.0"}
    numbers = []
    for _ in range(2):
        async with client.post("/demo/api/issues", json={"title": " Broken link "}, headers=headers) as answer:
            assert answer.status == 201
            numbers.append((await answer.json())["number"])
    assert numbers == [1, 1]
    assert (await client.post("/demo/api/issues", json={"title": "Other"}, headers=headers)).status == 409
    async with client.get("/demo/api/issues", headers=headers) as answer:
        assert await answer.json() == [
            {"number": 1, "title": "Broken link", "author": "Alice", "author_email": "alice@example.test"}
        ]


async def test_the_api_wants_its_scope_and_a_title(client: Client, accounts: Accounts) -> None:
    code = await accounts.grant(PEOPLE[0], scope="other", redirect_uri=BACK, challenge=challenge_of(VERIFIER))
    issued = await accounts.exchange(code, verifier=VERIFIER, redirect_uri=BACK)
    async with client.get("/demo/api/issues", headers={"Authorization": f"Bearer {issued.access_token}"}) as answer:
        assert answer.status == 403
        assert 'scope="issues"' in answer.headers["WWW-Authenticate"]
    given = await tokens(client)
    for body in (
        b"",
        b"[]",
        b"{}",
        b'{"title": ""}',
        b'{"title": 3}',
        b'{"title": "a\\u0000"}',
        b'{"title": "%s"}' % (b"x" * 201),
    ):
        assert (await client.post("/demo/api/issues", data=body, headers=bearer(given))).status == 422
    assert await accounts.issues() == []


@pytest.mark.parametrize("path", ["/demo/authorize", "/demo/token", "/demo/revoke"])
async def test_what_is_no_form_or_too_large_is_refused(client: Client, path: str) -> None:
    assert (await client.post(path, json={})).status == 415
    assert (await client.post(path, data={"state": "x" * BODY_LIMIT})).status == 413
