"""The process that is killed in the middle of a sign-in: the whole app, on a socket that outlives it.

What lives here: the bot and that process. What does not: the tests' side (test_kills.py). It is started as
`python -m tests.bot.signins.process FOLDER SOCKET PROVIDER AHEAD`: the socket's number, the provider's address, and by how many
milliseconds the app's clock is ahead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.agent import Agent
from bot.app import Bot
from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.flows import connected
from bot.history import ResultItem, Usage, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.runtime import open_runtime
from bot.server.app import build_app, runner_of
from bot.settings import Settings, sqlite_url
from bot.tools import tool
from durable_core.context import WorkflowContext
from durable_core.registry import step, workflow
from tests.bot.signins.desk import KEYS

URL_FILE = "database.url"
"""In the folder, where the database is another than its SQLite file."""


class Ahead:
    """The clock of a machine whose time is that much later."""

    def __init__(self, by: int) -> None:
        self.by = by

    def override(self) -> int | None:
        return int(time.time() * 1_000) + self.by


class Asks:
    """A model that asks once who the person is, by a tool or by the workflow that it is told to use, then says it."""

    name = "asks"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        results = [item.content for item in request.history if isinstance(item, ResultItem)]
        if not results:
            said = next(item.text for item in reversed(request.history) if isinstance(item, UserItem))
            name = "visit" if "visit" in said else "whoami"
            return ModelReply("", (RequestedCall(name, {}, provider_id="p"),), finish=Finish.TOOLS, usage=Usage(1, 1))
        return ModelReply(f"It says: {results[-1]}", usage=Usage(1, 1))


def build(provider: str) -> Bot:
    """Make a bot with a tool and a workflow that act with an account at the provider."""
    tracker = OAuthConnection(
        "tracker",
        title="Tracker",
        client_id="app",
        authorize_url=f"{provider}/authorize",
        token_url=f"{provider}/token",
        userinfo_url=f"{provider}/userinfo",
        revoke_url=f"{provider}/revoke",
        scopes=("issues",),
        hosts=(provider,),
    )

    @tool(connections=[tracker], effect="read")
    async def whoami(ctx: ToolContext[Any]) -> str:
        """Say who the person is there."""
        reply = await ctx.http(tracker).get("/userinfo")
        return str(reply.raise_for_status().json()["name"])

    @step(name="ask_there")
    async def ask_there() -> str:
        reply = await connected(tracker).get("/userinfo")
        return str(reply.raise_for_status().json()["name"])

    @workflow
    async def visit(ctx: WorkflowContext) -> str:
        """Say who the person is there, from a step, once both branches have the account."""
        first, second = await asyncio.gather(ctx.authorize(tracker), ctx.authorize(tracker))
        name = await ctx.step(ask_there)
        return name if name == first.account == second.account else f"{name}, not {first.account} and {second.account}"

    return Bot(agents=[Agent("helper", Asks(), tools=[whoami, visit])])


async def serve(folder: Path, listening: socket.socket, provider: str, ahead: int) -> None:
    """Run until it is killed."""
    url = (folder / URL_FILE).read_text() if (folder / URL_FILE).exists() else sqlite_url(folder)
    public = f"http://127.0.0.1:{listening.getsockname()[1]}"
    settings = Settings(folder, url, encryption_keys=KEYS, deployment="v1", public_url=public, trusted_origins=(provider,))
    runtime = await open_runtime(build(provider), settings, clock=Ahead(ahead))
    await runtime.start()
    runner = runner_of(build_app(runtime), drain=0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, where, number, authority, later = sys.argv
    asyncio.run(serve(Path(where), socket.socket(fileno=os.dup(int(number))), authority, int(later)))
