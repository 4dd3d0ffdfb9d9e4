"""Answers of a token endpoint: what is a grant, what is a refusal, and that nothing else is kept."""

from __future__ import annotations

from typing import Any

import pytest

from bot.connections.protocol import Pending, Provider, ProviderDown, ProviderNonsense, ProviderRefused, TokenGrant
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC
from tests.bot.connections.protocol.hostile import Hostile
from tests.oidc import SECRET

FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
TEN_YEARS = 10 * 365 * 24 * 3600


@pytest.fixture
def provider(hostile: Hostile, reaching: Outgoing) -> Provider:
    return hostile.static(reaching)


async def exchange(provider: Provider) -> TokenGrant:
    return await provider.exchange("the-code-0815", verifier="v" * 43, redirect_uri=f"{PUBLIC}/connect/callback/tracker")


NONSENSE: list[Any] = [
    {},
    [],
    None,
    0,
    "token",
    b"",
    b"null",
    b"<html><body>Welcome</body></html>",
    b"access_token=a&token_type=bearer",  # a form that doesn't say so
    b"\xff\xfe",
    b"{" * 100_000,
    b'{"access_token": "a", "expires_in": NaN}',
    b'{"access_token": "a", "expires_in": Infinity}',
    {"access_token": ""},
    {"access_token": None},
    {"access_token": 1},
    {"access_token": True},
    {"access_token": ["a"]},
    {"access_token": {"token": "a"}},
    {"data": {"access_token": "a"}},
    {"ok": True, "authed_user": {"access_token": "a"}},
    {"access_token": "a b"},
    {"access_token": "a\r\nX-Evil: 1"},
    {"access_token": "ä"},
    {"access_token": "a" * 20_000},
    {"access_token": "a", "token_type": "DPoP"},
    {"access_token": "a", "token_type": "mac"},
    {"access_token": "a", "token_type": 5},
    {"access_token": "a", "refresh_token": {}},
    {"access_token": "a", "refresh_token": 7},
    {"access_token": "a", "refresh_token": "x\ny"},
    {"access_token": "a", "expires_in": -1},
    {"access_token": "a", "expires_in": "-1"},
    {"access_token": "a", "expires_in": "soon"},
    {"access_token": "a", "expires_in": True},
    {"access_token": "a", "expires_in": [3600]},
    {"access_token": "a", "scope": 5},
    {"access_token": "a", "scope": {"repo": True}},
    {"access_token": "a", "scope": [1]},
    {"access_token": "a", "scope": "re\x00po"},
    {"error": {"code": 401, "message": "no"}},
    {"error": ["no"], "access_token": "a"},
    {"error": 1, "access_token": "a"},
    (200, b"access_token=a&access_token=b", FORM),
    (200, b"", FORM),
    (200, b"access_token", FORM),
    (200, b"\xff=a", FORM),
    (200, b"&".join(b"a%d=1" % number for number in range(100)), FORM),
    (302, {"access_token": "a"}, {"Location": "/elsewhere"}),
    (301, b"", {"Location": "/elsewhere"}),
    (304, b"", {}),
    (400, {}, {}),
    (400, b"<html>Bad Request", {"Content-Type": "text/html"}),
    (400, {"access_token": "a"}, {}),
    (401, {"error": {"message": "no"}}, {}),
    (404, b"not found", {"Content-Type": "text/plain"}),
    (200, b"x" * (1 << 19), {}),
]


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda one: repr(one)[:60])
async def test_nonsense_is_never_a_token(hostile: Hostile, provider: Provider, answer: Any) -> None:
    hostile.answers["/token"] = answer
    with pytest.raises(ProviderNonsense) as failed:
        await exchange(provider)
    assert failed.value.__context__ is None or failed.value.__suppress_context__
    assert hostile.paths() == ["/token"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((400, {"error": "invalid_grant"}, {}), "invalid_grant"),
        ((401, {"error": "invalid_client"}, {}), "invalid_client"),
        ((400, {"error": "invalid_target", "error_description": 5}, {}), "invalid_target"),
        ({"error": "bad_verification_code", "error_description": "The code passed is incorrect or expired."}, "invalid_grant"),
        ((200, b"error=bad_verification_code&error_description=The+code", FORM), "invalid_grant"),
        ({"error": "incorrect_client_credentials"}, "invalid_client"),
        ({"error": "bad_refresh_token"}, "invalid_grant"),
        ({"ok": False, "error": "invalid_code"}, "invalid_grant"),
        ({"ok": False}, "unknown_error"),
        ({"error": "access_denied", "access_token": "a"}, "access_denied"),
        ({"error": "Gho_16C7e42F292c6912E7710c838347Ae178B4a"}, "unknown_error"),
        ({"error": "x" * 500}, "unknown_error"),
        ({"error": "the-code-0815"}, "unknown_error"),
    ],
)
async def test_a_refusal_is_one_whatever_its_status(hostile: Hostile, provider: Provider, answer: Any, error: str) -> None:
    hostile.answers["/token"] = answer
    with pytest.raises(ProviderRefused) as refused:
        await exchange(provider)
    assert refused.value.error == error


