"""What each ready-made connection sends, as its provider's documents want it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from yarl import URL

from bot import oauth
from bot.connections.connection import OAuthConnection
from bot.connections.protocol import AccountSource, Provider, TokenGrant
from bot.connections.protocol.people import read_account
from bot.environment import env
from bot.outgoing import Fetched
from tests.bot.connections.keeping import PUBLIC

APP: dict[str, Any] = {"client_id": "app", "client_secret": "secret"}
GOOGLE = """{"issuer": "https://accounts.google.com",
"authorization_endpoint": "https://accounts.google.com/o/oauth2/v2/auth", "token_endpoint": "https://oauth2.googleapis.com/token",
"userinfo_endpoint": "https://openidconnect.googleapis.com/v1/userinfo", "jwks_uri": "https://www.googleapis.com/oauth2/v3/certs",
"revocation_endpoint": "https://oauth2.googleapis.com/revoke", "response_types_supported": ["code"],
"device_authorization_endpoint": "https://oauth2.googleapis.com/device/code", "code_challenge_methods_supported": ["S256"],
"token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"]}"""


class Recorded:
    """In place of the network: keeps what was asked, answers as told."""

    def __init__(self, **answers: str) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.answers = answers

    def check(self, url: str, *, named_by: str | None = None) -> str:
        return str(URL(url).origin())

    async def fetch(self, method: str, url: str, *, headers: Any = None, body: bytes | None = None, **_: Any) -> Fetched:
        self.asked.append((method, url, dict(headers or {}), (body or b"").decode()))
        found = next((text for part, text in self.answers.items() if part in url), "")
        return Fetched(200, {"Content-Type": "application/json"}, found.encode())


async def sent(connection: OAuthConnection, *scopes: str) -> tuple[URL, Recorded, Provider]:
    network = Recorded(openid=GOOGLE, oauth2='{"access_token": "t", "token_type": "bearer"}', token='{"access_token": "t"}')
    network.answers["access"] = '{"ok": true, "access_token": "t", "token_type": "user"}'
    assert connection.problems() == ()
    provider = Provider(connection, cast("Any", network), public_url=PUBLIC)
    url = await provider.authorize_url(
        state="s" * 43,
        verifier="v" * 43,
        redirect_uri=provider.redirect_uri,
        scopes=scopes or tuple(connection.scopes),
    )
    return URL(url), network, provider


@pytest.mark.parametrize(
    ("connection", "place", "wanted"),
    [
        (
            oauth.github(**APP, scopes=("repo", "read:user")),
            "https://github.com/login/oauth/authorize",
            {"scope": "repo read:user"},
        ),
        (
            oauth.github(**APP, host="git.example.com"),
            "https://git.example.com/login/oauth/authorize",
            {"scope": None},
        ),
        (
            oauth.google(**APP, scopes="https://www.googleapis.com/auth/gmail.readonly"),
            "https://accounts.google.com/o/oauth2/v2/auth",
            {
                "scope": "openid email profile https://www.googleapis.com/auth/gmail.readonly",
                "access_type": "offline",
                "prompt": "consent",
                "include_granted_scopes": "true",
            },
        ),
        (
            oauth.microsoft(**APP, scopes=("Mail.Read",), tenant="contoso.com"),
            "https://login.microsoftonline.com/contoso.com/oauth2/v2.0/authorize",
            {"scope": "openid profile email offline_access Mail.Read", "prompt": "select_account", "response_mode": "query"},
        ),
        (
            oauth.slack_user(**APP, scopes=("chat:write", "search:read")),
            "https://slack.com/oauth/v2_user/authorize",
            {"scope": "chat:write,search:read", "user_scope": None},
        ),
        (
            oauth.linear(**APP, scopes=("read", "issues:create")),
            "https://linear.app/oauth/authorize",
            {"scope": "read,issues:create", "prompt": "consent", "actor": "user"},
        ),
        (oauth.linear(**APP, owner="app"), "https://linear.app/oauth/authorize", {"scope": "read", "actor": "app"}),
        (oauth.notion(**APP), "https://api.notion.com/v1/oauth/authorize", {"owner": "user", "scope": None}),
        (
            oauth.atlassian(**APP, scopes=("read:jira-work", "write:jira-work")),
            "https://auth.atlassian.com/authorize",
            {
                "audience": "api.atlassian.com",
                "prompt": "consent",
                "scope": "read:me offline_access read:jira-work write:jira-work",
            },
        ),
    ],
    ids=lambda value: f"{value.name}" if isinstance(value, OAuthConnection) else "",
)
async def test_where_a_person_is_sent(connection: OAuthConnection, place: str, wanted: dict[str, str | None]) -> None:
    url, _, _ = await sent(connection)
    assert str(url.with_query(None)) == place
    assert {name: url.query.get(name) for name in wanted} == wanted
    assert url.query["response_type"] == "code"
    assert url.query["client_id"] == "app"
    assert url.query["redirect_uri"] == f"{PUBLIC}/connect/callback/{connection.name}"
    assert (url.query["code_challenge_method"], len(url.query["code_challenge"])) == ("S256", 43)


@pytest.mark.parametrize(
    ("connection", "place", "basic"),
    [
        (oauth.github(**APP), "https://github.com/login/oauth/access_token", False),
        (oauth.google(**APP), "https://oauth2.googleapis.com/token", False),
        (oauth.microsoft(**APP), "https://login.microsoftonline.com/organizations/oauth2/v2.0/token", False),
        (oauth.slack_user(**APP), "https://slack.com/api/oauth.v2.user.access", False),
        (oauth.linear(**APP), "https://api.linear.app/oauth/token", False),
        (oauth.notion(**APP), "https://api.notion.com/v1/oauth/token", True),
        (oauth.atlassian(**APP), "https://auth.atlassian.com/oauth/token", False),
    ],
    ids=lambda value: f"{value.name}" if isinstance(value, OAuthConnection) else "",
)
async def test_how_a_token_is_renewed(connection: OAuthConnection, place: str, *, basic: bool) -> None:
    _, network, provider = await sent(connection)
    grant = await provider.refresh("r1")
    assert (grant.access_token, grant.refresh_token) == ("t", None)
    method, url, headers, body = network.asked[-1]
    form = URL(f"?{body}").query
    assert (method, url, form["grant_type"], form["refresh_token"]) == ("POST", place, "refresh_token", "r1")
    assert {name.lower(): value for name, value in headers.items()}["accept"] == "application/json"
    assert ("client_secret" in form) is not basic
    assert any(value.startswith("Basic ") for value in headers.values()) is basic


NOTION = """{"object": "user", "id": "bot", "name": "app", "type": "bot", "bot": {"owner": {"type": "user",
"user": {"id": "u", "name": "Alice", "person": {"email": "a@b.example"}}}}}"""
ANSWERS: list[tuple[OAuthConnection, str, str, tuple[str, str, str | None, bool]]] = [
    (
        oauth.github(**APP),
        "https://api.github.com/user",
        '{"id": 7, "login": "alice", "email": null}',
        ("7", "alice", None, False),
    ),
    (
        oauth.microsoft(**APP),
        "https://graph.microsoft.com/oidc/userinfo",
        '{"sub": "s", "name": "Alice", "email": "a@b.example", "email_verified": null}',
        ("s", "Alice", "a@b.example", False),
    ),
    (
        oauth.slack_user(**APP),
        "https://slack.com/api/auth.test",
        '{"ok": true, "user_id": "U1", "user": "alice", "team_id": "T1", "url": "https://x.slack.com/"}',
        ("U1", "alice", None, False),
    ),
    (
        oauth.linear(**APP),
        "https://api.linear.app/graphql",
        '{"data": {"viewer": {"id": "u", "name": "Alice", "email": "a@b.example"}}}',
        ("u", "Alice", "a@b.example", False),
    ),
    (
        oauth.notion(**APP),
        "https://api.notion.com/v1/users/me",
        NOTION,
        ("u", "Alice", "a@b.example", False),
    ),
    (
        oauth.atlassian(**APP),
        "https://api.atlassian.com/me",
        '{"account_id": "a1", "name": "Alice", "email": "a@b.example"}',
        ("a1", "Alice", "a@b.example", False),
    ),
    (
        oauth.google(**APP),
        "https://openidconnect.googleapis.com/v1/userinfo",
        '{"sub": "s", "name": "Alice", "email": "a@b.example", "email_verified": true}',
        ("s", "Alice", "a@b.example", True),
    ),
]


@pytest.mark.parametrize(
    ("connection", "place", "answer", "wanted"), ANSWERS, ids=[connection.name for connection, *_ in ANSWERS]
)
async def test_whose_account_it_is(
    connection: OAuthConnection, place: str, answer: str, wanted: tuple[str, str, str | None, bool]
) -> None:
    _, network, provider = await sent(connection)
    network.answers = {place: answer, "openid-configuration": GOOGLE}
    found = await provider.account(TokenGrant("t"))
    assert found is not None
    assert (found.subject, found.name, found.email, found.email_verified) == wanted
    method, url, headers, body = network.asked[-1]
    assert (url, method) == (place, "POST" if connection.name == "linear" else "GET")
    assert headers["Authorization"] == "Bearer t"
    if connection.name == "linear":
        assert (headers["Content-Type"], "viewer" in body) == ("application/json", True)
    if connection.name == "notion":
        assert headers["notion-version"]
    assert connection.verifies_email is (connection.name == "google")


def test_a_word_that_is_no_mark_verifies_nobody() -> None:
    fields = {"sub": "s", "email": "a@b.example", "": True}
    assert not read_account(fields, AccountSource(email_verified=False)).email_verified


@pytest.mark.parametrize(
    ("connection", "wanted", "granted", "lacking"),
    [
        (oauth.github(**APP), ("read:user", "public_repo"), ("repo", "user"), ()),
        (oauth.github(**APP), ("admin:org",), ("read:org",), ("admin:org",)),
        (oauth.google(**APP), ("openid", "email", "https://x/auth/a"), ("https://x/auth/a",), ()),
        (oauth.microsoft(**APP), ("offline_access", "https://graph.microsoft.com/User.Read"), ("user.read",), ()),
        (oauth.linear(**APP), ("read", "issues:create"), ("write",), ()),
        (oauth.atlassian(**APP), ("read:jira-work", "write:jira-work"), ("read:jira-work",), ("write:jira-work",)),
    ],
)
def test_scopes_in_the_words_of_a_provider(
    connection: OAuthConnection, wanted: tuple[str, ...], granted: tuple[str, ...], lacking: tuple[str, ...]
) -> None:
    assert connection.lacking(wanted, granted) == lacking


def test_public_clients_prove_themselves_by_nothing_but_pkce() -> None:
    for made in (oauth.github, oauth.google, oauth.microsoft, oauth.slack_user, oauth.linear):
        assert made(client_id="app").client_auth == "none"
        assert made(client_id="app").problems() == ()


def test_an_mcp_server_is_a_connection_of_its_address_alone() -> None:
    made = oauth.mcp("https://mcp.tracker.example/v1/mcp?x=1")
    assert (made.name, made.title, made.client_id) == ("mcp-tracker-example", "mcp.tracker.example", "")
    assert made.problems() == ()
    (bound,) = made.bounds(None)
    assert bound.holds("https://mcp.tracker.example/v1/mcp")
    assert not bound.holds("https://mcp.tracker.example/v1/other")
    assert made.identity != oauth.mcp("https://mcp.tracker.example/v2/mcp", name=made.name).identity
    assert oauth.mcp("https://10.0.0.8/mcp", internal=True, name="inner").trusted == ("https://10.0.0.8",)
    assert made.trusted == ()


def test_what_is_not_a_parameter_is_replaced() -> None:
    made = replace(oauth.github(client_id=env("GITHUB_ID"), name="work"), expose_token=True)
    assert (made.name, made.expose_token, made.hosts) == ("work", True, ("api.github.com", "uploads.github.com"))
    assert made.problems() == ("connection 'work': client_id: the environment variable GITHUB_ID is not set",)
