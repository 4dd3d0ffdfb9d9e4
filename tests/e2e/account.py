"""An account elsewhere that the app acts with: the connection, what acts with it, and the person who connects it through deaths.

What lives here: those three. What does not: the provider (tests/bot/signins/authority.py), what has to be true (judge.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from bot.connections import protocol as _protocol
from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.flows import connected
from bot.signins import driving, keeping
from bot.tools import tool
from durable_core.context import WorkflowContext, step_context
from durable_core.registry import step, workflow
from tests.bot.signins.authority import Authority, authority
from tests.bot.signins.browser import Browser, Shown
from tests.e2e.fleet import Server
from tests.e2e.ledger import Ledger

PROVIDER_FILE: Final = "provider.url"
PUBLIC_FILE: Final = "public.url"
AS: Final = "as"
"""In the ledger: as whom something was done elsewhere."""
ACCOUNT: Final = "alice@tracker"
_LINK: Final = re.compile(r"\((http[^)\s]+/connect/[^)\s]+)\)")
_CODE: Final = re.compile(r"this code: `(\d{6})`")
_SHORTER: Final = ((keeping, "SOON_MS", 300), (keeping, "EXCHANGE_MS", 5_000), (driving, "SWEEP_SECONDS", 0.1))
"""How long what a dead process had begun is left to it: nobody waits for minutes here."""
_ = _protocol  # imported at first use otherwise, in each fork anew


def url_of(folder: Path, name: str) -> str:
    """Read an address that a folder names; "" where it names none."""
    path = folder / name
    return path.read_text() if path.exists() else ""


# ── the app ──


def tracker_at(folder: Path) -> OAuthConnection | None:
    """Declare the account where a folder names its provider."""
    url = url_of(folder, PROVIDER_FILE)
    if not url:
        return None
    names: dict[str, Any] = {f"{name}_url": f"{url}/{name}" for name in ("authorize", "token", "userinfo", "revoke")}
    return OAuthConnection("tracker", title="Tracker", client_id="app", scopes=("issues",), hosts=(url,), **names)


def acting(tracker: OAuthConnection, ledger: Ledger) -> list[Any]:
    """Make a tool and a workflow that act as whoever asked."""

    @tool(connections=[tracker], effect="write", idempotent=True)
    async def issue(ctx: ToolContext[Any], charge: str) -> str:
        """Open an issue as the person."""
        reply = await ctx.http(tracker).get("/userinfo")
        ledger.add(AS, ctx.idempotency_key, attempt=ctx.attempt, note=reply.raise_for_status().json()["name"])
        return str(await ctx.deps.act(ctx, charge))

    @step(name="fetch")
    async def fetch() -> str:
        here = step_context()
        reply = await connected(tracker).get("/userinfo")
        name = str(reply.raise_for_status().json()["name"])
        ledger.add("step", f"{here.run_id}:fetch", attempt=here.attempt, note=name)
        ledger.add(AS, f"{here.run_id}:fetch", attempt=here.attempt, note=name)
        return name

    @workflow
    async def visit(ctx: WorkflowContext, charge: str) -> str:
        """Ask for the account in two branches, then act as the person."""
        del charge
        await asyncio.gather(ctx.authorize(tracker), ctx.authorize(tracker))
        return await ctx.step(fetch)

    return [issue, visit]


def hurry() -> None:
    """Leave what was begun to a dead process no longer than a test waits."""
    for module, name, value in _SHORTER:
        setattr(module, name, value)


# ── the person ──


@asynccontextmanager
async def provided(server: Server) -> AsyncIterator[Authority]:
    """A provider for one folder, and an address of the app's own that leads to whichever process listens."""
    async with authority() as provider, fronted(server) as url:
        (server.folder / PROVIDER_FILE).write_text(provider.url)
        (server.folder / PUBLIC_FILE).write_text(url)
        yield provider


@asynccontextmanager
async def fronted(server: Server) -> AsyncIterator[str]:
    """Pass connections on to the process that listens now; they break with it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            process = await server.up()
            there, back = await asyncio.open_connection("127.0.0.1", process.port.result())
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        writer.close()

    front = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
    finally:
        front.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()


@dataclass(slots=True)
class Person:
    """Somebody who is asked to connect their account; `look` returns what they alone were told, in order."""

    server: Server
    press: Callable[[str], Awaitable[None]]
    told: Callable[[], Awaitable[list[str]]]
    wait: Callable[[], Awaitable[None]]
    is_open: Callable[[], bool]
    pressed: int = 0

    async def connect(self) -> None:
        """Press Connect and go through the pages; from the start again where it was cut off."""
        while self.is_open():
            known = len(self.links(await self.told()))
            self.pressed += 1
            await self.press(f"connect-{self.pressed}")
            while len(found := self.links(await self.told())) <= known:
                if not self.is_open():
                    return
                await self.wait()
            url, code = found[-1]
            async with Browser() as browser:
                await self._through(browser, url, code)

    @staticmethod
    def links(told: list[str]) -> list[tuple[str, str]]:
        """Find the links and codes among what somebody was told."""
        return [(link[1], code[1]) for words in told if (link := _LINK.search(words)) and (code := _CODE.search(words))]

    async def _through(self, browser: Browser, url: str, code: str) -> None:
        """Open a link, go to the provider, come back; load again what did not load, and look until it says how it ended."""
        page = await self._surely(lambda: browser.open(url))
        while page.forms and page.status == 200:
            page = await self._surely(lambda: browser.press(code=code), again=lambda: browser.open(url))
        if page.next:
            leaving = page
            page = await self._surely(browser.go_on, again=lambda: browser.open(browser.visited[-1]))
            assert page is not leaving
        while page.status == 200 and ACCOUNT not in page.text and self.is_open():
            assert "Connected" not in page.text
            await self.wait()
            page = await self._surely(lambda: browser.open(browser.page.url))
        assert page.status == 200 or "cut off" in page.text or not self.is_open(), page.text

    async def _surely(self, act: Callable[[], Awaitable[Shown]], *, again: Callable[[], Awaitable[Shown]] | None = None) -> Shown:
        """Do something, and again for as long as the process dies on it; `again` is what is done then."""
        while True:
            try:
                return await act()
            except (aiohttp.ClientError, OSError):
                await self.server.up()
                act = again or act
