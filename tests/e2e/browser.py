"""One page in the machine's Chromium, as a person uses the console.

What lives here: opening, speaking, reading, screenshots; what the browser complains about. What does not: expectations.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from playwright.async_api import async_playwright

from tests.parts import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Request, ViewportSize

SHOTS = "MOORINGS_TEST_SHOTS"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_DESK: ViewportSize = {"width": 1280, "height": 800}
_PHONE: ViewportSize = {"width": 390, "height": 844}
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_REFUSED = re.compile(r"the server responded with a status of [45]\d\d")
_LOST = re.compile(r"net::ERR_(CONNECTION_|EMPTY_RESPONSE|INCOMPLETE|NETWORK|SOCKET)")


class Visit:
    """A page and what the browser said about it."""

    def __init__(self, page: Page, *, theirs: str = "") -> None:
        """Watch a page. What pages at `theirs` do, another site's origin, is not ours to judge."""
        self.page = page
        self.theirs = theirs
        self.complaints: list[str] = []
        self.abroad: list[str] = []
        self.outage_expected = False
        self.refusals_expected = False
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def _heard(self, line: ConsoleMessage) -> None:
        expected = (self.outage_expected and _LOST.search(line.text)) or (self.refusals_expected and _REFUSED.search(line.text))
        if line.type in {"error", "warning"} and not expected and not self._is_theirs(line.location["url"], self.page.url):
            self.complaints.append(line.text)

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1" and not self._is_theirs(self.page.url):
            self.abroad.append(request.url)

    def _is_theirs(self, *addresses: str) -> bool:
        return bool(self.theirs) and any(address.startswith(f"{self.theirs}/") for address in addresses)

    async def open(self, address: str) -> None:
        await self.page.goto(address)
        await self.page.locator("#cast button").first.wait_for(state="attached")

    async def new_thread(self) -> None:
        await self.page.get_by_role("button", name="New thread").click()
        await self.page.locator("h1", has_text="New thread").wait_for()

    async def speak_as(self, name: str) -> None:
        who = self.page.locator("#cast button", has_text=name)
        await who.click()
        await self.page.locator("#cast button[aria-pressed=true]", has_text=name).wait_for()

    async def say(self, text: str) -> None:
        await self.page.fill("#say", text)
        await self.page.keyboard.press("Enter")

    async def press(self, label: str) -> None:
        await self.page.get_by_role("button", name=label, exact=True).click()

    def message(self, text: str) -> Locator:
        return self.page.locator("#messages .msg", has_text=text)

    def card(self, question: str, *, settled: bool = False) -> Locator:
        return self.page.locator(".card.done" if settled else ".card:not(.done)", has_text=question)

    async def finished(self) -> None:
        await self.page.locator("#pill", has_text="Done").wait_for()

    async def told(self) -> list[str]:
        """Return all messages of the thread, without who and when."""
        return [" ".join(text.split()) for text in await self.page.locator("#messages .msg .body").all_inner_texts()]

    async def timeline(self) -> str:
        return " ".join((await self.page.locator("#turns .turn").inner_text()).split())

    async def shots(self, name: str) -> None:
        """Keep pictures of this state at two widths in both themes, where the run asks for them."""
        folder = os.environ.get(SHOTS)
        if not folder:
            return
        before = self.page.viewport_size
        for size in (_DESK, _PHONE):
            await self.page.set_viewport_size(size)
            for theme in _THEMES:
                await self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                path = f"{folder}/{name}-{size['width']}-{theme}.png"
                await self.page.screenshot(path=path)
                print(f"picture: {path}")
        await self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        await self.page.set_viewport_size(before or _DESK)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Run the machine's Chromium."""
    executable = chromium()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(browser: Browser, *, theirs: str = "") -> AsyncIterator[Visit]:
    """Open a page in a profile of its own; afterwards, the browser has complained of nothing and asked no other host."""
    context = await browser.new_context(viewport=_DESK)
    context.set_default_timeout(20_000)
    visit = Visit(await context.new_page(), theirs=theirs)
    try:
        yield visit
    finally:
        await context.close()
    assert visit.complaints == []
    assert visit.abroad == []
