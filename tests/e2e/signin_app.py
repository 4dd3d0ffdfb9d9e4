"""An app with a tool that acts as whoever asks, at a provider that nobody here wrote; on a clock of its own, one replica or more.

What lives here: its tool and model, serving it. What does not: the provider (tests/oidc.py), people (browser.py), expectations.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from aiohttp import web

from bot.agent import Agent
from bot.app import Bot
from bot.connections.connection import Need, OAuthConnection
from bot.console.page import install_console
from bot.console.security import loopback_guard
from bot.context import ToolContext
from bot.history import ResultItem, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.runtime import Runtime, open_runtime
from bot.server.app import build_app, runner_of
from bot.settings import Settings, sqlite_url
from bot.tools import tool
from durable_core.clock import ManualClock
from durable_core.crypto import new_key_entry
from durable_core.schema import upgrade
from durable_core.worker import WorkerOptions
from tests.oidc import SECRET

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oidc import OidcPeer

KEY = "sign-in"
TRACKER = "tracker"


def connection(issuer: str) -> OAuthConnection:
    """Declare the account: its e-mail is believed, so that it proves who signed in."""
    return OAuthConnection(
        TRACKER,
        title="Tracker",
        client_id="app",
        client_secret=SECRET,
        issuer=issuer,
        scopes=("openid", "profile", "email", "offline_access"),
        extra={"prompt": "consent"},  # without it, what is renewed ends with the browser's session there
        hosts=(issuer,),
        verifies_email=True,
    )


class Follower:
    """Calls `whoami` where a message says so, then says what came of it."""

    name = "follower"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        last = max(place for place, item in enumerate(request.history) if isinstance(item, UserItem))
        said = request.history[last]
        assert isinstance(said, UserItem)
        results = [item for item in request.history[last:] if isinstance(item, ResultItem)]
        if not results and said.text == "whoami":
            return ModelReply("", (RequestedCall("whoami", {}, provider_id="c0"),), finish=Finish.TOOLS)
        text = "\n\n".join(f"{one.tool}: {one.status.value}, {one.content}" for one in results) or f"You said: {said.text}"
        await on_text(text)
        return ModelReply(text)


def build(issuer: str) -> Bot:
    tracker = connection(issuer)

    @tool(connections=[tracker])
    async def whoami(ctx: ToolContext[None]) -> str:
        """Ask the tracker who is signed in there."""
        reply = await ctx.http(tracker).get("/me")
        return f"At the tracker you are {reply.raise_for_status().json()['email']}."

    return Bot(agents=[Agent("helper", Follower(), tools=[whoami])])


@dataclass(frozen=True, slots=True)
class Served:
    """One running replica: its own address, its page's, and the clock that all of them share with the provider."""

    url: str
    clock: ManualClock
    runtime: Runtime
    peer: OidcPeer
    keys: str

    @property
    def console(self) -> str:
        return f"{self.url}/console/?k={KEY}"

    @property
    def need(self) -> Need:
        return Need.of(self.runtime.connections.by_name[TRACKER])

    def later(self, by: timedelta) -> None:
        """Let time pass, here and at the provider, and wake the worker."""
        self.clock.advance(by)
        self.peer.settings(skew=int(self.clock.now_ms / 1000 - time.time()))
        assert self.runtime.worker is not None
        self.runtime.worker.kick()


@asynccontextmanager
async def serving(
    folder: Path, peer: OidcPeer, *, database: str | None = None, like: Served | None = None
) -> AsyncIterator[Served]:
    """Serve the app in this process until the block ends; without `database`, on a SQLite file of its own.

    `like` is another replica of the same app: its clock, keys and public address are this one's, too.
    """
    clock = like.clock if like else ManualClock(int(time.time() * 1000))
    keys = like.keys if like else new_key_entry()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        public = like.url if like else url
        settings = Settings(folder, database or sqlite_url(folder), encryption_keys=keys, deployment="test", public_url=public)
        if database is None:
            upgrade(settings.database_url)
        runtime = await open_runtime(build(peer.issuer), settings, console=True, clock=clock, options=WorkerOptions(poll=0.05))
        app = build_app(runtime, guards=[loopback_guard(spared=("/connect",))])
        assert runtime.console is not None
        assert runtime.platform is not None
        runtime.platform.page_url = f"{url}/console/"
        install_console(app, runtime.console, key=KEY, public_port=0)
        runner = runner_of(app, drain=1.0)
        try:
            await runtime.start()
            await runner.setup()
            await web.SockSite(runner, listening).start()
            yield Served(url, clock, runtime, peer, keys)
        finally:
            await runner.cleanup()
            await runtime.close()