@pytest.mark.parametrize(
    ("description", "told"),
    [
        ("The code has expired.", "The code has expired."),
        ("two\nlines\x1b[31m and \u202e more", "two lines [31m and more"),
        ("x" * 1_000, "x" * 200),
        ("no such code: the-code-0815", ""),
        (f"wrong secret {SECRET}", ""),
        ("Bearer abcdefghijkl was refused", "Bearer *** was refused"),
        ({"text": "no"}, ""),
    ],
)
async def test_a_providers_words_are_made_harmless(hostile: Hostile, provider: Provider, description: Any, told: str) -> None:
    hostile.answers["/token"] = (400, {"error": "invalid_grant", "error_description": description}, {})
    with pytest.raises(ProviderRefused) as refused:
        await exchange(provider)
    assert refused.value.description == told
    assert str(refused.value) == "the provider refused: invalid_grant"


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ((500, b"", {}), True),
        ((502, b"<html>", {}), True),
        ((503, {"error": "x"}, {}), True),
        ((429, b"", {}), False),
        ((400, {"error": "temporarily_unavailable"}, {}), True),
        ({"error": "server_error"}, True),
    ],
)
async def test_a_provider_that_is_down_is_asked_again_later(
    hostile: Hostile, provider: Provider, answer: Any, sent: bool
) -> None:
    hostile.answers["/token"] = answer
    with pytest.raises(ProviderDown) as down:
        await exchange(provider)
    assert down.value.sent is sent
    assert down.value.retryable


@pytest.mark.parametrize(
    ("answer", "grant"),
    [
        ({"access_token": "a"}, TokenGrant("a")),
        ({"access_token": "a", "token_type": "BEARER", "expires_in": None}, TokenGrant("a")),
        ({"access_token": "a", "expires_in": 3600, "refresh_token": ""}, TokenGrant("a", expires_in=3600)),
        ({"access_token": "a", "expires_in": "3600"}, TokenGrant("a", expires_in=3600)),
        ({"access_token": "a", "expires_in": 3599.7}, TokenGrant("a", expires_in=3599)),
        ({"access_token": "a", "expires_in": 0}, TokenGrant("a")),
        ({"access_token": "a", "expires_in": 10**17}, TokenGrant("a", expires_in=TEN_YEARS)),
        ({"access_token": "a", "expires_in": 1e300}, TokenGrant("a", expires_in=TEN_YEARS)),
        ({"access_token": "a", "scope": "repo user repo"}, TokenGrant("a", scopes=("repo", "user"))),
        ({"access_token": "a", "scope": "repo,user"}, TokenGrant("a", scopes=("repo", "user"))),
        ({"access_token": "a", "scope": ["repo", "user"]}, TokenGrant("a", scopes=("repo", "user"))),
        ({"access_token": "a", "scope": ""}, TokenGrant("a", scopes=())),
        ((201, {"access_token": "a"}, {"Content-Type": "text/html"}), TokenGrant("a")),
        ((200, b"access_token=a&scope=repo%2Cuser&token_type=bearer", FORM), TokenGrant("a", scopes=("repo", "user"))),
        ({"access_token": "a", "id_token": "not looked at without an issuer"}, TokenGrant("a")),
        (
            {"ok": True, "access_token": "a", "token_type": "user", "team": {"id": "T"}},
            TokenGrant("a", extra={"ok": True, "team": {"id": "T"}}),
        ),
    ],
    ids=lambda one: repr(one)[:60],
)
async def test_a_grant_is_read(hostile: Hostile, provider: Provider, answer: Any, grant: TokenGrant) -> None:
    hostile.answers["/token"] = answer
    found = await exchange(provider)
    assert found == grant
    assert type(found.expires_in) in (int, type(None))


