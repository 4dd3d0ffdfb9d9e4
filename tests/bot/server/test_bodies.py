"""Bodies: what is refused, with which status and which words; never a fault of ours."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.errors import Problem
from bot.server import bodies
from bot.server.limits import Limits
from tests.bot.server.conftest import Serve, Served

LOCAL = "api:local"
JSON = {"Content-Type": "application/json"}


def post(served: Served, call: str = "/messages") -> str:
    return f"/v1/sessions/{served.sessions.add(LOCAL)}{call}"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b"{", 400, "malformed_json"),
        (b'{"message": "a"} x', 400, "malformed_json"),
        (b'{"message": "\xff"}', 400, "malformed_json"),
        ('{"message": "a"}'.encode("utf-16"), 400, "malformed_json"),
        (b'\xef\xbb\xbf{"message": "a"}', 400, "malformed_json"),
        (b'{"message": "a", "message": "b"}', 400, "malformed_json"),
        (b'{"message": NaN}', 400, "malformed_json"),
        (b'{"message": "\\ud800"}', 400, "malformed_json"),
        (b"[" * 500_000 + b"]" * 500_000, 400, "malformed_json"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "malformed_json"),
        (b'{"message": ' + b"9" * 10_000 + b"}", 400, "malformed_json"),
        (b'{"message": ' + b"[" * 100 + b"]" * 100 + b"}", 400, "invalid_body"),
        (b'{"message": "a\\u0000b"}', 400, "invalid_body"),
        (b"[]", 400, "invalid_body"),
        (b"null", 400, "invalid_body"),
        (b'{"message": "  \\n"}', 400, "invalid_body"),
        (b'{"message": []}', 400, "invalid_body"),
        (b'{"message": 1e999}', 400, "invalid_body"),
    ],
)
async def test_what_is_not_the_wanted_json_is_refused(served: Served, raw: bytes, status: int, code: str) -> None:
    assert (await served.refused("POST", post(served), data=raw, headers=JSON))[:2] == (status, code)
    assert served.sessions.seen == []


@pytest.mark.parametrize(
    ("call", "body", "named"),
    [
        ("/messages", {}, ["body.message is missing"]),
        ("/messages", {"message": None}, ["body.message may not be null"]),
        ("/messages", {"message": "a", "urgent": 1, "mesage": 2}, ['"mesage"', '"urgent"', "Known fields: message, turn_policy"]),
        ("/messages", {"message": 5, "turn_policy": 6}, ["body.message has to be", "body.turn_policy has to be"]),
        ("/messages", {"message": "a", "turn_policy": "now"}, ["steer, queue"]),
        ("/messages", {"message": [{"type": "text"}]}, ["body.message[0].text is missing"]),
        ("/messages", {"message": ["a"]}, ["body.message[0] has to be a JSON object"]),
        ("/responses", {"responses": []}, ["1 to 64"]),
        ("/responses", {"responses": [{"request_id": f"p{n}", "text": "y"} for n in range(65)]}, ["1 to 64"]),
        ("/responses", {"responses": [{"request_id": "p"}]}, ["body.responses[0] needs option_id, text, or both"]),
        ("/responses", {"responses": [{"request_id": "p", "text": ""}]}, ["needs option_id, text, or both"]),
        ("/responses", {"responses": [{"option_id": "approve"}]}, ["body.responses[0].request_id is missing"]),
        ("/responses", {"responses": [{"request_id": "p", "text": "y"}] * 2}, ["body.responses[1].request_id came before"]),
        ("/responses", {"responses": [{"request_id": "p" * 201, "text": "y"}]}, ["1 to 200 characters"]),
        ("/cancel", {"turn": "turn_0"}, ['"turn"']),
        ("/reset", {"reason": ["x"]}, ["body.reason has to be a string"]),
    ],
)
async def test_a_field_that_is_wrong_is_named(served: Served, call: str, body: object, named: list[str]) -> None:
    status, code, message = await served.refused("POST", post(served, call), json=body)
    assert (status, code) == (400, "invalid_body")
    for words in named:
        assert words in message


async def test_a_part_that_is_not_text_is_refused_by_its_type(served: Served) -> None:
    body = {"message": [{"type": "text", "text": "see"}, {"type": "file", "url": "http://x"}]}
    status, code, message = await served.refused("POST", post(served), json=body)
    assert (status, code) == (400, "unsupported_part")
    assert 'body.message[1] is of type "file"' in message


async def test_metadata_is_an_object_of_limited_size(served: Served) -> None:
    assert (await served.refused("POST", "/v1/sessions", json={"metadata": []}))[:2] == (400, "invalid_body")
    assert (await served.refused("POST", "/v1/sessions", json={"metadata": {"a": "x" * 20_000}}))[:2] == (413, "too_large")
    assert (await served.refused("POST", "/v1/sessions", json={"metadata": {"n": 2**63}}))[:2] == (400, "invalid_body")


async def test_texts_have_limits_in_bytes(served: Served) -> None:
    fits = "ä" * (32 * 1024)
    assert (await served.call("POST", post(served), json={"message": fits}))[0] == 202
    assert (await served.refused("POST", post(served), json={"message": fits + "a"}))[:2] == (413, "too_large")
    answer = {"responses": [{"request_id": "p", "text": "x" * (16 * 1024 + 1)}]}
    assert (await served.refused("POST", post(served, "/responses"), json=answer))[:2] == (413, "too_large")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json", "", "application/json-x"],
)
async def test_another_content_type_is_refused(served: Served, content_type: str) -> None:
    for call in ("/messages", "/cancel"):
        refused = await served.refused("POST", post(served, call), data=b"{}", headers={"Content-Type": content_type})
        assert refused[:2] == (415, "unsupported_media_type")


async def test_a_body_without_a_content_type_is_refused(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert (await reader.readline()).split()[1] == b"415"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
async def test_a_compressed_body_is_refused_unread(served: Served, encoding: str) -> None:
    headers = JSON | {"Content-Encoding": encoding}
    async with served.client.post(post(served), data=b"\x1f\x8b bomb", headers=headers) as answer:
        assert answer.status in {400, 415}  # 400 where the HTTP parser sees first that it is not that encoding
    assert served.sessions.seen == []


async def test_a_charset_may_be_named(served: Served) -> None:
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    assert (await served.call("POST", post(served), data=b'{"message": "a"}', headers=headers))[0] == 202


async def test_a_body_of_ten_megabytes_is_refused_with_and_without_a_length(served: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(160):
            yield b" " * 65536

    for data in (io.BytesIO(b" " * 10_000_000), chunks()):
        async with served.client.post(post(served), data=data, headers=JSON) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["code"] == "too_large"
    assert (await served.call("GET", "/healthz"))[0] == 200


async def test_a_length_of_a_gigabyte_is_refused_before_a_byte_of_it(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"POST {post(served)} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == b"413"
    writer.close()
    await writer.wait_closed()


async def test_a_body_that_doesnt_come_is_given_up(serve: Serve) -> None:
    served = await serve(limits=Limits(body_time=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"POST {post(served)} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert (await reader.readline()).split()[1] == b"408"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("framing", "sent"),
    [
        ("Transfer-Encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", b"2\r\n{}\r\nxx"),
        ("Content-Length: 100", b"{"),
        ("Content-Length: x", b""),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", b"0\r\n\r\n"),
    ],
)
async def test_a_body_that_breaks_off_is_no_fault_of_ours(
    served: Served, caplog: pytest.LogCaptureFixture, framing: str, sent: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"POST {post(served)} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}{framing}\r\n\r\n".encode() + sent)
    writer.write_eof()
    answer = await reader.read()
    assert answer == b"" or answer.split()[1] == b"400"
    assert b"Traceback" not in answer
    writer.close()
    await writer.wait_closed()
    assert (await served.call("GET", "/healthz"))[0] == 200
    assert not [record for record in caplog.records if record.name == "bot.server" and record.levelname == "ERROR"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["message", "type", "text", "responses", "request_id"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["message", "agent", "metadata", "turn_policy", "responses", "turn_id", "reason", "text", "type"])
BODIES = st.binary(max_size=200) | st.dictionaries(NAMES, JSON_VALUES, max_size=4).map(lambda value: json.dumps(value).encode())


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=BODIES, call=st.sampled_from(["", "/messages", "/responses", "/cancel", "/reset"]), data=st.data())
def test_no_body_makes_a_fault_of_ours(raw: bytes, call: str, data: st.DataObject) -> None:
    asyncio.run(
        _fuzz(raw, call, data.draw(st.sampled_from(["application/json", "text/plain", "application/json; charset=utf-8"])))
    )


async def _fuzz(raw: bytes, call: str, content_type: str) -> None:
    from aiohttp import web

    from bot.server.app import build_app
    from tests.bot.server.fake_sessions import FakeApp

    running = FakeApp()
    session_id = running.sessions.add(LOCAL, prompts={"p": None})
    runner = web.AppRunner(build_app(running), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        path = f"/v1/sessions/{session_id}{call}" if call else "/v1/sessions"
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client,
            client.post(path, data=raw, headers={"Content-Type": content_type}) as answer,
        ):
            body: Any = await answer.json()
            assert answer.status < 500, body
            assert answer.status < 400 or body["error"]["message"]
    finally:
        await runner.cleanup()


@settings(max_examples=300)
@given(JSON_VALUES)
def test_no_value_passes_unchecked(value: Any) -> None:
    for fields in (bodies.CREATE, bodies.MESSAGE, bodies.RESPONSES, bodies.CANCEL):
        with contextlib.suppress(Problem):
            bodies.check_values(value)
            found = bodies.check_fields(value, fields, where="body")
            assert isinstance(value, dict)
            assert set(found) <= set(value) <= set(fields)
