"""Calls of the simulated Web API, and an app that hears its events.

What lives here: what the kit's own tests share. What does not: the kit (bot/testing/).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web

from bot.testing import FakeSlack


@asynccontextmanager
async def harbour(**options: Any) -> AsyncIterator[tuple[FakeSlack, Callable[..., Awaitable[Any]]]]:
    """A simulated Slack, and how to call its API with JSON."""
    async with FakeSlack(**options) as slack, aiohttp.ClientSession() as http:

        async def call(method: str, *, token: str | None = None, as_form: bool = False, **args: Any) -> Any:
            if "channel" in args and as_channel(slack, args["channel"]):
                args["channel"] = slack.channel(args["channel"]).id
            headers = {"Authorization": f"Bearer {slack.token if token is None else token}"}
            url = f"{slack.api_url}{method}"
            if as_form or not method.startswith(("chat.", "views.", "conversations.open", "files.complete")):
                form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in args.items()}
                answer = await http.post(url, data=form, headers=headers)
            else:
                content = {"Content-Type": "application/json; charset=utf-8"}
                answer = await http.post(url, data=json.dumps(args), headers=headers | content)
            return await answer.json()

        yield slack, call


def as_channel(slack: FakeSlack, name: object) -> bool:
    return any(channel.name == name for channel in slack.world.channels.values() if name)


@dataclass
class Ear:
    """An app that only listens: what it was sent, and what it answers."""

    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[int], Awaitable[web.Response]] | None = None
    url: str = ""

    async def hear(self, request: web.Request) -> web.Response:
        self.heard.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        return web.Response() if self.answer is None else await self.answer(len(self.heard))

    @property
    def payloads(self) -> list[Any]:
        return [read(body) for _, body in self.heard]


def read(body: bytes) -> Any:
    if body.startswith(b"{"):
        return json.loads(body)
    form = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
    return json.loads(form["payload"]) if "payload" in form else form


@asynccontextmanager
async def listening(slack: FakeSlack) -> AsyncIterator[Ear]:
    ear = Ear()
    app = web.Application()
    app.add_routes([web.post("/events", ear.hear)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    ear.url = slack.events_url = f"http://{host}:{port}/events"
    try:
        yield ear
    finally:
        await slack.settled()
        slack.events_url = ""
        await runner.cleanup()