async def test_a_refresh_reads_answers_as_strictly(hostile: Hostile, provider: Provider) -> None:
    hostile.answers["/token"] = {}
    with pytest.raises(ProviderNonsense):
        await provider.refresh("r")
    hostile.answers["/token"] = {"access_token": "b", "id_token": "x.y.z"}
    assert await provider.refresh("r", scopes=("repo",)) == TokenGrant("b")
    form = hostile.asked[-1][2]
    assert form == {"grant_type": "refresh_token", "refresh_token": "r", "scope": "repo"}


@pytest.mark.parametrize(
    ("auth", "secret", "places"),
    [
        (None, "s:+ %ä", {"header"}),
        ("client_secret_basic", "secret", {"header"}),
        ("client_secret_post", "secret", {"form"}),
        (None, None, set()),
    ],
)
async def test_the_secret_travels_one_way(
    hostile: Hostile, reaching: Outgoing, auth: str | None, secret: str | None, places: set[str]
) -> None:
    hostile.answers["/token"] = {"access_token": "a"}
    await exchange(hostile.static(reaching, client_secret=secret, client_auth=auth))
    _, _, form, headers = hostile.asked[-1]
    assert ("client_secret" in form) is ("form" in places)
    assert ("Authorization" in headers) is ("header" in places)
    assert ("client_id" in form) is ("header" not in places)
    assert form["code_verifier"] == "v" * 43


async def test_credentials_are_encoded_before_basic(hostile: Hostile, reaching: Outgoing) -> None:
    import base64

    hostile.answers["/token"] = {"access_token": "a"}
    await exchange(hostile.static(reaching, client_secret="a:b +%"))
    pair = base64.b64decode(hostile.asked[-1][3]["Authorization"].removeprefix("Basic "))
    assert pair == b"app:a%3Ab+%2B%25"  # RFC 6749 2.3.1


# Devices, client credentials, revocation, accounts


DEVICE = {"device_code": "d", "user_code": "WDJB-MJHT", "expires_in": 900, "interval": 5}


@pytest.mark.parametrize(
    "changed",
    [
        {"device_code": None},
        {"device_code": 5},
        {"user_code": ""},
        {"user_code": "x" * 65},
        {"user_code": "a\u202eb"},
        {"verification_uri": None},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://provider.example/device"},
        {"verification_uri": "https://user@provider.example/device"},
        {"verification_uri": "/device"},
        {"expires_in": None},
        {"expires_in": -1},
        {"interval": "often"},
        {"interval": -5},
    ],
    ids=repr,
)
async def test_a_device_flow_that_cannot_be_shown_does_not_begin(hostile: Hostile, provider: Provider, changed: Any) -> None:
    hostile.answers["/device"] = {**DEVICE, "verification_uri": f"{hostile.origin}/device", **changed}
    with pytest.raises(ProviderNonsense):
        await provider.start_device(("repo",))


