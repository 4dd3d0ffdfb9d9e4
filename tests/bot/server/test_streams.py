"""Event streams: forms, positions, heartbeats, and readers that leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from bot.server.limits import Limits
from bot.session_api import JsonObject
from durable_core.ids import event_id, new_id
from tests.bot.server.conftest import Serve, Served
from tests.bot.server.fake_sessions import FakeSessions

LOCAL = "api:local"


def session_with(served: Served, count: int) -> str:
    session_id = served.sessions.add(LOCAL)
    for number in range(count):
        served.sessions.emit(session_id, "message.appended", number=number)
    return session_id


async def read(served: Served, session_id: str, query: str) -> list[int]:
    async with served.client.get(f"/v1/sessions/{session_id}/events?{query}") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/x-ndjson"
        assert answer.headers["x-moorings-stream-version"] == "1"
        return [json.loads(line)["meta"]["index"] for line in (await answer.read()).splitlines()]


async def until(condition: Callable[[], bool], *, step: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await step()


@pytest.mark.parametrize(
    ("start", "indexes"), [("0", [0, 1, 2, 3]), ("2", [2, 3]), ("-1", [3]), ("-9", [0, 1, 2, 3]), ("4", []), ("400", [])]
)
async def test_a_read_starts_at_an_index_or_counts_from_the_tail(served: Served, start: str, indexes: list[int]) -> None:
    assert await read(served, session_with(served, 4), f"start={start}&follow=false") == indexes


@pytest.mark.parametrize(
    "query", ["start=x", "start=1.5", "start=", "start=--1", "start=1e3", "start=9999999999999999", "follow=1"]
)
async def test_a_position_that_cant_be_read_is_refused(served: Served, query: str) -> None:
    refused = await served.refused("GET", f"/v1/sessions/{session_with(served, 1)}/events?{query}")
    assert refused[:2] == (400, "invalid_query")


async def test_a_follower_sees_what_comes_until_the_session_ends(served: Served) -> None:
    session_id = session_with(served, 1)
    async with served.client.get(f"/v1/sessions/{session_id}/events") as answer:
        first = json.loads(await answer.content.readline())
        assert set(first) == {"type", "data", "meta"}
        served.sessions.emit(session_id, "message.completed")
        assert json.loads(await answer.content.readline())["type"] == "message.completed"
        served.sessions.end(session_id)
        assert await answer.read() == b""
    assert served.sessions.followers == 0


async def test_headers_come_though_no_event_does(served: Served) -> None:
    session_id = session_with(served, 0)
    async with served.client.get(f"/v1/sessions/{session_id}/events") as answer:
        assert answer.status == 200


async def test_server_sent_events_are_for_who_accepts_them(serve: Serve) -> None:
    served = await serve(limits=Limits(heartbeat=0.02))
    session_id = session_with(served, 2)
    path = f"/v1/sessions/{session_id}/events"
    async with served.client.get(f"{path}?follow=false", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.content_type == "text/event-stream"
        frames = (await answer.text()).split("\n\n")
    assert [frame.splitlines()[0] for frame in frames[:2]] == ["id: 0", "id: 1"]
    assert json.loads(frames[1].splitlines()[1].removeprefix("data: "))["meta"]["index"] == 1
    seen = {"Accept": "text/event-stream", "Last-Event-ID": "0"}
    async with served.client.get(path, headers=seen) as answer:
        assert await answer.content.readline() == b"id: 1\n"
        await answer.content.readline()
        await answer.content.readline()
        assert await answer.content.readline() == b":\n"
    named = seen | {"Last-Event-ID": event_id(session_id, 0)}
    async with served.client.get(path, headers=named) as answer:
        assert await answer.content.readline() == b"id: 1\n"
    for wrong in ("evt_x", event_id(new_id("ses"), 0)):
        assert (await served.refused("GET", path, headers=seen | {"Last-Event-ID": wrong}))[:2] == (400, "bad_request")


async def test_a_quiet_stream_has_heartbeats(serve: Serve) -> None:
    served = await serve(limits=Limits(heartbeat=0.02))
    session_id = session_with(served, 1)
    async with served.client.get(f"/v1/sessions/{session_id}/events") as answer:
        assert (await answer.content.readline()).startswith(b"{")
        for _ in range(3):
            assert await answer.content.readline() == b"\n"
        served.sessions.emit(session_id, "turn.completed")
        line = b"\n"
        while line == b"\n":
            line = await answer.content.readline()
        assert json.loads(line)["meta"]["index"] == 1


async def open_follower(served: Served, session_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
    assert b"200" in await reader.readline()
    return reader, writer


async def test_two_hundred_readers_that_leave_in_every_way_leave_nothing(serve: Serve) -> None:
    served = await serve(limits=Limits(heartbeat=0.05))
    session_id = session_with(served, 1)
    tasks = len(asyncio.all_tasks())
    readers = [await open_follower(served, session_id) for _ in range(200)]
    await until(lambda: served.sessions.followers == 200)
    for number, (_, writer) in enumerate(readers):
        if number % 2:
            writer.write_eof()  # half closed: still reads, or is gone; nobody knows
        else:
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
            writer.transport.abort()
    await until(lambda: served.sessions.followers == 0)
    for _, writer in readers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_reader_that_never_reads_is_let_go(serve: Serve) -> None:
    served = await serve(limits=Limits(stalled_reader=0.1))
    session_id = session_with(served, 0)
    for _ in range(100):
        served.sessions.emit(session_id, "message.completed", text="x" * 200_000)
    raw = socket.create_connection(("127.0.0.1", served.port))
    with raw:
        raw.sendall(f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        await until(lambda: served.sessions.followers == 1)
        await until(lambda: served.sessions.followers == 0)


async def test_followers_are_bounded(serve: Serve) -> None:
    served = await serve(limits=Limits(followers=1))
    session_id = session_with(served, 0)
    path = f"/v1/sessions/{session_id}/events"
    async with served.client.get(path) as first:
        async with served.client.get(path) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["code"], error["retryable"]) == (503, "too_many_followers", True)
            assert answer.headers["Retry-After"] == "1"
        served.sessions.end(session_id)
        await first.read()
    await until(lambda: served.sessions.followers == 0, step=lambda: served.call("GET", "/healthz"))
    assert await read(served, session_id, "follow=false") == []


async def test_followers_and_waits_end_when_the_server_stops(serve: Serve) -> None:
    served = await serve()
    session_id = session_with(served, 1)
    _, receipt = await served.call("POST", f"/v1/sessions/{session_id}/messages", json={"message": "hi"})
    async with served.client.get(f"/v1/sessions/{session_id}/events") as answer:
        await answer.content.readline()
        waiting = asyncio.create_task(served.call("GET", f"/v1/submissions/{receipt['submission_id']}?wait=60"))
        await until(lambda: served.sessions.followers == 2)
        async with asyncio.timeout(1.5):
            await served.runner.cleanup()
        assert await answer.read() == b""
        assert (await waiting)[1]["status"] == "accepted"
    assert served.sessions.followers == 0


async def test_an_error_in_the_middle_cuts_the_stream(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: FakeSessions, *_: object, **__: object) -> AsyncIterator[JsonObject]:
        return endless()

    async def endless() -> AsyncIterator[JsonObject]:
        yield {"type": "turn.started", "data": {}, "meta": {"index": 0}}
        raise ZeroDivisionError

    monkeypatch.setattr(FakeSessions, "events", broken)
    served = await serve()
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        await read(served, "ses_x", "follow=false")
