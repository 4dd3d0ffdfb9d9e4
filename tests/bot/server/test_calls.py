"""Each call of the session API, as its table says."""

from __future__ import annotations

import asyncio
import io

import pytest
from aiohttp import web

from bot.turn.state import TurnPolicy
from durable_core.errors import Broken, FileMoved, KeyMissing, KeyWrong, Stranded, TooLarge, Unavailable
from tests.bot.server.conftest import Serve, Served

LOCAL = "api:local"


async def test_a_session_is_made_without_a_message(served: Served) -> None:
    status, body = await served.call("POST", "/v1/sessions", json={})
    assert status == 202
    assert set(body) == {"session_id", "status"}
    assert body["status"] == "accepted"
    assert (await served.call("POST", "/v1/sessions"))[0] == 202  # no body at all


async def test_a_session_is_made_with_its_first_message(served: Served) -> None:
    given = {"message": "hello", "agent": "support", "metadata": {"ticket": 7, "tags": ["a"]}}
    status, body = await served.call("POST", "/v1/sessions", json=given)
    assert status == 202
    assert set(body) == {"session_id", "submission_id", "status"}
    assert served.sessions.seen == [("create", ("hello", "support", {"ticket": 7, "tags": ["a"]}))]


async def test_a_message_is_accepted(served: Served) -> None:
    session_id = served.sessions.add(LOCAL)
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    given = {"message": parts, "turn_policy": "queue"}
    status, body = await served.call("POST", f"/v1/sessions/{session_id}/messages", json=given)
    assert status == 202
    assert body == {"session_id": session_id, "submission_id": body["submission_id"]}
    assert served.sessions.seen == [("message", ("one\ntwo", TurnPolicy.QUEUE))]


async def test_the_same_key_gives_the_first_answer_and_another_payload_a_conflict(served: Served) -> None:
    session_id = served.sessions.add(LOCAL)
    path = f"/v1/sessions/{session_id}/messages"
    headers = {"Idempotency-Key": "order 7"}
    _, first = await served.call("POST", path, json={"message": "a"}, headers=headers)
    status, again = await served.call("POST", path, json={"message": "a"}, headers=headers)
    assert (status, again) == (202, {**first, "deduplicated": True})
    assert (await served.refused("POST", path, json={"message": "b"}, headers=headers))[:2] == (409, "idempotency_conflict")


@pytest.mark.parametrize("key", ["", "k" * 256, "schlüssel", "tab\there"])
@pytest.mark.parametrize("call", ["/v1/sessions", "/messages", "/responses", "/cancel", "/reset"])
async def test_a_key_that_is_not_short_plain_text_is_refused(served: Served, call: str, key: str) -> None:
    path = call if call.startswith("/v1") else f"/v1/sessions/{served.sessions.add(LOCAL)}{call}"
    assert (await served.refused("POST", path, headers={"Idempotency-Key": key}))[:2] == (400, "bad_idempotency_key")


async def test_a_response_settles_its_request_once(served: Served) -> None:
    session_id = served.sessions.add(LOCAL, prompts={"prm_a": None})
    given = {"responses": [{"request_id": "prm_a", "option_id": "approve", "text": "fine"}]}
    status, body = await served.call("POST", f"/v1/sessions/{session_id}/responses", json=given)
    assert status == 202
    assert [(set(result), result["status"]) for result in body["results"]] == [
        ({"request_id", "submission_id", "status"}, "settled")
    ]
    _, body = await served.call("POST", f"/v1/sessions/{session_id}/responses", json=given)
    assert (body["results"][0]["status"], body["results"][0]["reason"]) == ("already_settled", "Settled by Farah.")


async def test_a_response_to_a_request_never_made_says_where_requests_are(served: Served) -> None:
    session_id = served.sessions.add(LOCAL, prompts={"prm_a": None})
    given = {"responses": [{"request_id": "prm_a", "option_id": "approve"}, {"request_id": "prm_b", "option_id": "approve"}]}
    status, code, message = await served.refused("POST", f"/v1/sessions/{session_id}/responses", json=given)
    assert (status, code) == (404, "not_found")
    assert "open_prompts" in message
    assert served.sessions.sessions[session_id].prompts == {"prm_a": None}