async def test_a_device_flow_is_read(hostile: Hostile, provider: Provider) -> None:
    page = f"{hostile.origin}/device"
    hostile.answers["/device"] = {**DEVICE, "verification_url": page, "verification_uri_complete": "https://evil.example/?c=1"}
    start = await provider.start_device(("repo", "user"))
    assert (start.uri, start.uri_complete, start.interval, start.expires_in) == (page, None, 5, 900)
    assert "WDJB" not in repr(start)
    assert hostile.asked[-1][2] == {"scope": "repo user"}
    hostile.answers["/device"] = {
        **DEVICE,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?user_code=1",
        "interval": 10**9,
        "expires_in": 10**9,
    }
    start = await provider.start_device(())
    assert (start.uri_complete, start.interval, start.expires_in) == (f"{page}?user_code=1", 300, 24 * 3600)


@pytest.mark.parametrize("status", [200, 400])
async def test_polling_a_device_flow(hostile: Hostile, provider: Provider, status: int) -> None:
    for error, found in (("authorization_pending", Pending()), ("slow_down", Pending(slow_down=True))):
        hostile.answers["/token"] = (status, {"error": error, "interval": 10}, {})
        assert await provider.poll_device("d") == found
    for error, word in (
        ("expired_token", "expired_token"),
        ("access_denied", "access_denied"),
        ("authorization_declined", "access_denied"),
    ):
        hostile.answers["/token"] = (status, {"error": error}, {})
        with pytest.raises(ProviderRefused) as refused:
            await provider.poll_device("d")
        assert refused.value.error == word
    hostile.answers["/token"] = {"access_token": "a"}
    assert await provider.poll_device("d") == TokenGrant("a")


@pytest.mark.parametrize(
    "answer", [(200, b"", {}), (204, b"", {}), {}, b"OK", {"ok": True, "revoked": True}, {"error": "token_revoked"}]
)
async def test_a_revocation_is_believed(hostile: Hostile, provider: Provider, answer: Any) -> None:
    hostile.answers["/revoke"] = answer
    assert await provider.revoke("a", "access_token")
    assert hostile.asked[-1][2] == {"token": "a", "token_type_hint": "access_token"}


async def test_a_revocation_that_failed_is_said_to_have(hostile: Hostile, provider: Provider, reaching: Outgoing) -> None:
    for answer, error in (
        ((400, {"error": "unsupported_token_type"}, {}), ProviderRefused),
        ((404, b"", {}), ProviderNonsense),
        ((503, b"", {}), ProviderDown),
    ):
        hostile.answers["/revoke"] = answer
        with pytest.raises(error):
            await provider.revoke("a")
    assert await hostile.static(reaching, revoke_url=None).revoke("a") is False


@pytest.mark.parametrize(
    ("status", "ended"),
    [(204, True), (200, True), (404, True), (422, True), (401, ProviderRefused), (403, ProviderNonsense), (503, ProviderDown)],
)
async def test_githubs_way_of_ending_a_token(hostile: Hostile, reaching: Outgoing, status: int, ended: Any) -> None:
    github = hostile.static(reaching, revoke_url=f"{hostile.origin}/applications/{{client_id}}/token")
    assert github.connection.problems() == ()
    hostile.answers["/applications/app/token"] = (status, b"", {})
    if ended is True:
        assert await github.revoke("a", "access_token")
    else:
        with pytest.raises(ended):
            await github.revoke("a", "access_token")
    method, path, form, headers = hostile.asked[-1]
    assert (method, path) == ("DELETE", "/applications/app/token")
    assert list(form) == []
    assert headers["Authorization"].startswith("Basic ")
    assert headers["Content-Type"] == "application/json"
    hostile.asked.clear()
    assert await github.revoke("r", "refresh_token") is False
    assert hostile.asked == []
