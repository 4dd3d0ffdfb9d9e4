"""A real server on a loopback port, over the sessions in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bot.server.app import build_app, runner_of
from bot.server.limits import Limits
from bot.settings import ApiToken
from tests.bot.server.fake_sessions import FakeApp, FakeSessions


@dataclass
class Served:
    app: FakeApp
    runner: web.AppRunner
    port: int
    client: aiohttp.ClientSession

    @property
    def sessions(self) -> FakeSessions:
        return self.app.sessions

    async def call(self, method: str, path: str, **request: Any) -> tuple[int, Any]:
        async with self.client.request(method, path, **request) as answer:
            return answer.status, await answer.json()

    async def refused(self, method: str, path: str, **request: Any) -> tuple[int, str, str]:
        """Make a call that has to be refused in the one shape of errors."""
        status, body = await self.call(method, path, **request)
        assert set(body) == {"error"}, body
        error = body["error"]
        assert set(error) == {"code", "message", "retryable", "error_id"}
        assert error["error_id"].startswith("err_")
        assert error["message"]
        assert isinstance(error["retryable"], bool)
        return status, error["code"], error["message"]


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    started: list[Served] = []

    async def start(*, tokens: tuple[ApiToken, ...] = (), limits: Limits | None = None, **options: Any) -> Served:
        running = FakeApp()
        runner = runner_of(build_app(running, tokens=tokens, limits=limits, **options), drain=2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        client = aiohttp.ClientSession(f"http://127.0.0.1:{port}", auto_decompress=True)
        started.append(Served(running, runner, port, client))
        return started[-1]

    yield start
    for served in started:
        await served.client.close()
        await served.runner.cleanup()


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve()