async def test_controls_say_whether_there_was_something_to_do(served: Served) -> None:
    session_id = served.sessions.add(LOCAL, active_turn="turn_0")
    one = f"/v1/sessions/{session_id}"
    assert await served.call("POST", f"{one}/cancel", json={"turn_id": "turn_9"}) == (200, {"status": "no_active_turn"})
    assert await served.call("POST", f"{one}/cancel", json={"turn_id": "turn_0"}) == (202, {"status": "accepted"})
    assert await served.call("POST", f"{one}/cancel") == (200, {"status": "no_active_turn"})
    assert await served.call("POST", f"{one}/reset", json={"reason": "start over"}) == (202, {"status": "reset"})
    assert await served.call("POST", f"{one}/reset", json={}) == (200, {"status": "no_active_session"})


async def test_an_ended_session_takes_no_message_and_none_is_started_instead(served: Served) -> None:
    session_id = served.sessions.add(LOCAL, ended=True)
    refused = await served.refused("POST", f"/v1/sessions/{session_id}/messages", json={"message": "hi"})
    assert refused[:2] == (409, "session_ended")
    assert len(served.sessions.sessions) == 1


async def test_a_session_and_a_submission_can_be_read(served: Served) -> None:
    session_id = served.sessions.add(LOCAL)
    status, body = await served.call("GET", f"/v1/sessions/{session_id}")
    assert (status, body) == (200, {"session_id": session_id, "status": "idle", "open_prompts": []})
    _, receipt = await served.call("POST", f"/v1/sessions/{session_id}/messages", json={"message": "hi"})
    for query in ("", "?wait=0", "?wait=0.01"):
        status, body = await served.call("GET", f"/v1/submissions/{receipt['submission_id']}{query}")
        assert status == 200
        assert set(body) == {"submission_id", "session_id", "turn_id", "status", "reply", "error"}


@pytest.mark.parametrize("wait", ["61", "-1", "nan", "inf", "1e1", "", "x", "٣"])
async def test_a_wait_is_a_number_of_seconds_up_to_sixty(served: Served, wait: str) -> None:
    status, code, message = await served.refused("GET", "/v1/submissions/sub_x", params={"wait": wait})
    assert (status, code) == (400, "invalid_query")
    assert "0 to 60" in message


@pytest.mark.parametrize("id_", ["ses_none", "a" * 81, "%00", "ses%2F..", "%ff%fe", "%F0%9F%90%99", "ses_1%0d%0aX:1"])
@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("GET", "", None),
        ("GET", "/events", None),
        ("POST", "/messages", {"message": "hi"}),
        ("POST", "/responses", {"responses": [{"request_id": "prm_a", "option_id": "approve"}]}),
        ("POST", "/cancel", {}),
        ("POST", "/reset", {}),
    ],
)
async def test_an_unknown_session_is_not_found(served: Served, method: str, rest: str, body: object, id_: str) -> None:
    from yarl import URL

    url = URL(f"http://127.0.0.1:{served.port}/v1/sessions/{id_}{rest}", encoded=True)
    assert (await served.refused(method, url, json=body))[:2] == (404, "not_found")  # type: ignore[arg-type]
    assert not served.sessions.sessions


async def test_what_no_route_knows_is_refused_in_the_same_shape(served: Served) -> None:
    assert (await served.refused("GET", "/v2/sessions"))[:2] == (404, "not_found")
    assert (await served.refused("GET", "/"))[:2] == (404, "not_found")
    status, code, message = await served.refused("DELETE", "/v1/sessions")
    assert (status, code) == (405, "method_not_allowed")
    assert "POST" in message
    async with served.client.put("/v1/sessions/x/events") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_a_parameter_that_is_not_known_is_refused_by_name(served: Served) -> None:
    session_id = served.sessions.add(LOCAL)
    for path in ("/events?strat=5", "/events?start=1&start=2", "?verbose=1"):
        status, code, message = await served.refused("GET", f"/v1/sessions/{session_id}{path}")
        assert (status, code) == (400, "invalid_query")
        assert "strat" in message or "start" in message or "verbose" in message


