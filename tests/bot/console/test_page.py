"""The console over HTTP, in front of a fake port."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bot.console.page import install_console
from bot.console.port import UnknownThread
from tests.bot.console.fake_port import AGENT, FakePort, author, open_card
from tests.bot.console.stories import killed_then_parked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "the-key"
API = "/console/api"
BODY = {"author": "alice", "text": "hello", "client_id": "client-0001"}
Client = TestClient[web.Request, web.Application]


@pytest.fixture
def port() -> FakePort:
    port = FakePort()
    port.add_thread("t1", "hello")
    return port


@pytest_asyncio.fixture
async def locked(port: FakePort) -> AsyncIterator[Client]:
    app = web.Application()
    install_console(app, port, key=KEY, public_port=8700, heartbeat=0.02)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest_asyncio.fixture
async def client(locked: Client) -> Client:
    await locked.get(f"/console/?k={KEY}")
    return locked


async def error(response: Any) -> tuple[int, str]:
    body = (await response.json())["error"]
    assert set(body) >= {"code", "message", "retryable"}
    assert body["message"].endswith(".")
    return response.status, body["code"]


# The page


async def test_the_root_leads_to_the_page_and_keeps_the_key(locked: Client) -> None:
    response = await locked.get(f"/?k={KEY}", allow_redirects=False)
    assert (response.status, response.headers["Location"]) == (302, f"/console/?k={KEY}")


async def test_without_a_key_the_page_says_what_to_open(locked: Client) -> None:
    for path in ("/console/", "/console/?k=wrong", "/console/?k=%FF"):
        response = await locked.get(path)
        assert response.status == 401
        assert "that Moorings printed" in await response.text()
        assert "Set-Cookie" not in response.headers


async def test_the_key_becomes_a_cookie_and_leaves_the_address(locked: Client) -> None:
    response = await locked.get(f"/console/?k={KEY}", allow_redirects=False)
    assert (response.status, response.headers["Location"]) == (302, "/console/")
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("moorings_console_8700=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert KEY not in cookie
    page = await locked.get("/console/")
    assert page.status == 200
    assert 'id="messages"' in await page.text()


async def test_every_answer_carries_the_headers(client: Client) -> None:
    for path in ("/console/", "/console/static/console.js", f"{API}/state", f"{API}/nothing", "/console/nothing"):
        response = await client.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
    assert (await client.get(f"{API}/state")).headers["Cache-Control"] == "no-store"


async def test_files_are_served_by_name_with_their_type_and_tag(client: Client) -> None:
    response = await client.get("/console/static/console.js")
    assert response.content_type == "text/javascript"
    again = await client.get("/console/static/console.js", headers={"If-None-Match": response.headers["ETag"]})
    assert again.status == 304
    for name in ("index.html", "..%2fpage.py", "nothing.js"):
        assert (await client.get(f"/console/static/{name}")).status == 404


# Reading


async def test_the_api_is_closed_without_the_cookie(locked: Client) -> None:
    for path in ("state", "stream", "threads/t1", "nothing"):
        assert await error(await locked.get(f"{API}/{path}")) == (401, "locked")
    locked.session.cookie_jar.update_cookies({"moorings_console_8700": "\xe9"})
    assert (await locked.get(f"{API}/state")).status == 401


async def test_state_lists_cast_and_threads(client: Client) -> None:
    state = await (await client.get(f"{API}/state")).json()
    assert [member["id"] for member in state["cast"]] == ["alice", "bob", "farah", "guest"]
    assert [thread["id"] for thread in state["threads"]] == ["t1"]


async def test_a_thread_shows_what_its_viewer_may_see(client: Client, port: FakePort) -> None:
    port.add_message("t1", author("alice"), "hello")
    port.add_message("t1", AGENT, "Not for you.", private_to="guest")
    for viewer, seen in (("guest", 2), ("alice", 1)):
        body = await (await client.get(f"{API}/threads/t1?viewer={viewer}")).json()
        assert len(body["messages"]) == seen
    assert await error(await client.get(f"{API}/threads/t1?viewer=mallory")) == (400, "unknown_viewer")


@pytest.mark.parametrize("path", ["threads/no?viewer=alice", "threads/no/timeline", "threads/a%00b/timeline", "stream?thread=no"])
async def test_an_unknown_thread_is_404(client: Client, path: str) -> None:
    assert await error(await client.get(f"{API}/{path}")) == (404, "unknown_thread")


async def test_the_timeline_is_the_fold_of_the_events(client: Client, port: FakePort) -> None:
    port.log["t1"] = killed_then_parked(port.now)
    body = await (await client.get(f"{API}/threads/t1/timeline")).json()
    assert [turn["turn_id"] for turn in body["turns"]] == ["turn_2"]


async def test_a_step_is_found_by_turn_and_index(client: Client, port: FakePort) -> None:
    port.steps["t1", 0, "turn_2"] = {"input": 1, "output": 2, "records": {}}
    found = await client.get(f"{API}/threads/t1/steps/0?turn=turn_2")
    assert await found.json() == {"input": 1, "output": 2, "records": {}}
    for step in ("0", "9?turn=turn_2", "x", "-1", "99999999999999999999"):
        assert await error(await client.get(f"{API}/threads/t1/steps/{step}")) == (404, "unknown_step")


# Writing


async def test_a_message_is_posted_once_for_a_client_id(client: Client, port: FakePort) -> None:
    answers = [await client.post(f"{API}/threads/t1/messages", json=BODY) for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 202]
    assert await answers[0].json() == await answers[1].json()
    assert len(port.kept["t1"]) == 1
    assert await error(await client.post(f"{API}/threads/t1/messages", json=BODY | {"text": "other"})) == (
        409,
        "client_id_reused",
    )


async def test_a_first_message_makes_the_thread(client: Client, port: FakePort) -> None:
    response = await client.post(f"{API}/threads", json=BODY)
    assert response.status == 202
    assert (await response.json())["thread_id"] in port.rows


async def test_a_click_carries_who_and_what(client: Client, port: FakePort) -> None:
    message = port.add_message("t1", AGENT, "", card=open_card(now=port.now))
    click = {"message_id": message["id"], "author": "farah", "value": "p1:approve", "client_id": "client-0002"}
    response = await client.post(f"{API}/threads/t1/clicks", json=click)
    assert (response.status, await response.json()) == (200, {"status": "settled"})
    assert port.clicks == [(message["id"], "farah", "p1:approve", "client-0002")]
    assert await error(await client.post(f"{API}/threads/t1/clicks", json=click | {"message_id": "no"})) == (
        404,
        "unknown_message",
    )


async def test_killing_the_worker_names_it(client: Client) -> None:
    response = await client.post(f"{API}/worker/kill", json={})
    assert (response.status, await response.json()) == (202, {"pid": 4242})
    assert await error(await client.post(f"{API}/worker/kill", data=b"")) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
async def test_other_bodies_than_json_are_415(client: Client, kind: str) -> None:
    response = await client.post(f"{API}/threads", data=json.dumps(BODY).encode(), headers={"Content-Type": kind})
    assert await error(response) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"[]", "malformed"),
        (b"null", "malformed"),
        (b"\xff", "malformed"),
        (b"[" * 60_000, "malformed"),
        (b'{"author": NaN}', "malformed"),
        (b'{"author": "alice", "author": "bob"}', "malformed"),
        (json.dumps(BODY | {"more": 1}).encode(), "unknown_field"),
        (json.dumps(BODY | {"text": " \n"}).encode(), "invalid_field"),
        (json.dumps(BODY | {"text": 7}).encode(), "invalid_field"),
        (json.dumps(BODY | {"text": "a\x00b"}).encode(), "invalid_field"),
        (json.dumps(BODY | {"text": "\ud800"}).encode(), "invalid_field"),
        (json.dumps(BODY | {"client_id": "no"}).encode(), "invalid_field"),
        (json.dumps({"text": "x", "client_id": "client-0001"}).encode(), "invalid_field"),
        (json.dumps(BODY | {"author": "mallory"}).encode(), "unknown_author"),
    ],
)
async def test_a_bad_body_is_400(client: Client, port: FakePort, body: bytes, code: str) -> None:
    for path in ("threads", "threads/t1/messages"):
        response = await client.post(f"{API}/{path}", data=body, headers={"Content-Type": "application/json"})
        assert await error(response) == (400, code)
    assert port.kept["t1"] == []


async def test_a_large_body_is_413_with_and_without_a_length(client: Client) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 16_384

    for data in (b" " * 66_000, chunks()):
        response = await client.post(f"{API}/threads", data=data, headers={"Content-Type": "application/json"})
        assert await error(response) == (413, "too_large")


async def test_calls_that_are_not_there_are_404(client: Client) -> None:
    assert await error(await client.get(f"{API}/nothing")) == (404, "unknown_call")
    assert await error(await client.delete(f"{API}/threads/t1")) == (404, "unknown_call")


async def test_a_failing_port_is_a_503_with_an_id_that_tells_nothing(client: Client, port: FakePort) -> None:
    port.fail = RuntimeError("secret")
    response = await client.get(f"{API}/state")
    assert response.status == 503
    body = (await response.json())["error"]
    assert body["error_id"].startswith("err_")
    assert "secret" not in body["message"]
    assert body["retryable"] is False


async def test_a_port_that_may_be_asked_again_says_so(client: Client, port: FakePort) -> None:
    class BusyError(Exception):
        retryable = True

    port.fail = BusyError()
    body = (await (await client.get(f"{API}/state")).json())["error"]
    assert body["retryable"] is True


async def test_a_thread_that_goes_during_the_call_is_404(client: Client, port: FakePort) -> None:
    port.fail = UnknownThread("t1")
    assert await error(await client.post(f"{API}/threads/t1/messages", json=BODY)) == (404, "unknown_thread")


# The stream


async def test_the_stream_greets_passes_changes_on_and_beats(client: Client, port: FakePort) -> None:
    response = await client.get(f"{API}/stream?thread=t1")
    assert response.content_type == "application/x-ndjson"
    assert json.loads(await response.content.readline()) == {"kind": "hello"}
    assert json.loads(await response.content.readline()) == {"kind": "worker", "state": "up", "pid": 4242}
    port.tell({"kind": "live", "thread": "t1", "turn_id": "turn_0", "text": "häl", "attempt": 1})
    lines: list[dict[str, Any]] = []
    while {"live", "beat"} - {line["kind"] for line in lines}:
        lines.append(json.loads(await response.content.readline()))
    assert next(line for line in lines if line["kind"] == "live")["text"] == "häl"
    response.close()


async def test_what_is_said_after_the_greeting_is_never_missed(client: Client, port: FakePort) -> None:
    response = await client.get(f"{API}/stream")
    assert json.loads(await response.content.readline()) == {"kind": "hello"}
    assert len(port.followers) == 1
    response.close()


async def test_shutdown_ends_open_streams(port: FakePort) -> None:
    app = web.Application()
    install_console(app, port, key=KEY, public_port=8700)
    client: Client = TestClient(TestServer(app))
    await client.start_server()
    await client.get(f"/console/?k={KEY}")
    response = await client.get(f"{API}/stream")
    await response.content.readline()
    await client.server.close()
    assert port.followers == set()
    await client.close()


# What the demo's account provider granted


async def test_without_a_provider_there_is_nothing_to_revoke(client: Client) -> None:
    assert (await (await client.get(f"{API}/state")).json())["revokes"] is False
    assert await error(await client.post(f"{API}/tokens/revoke", json={"author": "alice"})) == (404, "unknown_call")


async def test_the_provider_is_told_whose_tokens_to_revoke(port: FakePort) -> None:
    told: list[str] = []

    async def revoke(author_id: str) -> int:
        told.append(author_id)
        return 2

    app = web.Application()
    install_console(app, port, key=KEY, public_port=8700, revoke=revoke)
    async with TestClient(TestServer(app)) as client:
        assert await error(await client.post(f"{API}/tokens/revoke", json={"author": "alice"})) == (401, "locked")
        await client.get(f"/console/?k={KEY}")
        assert (await (await client.get(f"{API}/state")).json())["revokes"] is True
        assert await error(await client.post(f"{API}/tokens/revoke", json={"author": "mallory"})) == (400, "unknown_author")
        answer = await client.post(f"{API}/tokens/revoke", json={"author": "alice"})
        assert (answer.status, await answer.json(), told) == (200, {"revoked": 2}, ["alice"])
