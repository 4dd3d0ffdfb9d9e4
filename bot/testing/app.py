"""A bot that runs within a test: its own database, its server on a loopback port, no console.

What lives here: opening, serving and ending it. What does not: the platforms it talks to (bot/testing/slack/).
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bot.app import Bot
from bot.runtime import Runtime, open_runtime
from bot.server.app import build_app, runner_of
from bot.settings import Role, Settings, sqlite_url
from bot.testing.slack.fake import FakeSlack
from channels.slack.manifest import IDENTITY_PATH
from durable_core.clock import Clock
from durable_core.crypto import new_key_entry
from durable_core.schema import upgrade
from durable_core.worker import WorkerOptions

POLL_SECONDS = 0.05
"""How soon a worker sees that a manual clock was moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A running bot."""

    url: str
    runtime: Runtime
    http: aiohttp.ClientSession

    async def api(self, method: str, path: str, json: Any = None) -> Any:
        """Call the session API, or anything else there, and return what its JSON answer says. Raises: ClientResponseError."""
        async with self.http.request(method, f"{self.url}{path}", json=json, raise_for_status=True) as answer:
            return await answer.json()


@asynccontextmanager
async def running(
    bot: Bot,
    *,
    slack: FakeSlack | None = None,
    channel: str = "slack",
    clock: Clock | None = None,
    data: Path | None = None,
    settings: Settings | None = None,
    options: WorkerOptions | None = None,
) -> AsyncIterator[App]:
    """Run a bot until the block ends.

    `slack` is told to post to the bot's channel of the name `channel`, and where to send people back to who sign in. `clock` is
    the database's own unless given; with `clock=slack.clock` deadlines and Slack's retries share one. A folder `data` keeps the
    database from one run to the next, as a restart does; without it there is a new one every time.
    """
    with tempfile.TemporaryDirectory(prefix="moorings-") as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        place = data or Path(folder)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        chosen = settings or Settings(place, sqlite_url(place), encryption_keys=_keys(place), deployment="test", public_url=url)
        if slack is not None:
            slack.openid.redirect_urls.add(f"{url}{IDENTITY_PATH}")
            chosen = replace(chosen, trusted_origins=(*chosen.trusted_origins, slack.openid.base))
        await asyncio.to_thread(partial(upgrade, chosen.database_url, namespace=chosen.namespace))
        runtime = await open_runtime(bot, chosen, role=Role.ALL, clock=clock, options=options or WorkerOptions(poll=POLL_SECONDS))
        runner = runner_of(build_app(runtime, tokens=chosen.api_tokens), drain=1.0)
        try:
            await runtime.start()
            await runner.setup()
            await web.SockSite(runner, listening).start()
            if slack is not None:
                slack.events_url = f"{url}/channels/{channel}/events"
            async with aiohttp.ClientSession() as http:
                yield App(url=url, runtime=runtime, http=http)
        finally:
            if slack is not None:
                await slack.settled()
                slack.events_url = ""
            await runner.cleanup()
            await runtime.close()


def _keys(folder: Path) -> str:
    """Return the keys of this folder's database; a restart finds them again."""
    path = folder / "keys"
    if not path.exists():
        path.write_text(new_key_entry(), encoding="utf-8")
    return path.read_text(encoding="utf-8")
