"""Who may call: tokens, and the caller of a server without any."""

from __future__ import annotations

from typing import Any

import pytest

from bot.settings import ApiToken
from tests.bot.server.conftest import Serve, Served

ALICE = ApiToken.of("alice", "alice-token")
BOB = ApiToken.of("bob", "bob-token")
NOTHING = ApiToken.of("viewer", "viewer-token", scopes=frozenset())
CALLS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/sessions", {}),
    ("GET", "/v1/sessions/{session}", None),
    ("POST", "/v1/sessions/{session}/messages", {"message": "hi"}),
    ("POST", "/v1/sessions/{session}/responses", {"responses": [{"request_id": "prm_a", "option_id": "approve"}]}),
    ("POST", "/v1/sessions/{session}/cancel", {}),
    ("POST", "/v1/sessions/{session}/reset", {}),
    ("GET", "/v1/sessions/{session}/events?follow=false", None),
    ("GET", "/v1/submissions/{submission}", None),
]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def guarded(serve: Serve) -> Served:
    return await serve(tokens=(ALICE, BOB, NOTHING))


async def paths(served: Served) -> dict[str, str]:
    session_id = served.sessions.add("api:alice", prompts={"prm_a": None}, active_turn="turn_0")
    _, body = await served.call(
        "POST", f"/v1/sessions/{session_id}/messages", json={"message": "hi"}, headers=bearer("alice-token")
    )
    return {"session": session_id, "submission": body["submission_id"]}


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_the_owner_may_use_every_call(guarded: Served, method: str, path: str, body: Any) -> None:
    known = await paths(guarded)
    async with guarded.client.request(method, path.format(**known), json=body, headers=bearer("alice-token")) as answer:
        assert answer.status in {200, 202}, await answer.text()


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer("alice-toke"),
        bearer("alice-token2"),
        bearer(""),
        bearer("älice"),
        {"Authorization": "alice-token"},
        {"Authorization": "Basic YWxpY2U6dG9rZW4="},
    ],
)
async def test_no_call_goes_without_a_known_token(
    guarded: Served, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    known = await paths(guarded)
    taken = list(guarded.sessions.seen)
    async with guarded.client.request(method, path.format(**known), json=body, headers=headers) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await answer.json())["error"]["code"] == "unauthorized"
    assert guarded.sessions.seen == taken


async def test_two_tokens_in_one_request_are_none(guarded: Served) -> None:
    headers = [("Authorization", "Bearer alice-token"), ("Authorization", "Bearer bob-token")]
    assert (await guarded.refused("POST", "/v1/sessions", json={}, headers=headers))[0] == 401


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_a_token_without_the_scope_may_do_nothing(guarded: Served, method: str, path: str, body: Any) -> None:
    known = await paths(guarded)
    refused = await guarded.refused(method, path.format(**known), json=body, headers=bearer("viewer-token"))
    assert refused[:2] == (403, "missing_scope")
    assert "`sessions`" in refused[2]


@pytest.mark.parametrize(("method", "path", "body"), CALLS[1:])
async def test_a_foreign_session_looks_like_an_unknown_one(guarded: Served, method: str, path: str, body: Any) -> None:
    known = await paths(guarded)
    unknown = {"session": "ses_unknown", "submission": "sub_unknown"}
    foreign = await guarded.refused(method, path.format(**known), json=body, headers=bearer("bob-token"))
    assert foreign[:2] == (404, "not_found")
    assert foreign == await guarded.refused(method, path.format(**unknown), json=body, headers=bearer("bob-token"))


async def test_one_key_of_two_callers_is_two_keys(guarded: Served) -> None:
    sessions = set()
    for token in ("alice-token", "bob-token"):
        headers = bearer(token) | {"Idempotency-Key": "k"}
        sessions.add((await guarded.call("POST", "/v1/sessions", json={}, headers=headers))[1]["session_id"])
    assert len(sessions) == 2


async def test_the_token_is_not_in_the_log(guarded: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    guarded.sessions.fault = ZeroDivisionError()
    await guarded.refused("POST", "/v1/sessions", json={}, headers=bearer("alice-token"))
    await guarded.refused("POST", "/v1/sessions", json={}, headers=bearer("wrong-token"))
    assert "alice-token" not in caplog.text
    assert "wrong-token" not in caplog.text


async def test_without_tokens_a_program_of_this_machine_is_local(served: Served) -> None:
    status, body = await served.call("POST", "/v1/sessions", json={})
    assert status == 202
    assert served.sessions.sessions[body["session_id"]].owner == "api:local"


async def test_without_tokens_a_page_of_this_server_is_local(served: Served) -> None:
    for host in ("127.0.0.1", "localhost"):
        site = f"{host}:{served.port}"
        headers = {"Host": site, "Origin": f"http://{site}", "Sec-Fetch-Site": "same-origin"}
        assert (await served.call("POST", "/v1/sessions", json={}, headers=headers))[0] == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "127.0.0.1.attacker.example"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"X-Real-IP": "203.0.113.9"},
        {"Via": "1.1 proxy"},
    ],
)
@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_without_tokens_nobody_else_is(served: Served, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
    refused = await served.refused(method, path.format(session="ses_x", submission="sub_x"), json=body, headers=headers)
    assert refused[:2] == (403, "forbidden")
    assert "MOORINGS_API_TOKENS" in refused[2]
    assert served.sessions.sessions == {}