@pytest.mark.parametrize(
    ("fault", "status", "code", "retryable"),
    [
        (Unavailable("postgresql://user:hunter2@db"), 503, "unavailable", True),
        (Stranded("ses_x", 9), 409, "session_stranded", False),
        (TooLarge(20, 10), 413, "too_large", False),
        (KeyMissing("k-hunter2"), 503, "unavailable", True),
        (KeyWrong("k-hunter2", "moor_run/ses_x"), 503, "unavailable", True),
        (Broken("table moor_run, hunter2"), 500, "internal", False),
        (FileMoved("/hunter2/moorings.db"), 503, "unavailable", True),
        (ZeroDivisionError("hunter2"), 500, "internal", False),
    ],
)
async def test_a_fault_is_told_by_an_id_and_nothing_else(
    served: Served, caplog: pytest.LogCaptureFixture, *, fault: Exception, status: int, code: str, retryable: bool
) -> None:
    served.sessions.fault = fault
    async with served.client.post("/v1/sessions", json={}) as answer:
        text = await answer.text()
        error = (await answer.json())["error"]
        assert ("Retry-After" in answer.headers) is retryable
    assert (answer.status, error["code"], error["retryable"]) == (status, code, retryable)
    assert "hunter2" not in text
    assert "Traceback" not in text
    if status >= 500:
        assert error["error_id"] in caplog.text
    if status == 500:
        assert type(fault).__name__ in caplog.text


async def test_health_needs_no_token_and_says_only_ok_or_not(served: Served) -> None:
    assert await served.call("GET", "/healthz") == (200, {"status": "ok"})
    assert await served.call("GET", "/readyz") == (200, {"status": "ok"})
    served.app.taking = False
    assert await served.call("GET", "/readyz") == (503, {"status": "unavailable"})
    assert await served.call("GET", "/healthz") == (200, {"status": "ok"})


async def test_a_webhook_gets_its_bytes_as_they_came(served: Served) -> None:
    headers = {"Content-Type": "application/octet-stream", "X-Twice": "1"}
    async with served.client.post("/channels/echo/events?a=b", data=b"\xff\x00raw", headers=headers) as answer:
        assert (answer.status, await answer.read(), answer.content_type) == (200, b"\xff\x00raw", "text/plain")
    [request] = served.app.requests
    assert (request.method, request.path, request.query) == ("POST", "/channels/echo/events", {"a": "b"})
    assert request.header("x-twice") == "1"


async def test_a_webhook_is_refused_without_a_word_of_why(served: Served) -> None:
    refused = await served.refused("POST", "/channels/echo", data=b"x", headers={"X-Signature": "bad"})
    assert refused[:2] == (401, "invalid_signature")
    assert "secret detail" not in refused[2]
    assert (await served.refused("POST", "/channels/none/events", data=b"x"))[:2] == (404, "not_found")
    assert (await served.refused("POST", "/channels/echo", data=io.BytesIO(b"x" * 1_100_000)))[:2] == (413, "too_large")


async def test_the_access_log_shows_no_query_and_no_line_breaks(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="bot.server.access")
    await served.refused("GET", "/v1/sessions/x%0aFAKE?k=hunter2")
    await served.refused("GET", "/guess/hunter2")
    lines = [record.getMessage() for record in caplog.records if record.name == "bot.server.access"]
    assert len(lines) == 2
    assert lines[0].startswith("GET /v1/sessions/x%0AFAKE 404 ")
    assert lines[1].startswith("GET (unknown path) 404 ")


async def test_a_head_follows_nothing(served: Served) -> None:
    session_id = served.sessions.add(LOCAL)
    async with served.client.head(f"/v1/sessions/{session_id}/events") as answer:
        assert answer.status == 405
    async with served.client.head(f"/v1/sessions/{session_id}") as answer:
        assert answer.status == 200


async def test_a_redirect_passes_as_it_is(serve: Serve) -> None:
    @web.middleware
    async def elsewhere(request: web.Request, handler: object) -> web.StreamResponse:
        answer = web.HTTPFound("/console/")
        answer.set_cookie("a", "b")
        raise answer

    served = await serve(guards=[elsewhere])
    async with served.client.get("/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"], answer.cookies["a"].value) == (302, "/console/", "b")


@pytest.mark.parametrize(
    "sent",
    [
        b"hunter2\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: Bearer " + b"hunter2" * 3000 + b"\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_are_refused_and_not_logged(
    served: Served, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    answer = await reader.read()
    assert answer.split()[1] == b"400"
    assert b"Traceback" not in answer
    assert "hunter2" not in caplog.text
    writer.close()
    await writer.wait_closed()
