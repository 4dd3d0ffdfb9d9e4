"""The OpenAPI document tells of exactly the calls that there are, and of bodies as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bot.agent import Agent
from bot.app import Bot
from bot.demo import deploy
from bot.server import bodies
from bot.server.openapi import document
from bot.testing import running
from tests.bot.server.conftest import Served

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}


def described(method: str, path: str) -> Any:
    return document()["paths"][path][method]


def misfits(schema: Any, value: Any, at: str = "") -> Iterator[str]:
    """Yield what of a value a client that was made from the document would not read."""
    kinds = schema.get("type", list(TYPES))
    if not any(isinstance(value, TYPES[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{at}: {value!r} is no {kinds}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{at}: {value!r} is not one of those that are named"
    if isinstance(value, dict):
        named = schema.get("properties", value)
        yield from (f"{at}: {name} is not named" for name in value if name not in named)
        for name in named.keys() & value.keys():
            yield from misfits(schema.get("properties", {}).get(name, {}), value[name], f"{at}/{name}")


async def test_every_call_is_described_and_no_other(served: Served) -> None:
    status, told = await served.call("GET", "/openapi.json")
    assert (status, told["openapi"]) == (200, "3.1.0")
    routed = {
        (route.method.lower(), route.resource.canonical)
        for route in served.runner.app.router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/v1/") and route.method != "HEAD"
    }
    assert {(method, path) for path, methods in told["paths"].items() for method in methods} == routed


def test_a_body_is_described_as_it_is_read() -> None:
    path = document()["paths"]["/v1/sessions/{session_id}/responses"]["post"]
    schema = path["requestBody"]["content"]["application/json"]["schema"]
    item = schema["properties"]["responses"]["items"]
    assert (set(item["properties"]), item["required"]) == (set(bodies.RESPONSE), ["request_id"])
    assert schema["additionalProperties"] is item["additionalProperties"] is False
    assert {one["name"] for one in path["parameters"]} == {"session_id", "Idempotency-Key"}


async def test_answers_are_as_they_are_described() -> None:
    async with running(Bot(agents=[Agent("support", "scripted", tools=[deploy])])) as app:

        async def fits(method: str, path: str, json: Any = None, **ids: str) -> Any:
            call = described(method, path)
            url = f"{app.url}{path.format(**ids)}"
            async with app.http.request(method, url, json=json) as answer:
                told = await answer.json()
                assert str(answer.status) in call["responses"], (path, answer.status)
            schema = call["responses"][str(answer.status)]["content"]["application/json"]["schema"]
            assert list(misfits(schema, told)) == [], path
            return told

        one = "/v1/sessions/{session_id}"
        made = await fits("post", "/v1/sessions", {"message": "hello"})
        session, submission = made["session_id"], made["submission_id"]
        await app.api("GET", f"/v1/submissions/{submission}?wait=10")
        await fits("get", "/v1/submissions/{submission_id}", submission_id=submission)
        await fits("get", one, session_id=session)
        await fits("post", f"{one}/cancel", {}, session_id=session)
        await fits("get", "/v1/prompts")
        await fits("post", f"{one}/reset", {"reason": "done"}, session_id=session)
        assert (await fits("post", f"{one}/reset", {}, session_id=session))["status"] == "no_active_session"
        assert (await fits("get", one, session_id=session))["end_reason"] == "reset"


def test_events_are_described_as_streams() -> None:
    answer = described("get", "/v1/sessions/{session_id}/events")["responses"]["200"]
    assert set(answer["content"]) == {"application/x-ndjson", "text/event-stream"}


@pytest.mark.parametrize(
    ("path", "field"),
    [("", "agent"), ("", "message"), ("/s1/messages", "turn_policy"), ("/s1/cancel", "turn_id"), ("/s1/reset", "reason")],
)
async def test_what_is_refused_is_described_as_nothing_to_send(served: Served, path: str, field: str) -> None:
    body = {"message": "hello", field: " "} if path in {"", "/s1/messages"} else {field: " "}
    status, code, _ = await served.refused("POST", f"/v1/sessions{path}", json=body)
    assert (status, code) == (400, "invalid_body")
    schema = described("post", "/v1/sessions" + path.replace("s1", "{session_id}"))["requestBody"]["content"]["application/json"]
    found = schema["schema"]["properties"][field]
    words = found["oneOf"][0] if field == "message" else found
    assert words["pattern"] == r"\S"


async def test_any_number_of_seconds_in_range_may_be_waited(served: Served) -> None:
    for wait in ("0.00000000000001", "17.99591691886068"):
        status, told = await served.call("GET", f"/v1/submissions/unknown?wait={wait}")
        assert (status, told["error"]["code"]) == (404, "not_found"), wait
