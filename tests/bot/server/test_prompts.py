"""Requests and the audit over HTTP: scopes, queries and bodies, each read strictly."""

from __future__ import annotations

from typing import Any

import pytest

from bot.settings import ApiToken
from tests.bot.server.conftest import Serve, Served
from tests.bot.server.test_auth import bearer

TOKENS = (
    ApiToken.of("alice", "plain"),
    ApiToken.of("ops", "reader", scopes=frozenset({"prompts:read"})),
    ApiToken.of("ops", "decider", scopes=frozenset({"prompts:override"})),
    ApiToken.of("ops", "auditor", scopes=frozenset({"audit:read"})),
)
OVERRIDE = {"option_id": "approve", "reason": "Everybody is away."}


@pytest.fixture
async def guarded(serve: Serve) -> Served:
    return await serve(tokens=TOKENS)


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v1/prompts", None, {"plain", "reader"}),
        ("POST", "/v1/prompts/prm_1/override", OVERRIDE, {"decider"}),
        ("POST", "/v1/prompts/prm_1/connect", None, {"plain"}),
        ("GET", "/v1/audit", None, {"auditor"}),
    ],
)
async def test_each_call_has_its_scope(guarded: Served, method: str, path: str, body: Any, allowed: set[str]) -> None:
    for token in ("plain", "reader", "decider", "auditor"):
        status, said = await guarded.call(method, path, json=body, headers=bearer(token))
        assert (status in {200, 202}) is (token in allowed), said
        assert token in allowed or said["error"]["code"] == "missing_scope"
    assert (await guarded.refused(method, path, json=body))[:2] == (401, "unauthorized")


async def test_without_tokens_there_are_sessions_and_no_rights_over_others(served: Served) -> None:
    assert (await served.call("GET", "/v1/prompts"))[0] == 200
    assert served.app.prompts.asked[-1]["everyone"] is False
    assert (await served.refused("GET", "/v1/audit"))[:2] == (403, "missing_scope")
    assert (await served.refused("POST", "/v1/prompts/prm_1/override", json=OVERRIDE))[:2] == (403, "missing_scope")


async def test_a_list_is_narrowed_and_paged(guarded: Served) -> None:
    path = "/v1/prompts?session_id=ses_1&mine=true&after=prm_1&limit=7"
    assert (await guarded.call("GET", path, headers=bearer("reader")))[0] == 200
    assert guarded.app.prompts.asked == [
        {"caller": "api:ops", "everyone": True, "session_id": "ses_1", "mine": True, "after": "prm_1", "limit": 7}
    ]
    for wrong in ("mine=yes", "limit=0", "limit=501", "limit=x", "session_id=..", "after=%00", "other=1", "mine=true&mine=true"):
        refused = await guarded.refused("GET", f"/v1/prompts?{wrong}", headers=bearer("reader"))
        assert refused[:2] == (400, "invalid_query"), wrong


async def test_the_audit_is_paged_by_number(guarded: Served) -> None:
    path = "/v1/audit?session_id=ses_1&request_id=prm_1&after=500&limit=500"
    assert (await guarded.call("GET", path, headers=bearer("auditor")))[0] == 200
    assert guarded.app.prompts.asked == [{"session_id": "ses_1", "request_id": "prm_1", "after": 500, "limit": 500}]
    for wrong in ("after=-1", "after=x", "limit=0"):
        assert (await guarded.refused("GET", f"/v1/audit?{wrong}", headers=bearer("auditor")))[:2] == (400, "invalid_query")


@pytest.mark.parametrize(
    "body",
    [
        {"option_id": "approve"},
        {"option_id": "approve", "reason": " "},
        {"option_id": "approve", "reason": "x" * 501},
        {"option_id": "", "reason": "why"},
        {"option_id": "approve", "reason": "why", "edits": {"amount": 1}},
        {"option_id": "approve", "reason": 5},
    ],
)
async def test_an_override_needs_an_option_and_a_reason_and_nothing_else(guarded: Served, body: Any) -> None:
    refused = await guarded.refused("POST", "/v1/prompts/prm_1/override", json=body, headers=bearer("decider"))
    assert refused[:2] == (400, "invalid_body")
    assert guarded.app.prompts.asked == []


async def test_an_override_is_given_on_with_its_reason_and_key(guarded: Served) -> None:
    headers = {**bearer("decider"), "Idempotency-Key": "k"}
    body = {**OVERRIDE, "note": "Go on."}
    status, said = await guarded.call("POST", "/v1/prompts/prm_1/override", json=body, headers=headers)
    assert (status, said) == (202, {"request_id": "prm_1", "submission_id": "sub_1", "status": "settled"})
    (given,) = guarded.app.prompts.asked
    assert (given["reason"], given["option_id"], given["note"], given["key"]) == ("Everybody is away.", "approve", "Go on.", "k")
    assert (await guarded.refused("POST", "/v1/prompts/prm_2/override", json=body, headers=headers))[:2] == (404, "not_found")


async def test_a_link_to_connect_is_for_one_caller_and_kept_by_no_cache(guarded: Served) -> None:
    path = "/v1/prompts/prm_1/connect"
    headers = {**bearer("plain"), "Idempotency-Key": "k"}
    async with guarded.client.post(path, headers=headers) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
        assert (await answer.json())["url"] == "https://bot.example/connect/a.b"
    assert guarded.app.prompts.asked == [{"caller": "api:alice", "request_id": "prm_1", "key": "k"}]
    assert (await guarded.call("POST", path, json={}, headers=bearer("plain")))[0] == 200
    assert (await guarded.refused("POST", "/v1/prompts/prm_2/connect", headers=bearer("plain")))[:2] == (404, "not_found")
    for wrong in (b'{"for": "bob"}', b"[]", b"null"):
        typed = {**bearer("plain"), "Content-Type": "application/json"}
        assert (await guarded.refused("POST", path, data=wrong, headers=typed))[:2] == (400, "invalid_body"), wrong
    assert (await guarded.refused("POST", f"{path}?for=bob", headers=bearer("plain")))[:2] == (400, "invalid_query")
    assert (await guarded.call("GET", path, headers=bearer("plain")))[0] == 405


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"note": "why"}, "invalid_body"),
        ({"option_id": "deny", "text": "no", "note": "why"}, "invalid_body"),
        ({"option_id": "approve", "edits": {}}, "invalid_body"),
        ({"option_id": "approve", "edits": [1]}, "invalid_body"),
        ({"option_id": "approve", "edits": {str(n): n for n in range(21)}}, "invalid_body"),
        ({"option_id": "approve", "edits": {"a": "x" * 20_000}}, "too_large"),
        ({"option_id": "deny", "note": "x" * 20_000}, "too_large"),
    ],
)
async def test_an_answer_is_read_strictly(served: Served, response: dict[str, Any], code: str) -> None:
    session_id = served.sessions.add("api:local", prompts={"prm_a": None})
    body = {"responses": [{"request_id": "prm_a", **response}]}
    assert (await served.refused("POST", f"/v1/sessions/{session_id}/responses", json=body))[1] == code
    assert served.sessions.sessions[session_id].prompts == {"prm_a": None}
