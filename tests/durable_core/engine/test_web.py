"""The engine's routes over real HTTP: webhooks reach their run, everything else is refused with a word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.errors import Unavailable
from durable_core.registry import step, workflow
from durable_core.web import BODY_LIMIT, web_app
from tests.durable_core.engine.breaking import Failing
from tests.durable_core.engine.worlds import World, parked, result

SECRET = "a-secret-for-the-scheduler"
tokens: list[str] = []


@workflow
async def paid(ctx: WorkflowContext, times: int = 1) -> list[Any]:
    hook = await ctx.webhook()
    await ctx.step(step(tokens.append, name="publish"), hook.token)
    return [await ctx.wait_for(hook) for _ in range(times)]


@asynccontextmanager
async def client(engine: Engine, **options: Any) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(web_app(engine, **options))) as made:
        yield made


async def test_what_is_posted_reaches_its_run(world: World) -> None:
    async with world.engine(paid) as engine, client(engine) as http:
        run = await engine.start(paid, 3)
        await parked(run)
        path = f"/hooks/{tokens[-1]}"
        for body in ({"json": {"amount": 7}}, {"data": "plain words"}, {}):
            answer = await http.post(path, **body)
            assert (answer.status, await answer.json()) == (202, {"status": "accepted"})
        assert await result(run) == [{"amount": 7}, "plain words", None]
        assert (await http.post(path, json=1)).status == 404


async def test_a_redelivery_is_taken_once(world: World) -> None:
    async with world.engine(paid) as engine, client(engine) as http:
        run = await engine.start(paid, 2)
        await parked(run)
        path = f"/hooks/{tokens[-1]}"
        for _ in range(2):
            assert (await http.post(path, json=1, headers={"Idempotency-Key": "evt_1"})).status == 202
        assert (await http.post(path, json=2, headers={"Idempotency-Key": "evt_1"})).status == 409
        assert (await http.post(path, json=2, headers={"Idempotency-Key": "evt_2"})).status == 202
        assert await result(run) == [1, 2]


async def test_what_can_not_be_taken_is_refused_with_a_word(world: World) -> None:
    async with world.engine(paid) as engine, client(engine) as http:
        run = await engine.start(paid)
        await parked(run)
        path = f"/hooks/{tokens[-1]}"
        json = {"Content-Type": "application/json"}
        cases: list[tuple[str, Any, dict[str, str], int]] = [
            ("/hooks/nobody", b"{}", json, 404),
            (path, b"{", json, 400),
            (path, b"NaN", json, 400),
            (path, b'"\\ud800"', json, 400),
            (path, b"\xff", {"Content-Type": "text/plain"}, 400),
            (path, b"x", {"Content-Type": "text/plain; charset=no-such"}, 400),
            (path, b"<a/>", {"Content-Type": "application/xml"}, 415),
            (path, BytesIO(b'"' + b"x" * BODY_LIMIT + b'"'), json, 413),
            (path, b"[" * 300 + b"]" * 300, json, 422),
            (path, b"9" * 5_000, json, 400),
            (path, b"1", {**json, "Idempotency-Key": "k" * 1_001}, 422),
        ]
        for where, body, headers, status in cases:
            answer = await http.post(where, data=body, headers=headers)
            assert answer.status == status, (body, await answer.text())
            error = (await answer.json())["error"]
            assert error["code"]
            assert tokens[-1] not in str(error)
        assert (await http.get(path)).status == 405
        assert (await run.status()).status == "waiting"


async def test_a_hook_with_a_name_is_no_address(world: World) -> None:
    @workflow
    async def named(ctx: WorkflowContext) -> Any:
        return await ctx.wait_for("payment-7")

    async with world.engine(named) as engine, client(engine) as http:
        run = await engine.start(named)
        await parked(run)
        assert (await http.post("/hooks/payment-7", json={"paid": True})).status == 404
        await engine.signal("payment-7", "by the app")
        assert await result(run) == "by the app"


async def test_numbers_come_as_they_were_sent(world: World) -> None:
    sent = b'{"id": 123456789012345678901234567890, "small": -18446744073709551617, "text": "1234567890123456789012"}'
    async with world.engine(paid) as engine, client(engine) as http:
        run = await engine.start(paid)
        await parked(run)
        answer = await http.post(f"/hooks/{tokens[-1]}", data=sent, headers={"Content-Type": "application/json"})
        assert answer.status == 202
        assert await result(run) == [
            {"id": 123456789012345678901234567890, "small": -18446744073709551617, "text": "1234567890123456789012"}
        ]


async def test_a_database_that_is_away_is_said_to_be(world: World) -> None:
    store = await world.open_store()
    async with world.engine(paid, store=store) as engine:
        run = await engine.start(paid)
        await parked(run)
        away = Failing(store, "admit", Unavailable("away"))
        async with world.engine(paid, store=away.as_store, work=False) as edge, client(edge) as http:
            refused = await http.post(f"/hooks/{tokens[-1]}", json=1)
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
            assert (await http.post(f"/hooks/{tokens[-1]}", json=1)).status == 202
        assert await result(run) == [1]


async def test_a_scheduler_with_the_secret_advances_what_is_due(world: World) -> None:
    @workflow
    async def two(ctx: WorkflowContext) -> int:
        await ctx.sleep(60)
        return 2

    async with world.engine(two, work=False) as engine, client(engine, run_due_secret=SECRET) as http:
        run = await engine.start(two)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": SECRET}, {"Authorization": "Bearer ü"}):
            assert (await http.post("/run-due", headers=headers)).status == 401
        good = {"Authorization": f"Bearer {SECRET}"}
        assert await (await http.post("/run-due", headers=good)).json() == {"advanced": 1}
        assert await (await http.post("/run-due", headers=good)).json() == {"advanced": 0}
        world.advance(seconds=60)
        assert (await http.post("/run-due?limit=0", headers=good)).status == 400
        assert await (await http.post("/run-due?limit=5", headers=good)).json() == {"advanced": 1}
        assert await result(run) == 2
    async with world.engine(two, work=False) as engine:
        async with client(engine) as http:
            assert (await http.post("/run-due", headers=good)).status == 404
        with pytest.raises(ValueError):
            web_app(engine, run_due_secret="short")
