"""The OpenAPI document tells of exactly the calls that there are, and of bodies as they are read."""

from __future__ import annotations

from bot.server import bodies
from bot.server.openapi import document
from tests.bot.server.conftest import Served


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
