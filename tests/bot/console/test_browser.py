"""The page in a real browser, in front of a fake port: what a person sees, and what survives an outage."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import async_playwright

from bot.console.page import install_console
from bot.console.security import loopback_guard
from tests.bot.console.fake_port import AGENT, FakePort, author, open_card
from tests.bot.console.stories import killed_then_parked
from tests.parts import chromium

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
KEY = "the-key"


class Site:
    """A server that can go away and come back on the same port."""

    def __init__(self, port: FakePort) -> None:
        self.port = port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.number = int(probe.getsockname()[1])
        self.runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.number}/console/?k={KEY}"

    async def up(self) -> None:
        app = web.Application(middlewares=[loopback_guard(port=self.number)])
        install_console(app, self.port, key=KEY, public_port=self.number)
        self.runner = web.AppRunner(app, shutdown_timeout=1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.number).start()

    async def down(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()


@pytest.fixture
def port() -> FakePort:
    port = FakePort()
    port.add_thread("t1", "refund 140 for ch_1", waiting=True)
    port.add_message("t1", author("alice"), "refund 140 for ch_1")
    port.add_message("t1", AGENT, "I have **asked**.", card=open_card(now=port.now))
    port.log["t1"] = killed_then_parked(port.now)
    return port


@pytest_asyncio.fixture
async def site(port: FakePort) -> AsyncIterator[Site]:
    site = Site(port)
    await site.up()
    yield site
    await site.down()


@pytest_asyncio.fixture
async def page(site: Site) -> AsyncIterator[Page]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
        await page.goto(f"{site.address}#t1")
        await page.wait_for_selector(".card")
        yield page
        await browser.close()
        assert problems == []


def settle(port: FakePort) -> None:
    message: dict[str, Any] = port.kept["t1"][1]
    outcome = {"kind": "approved", "text": "Approved by Farah", "at": port.now, "result": "Ran once."}
    message |= {"card": message["card"] | {"buttons": [], "outcome": outcome}, "version": 2}
    port.tell({"kind": "messages", "thread": "t1"})


async def test_a_click_settles_the_card_and_keeps_the_focus_in_it(page: Page, port: FakePort) -> None:
    await page.get_by_role("button", name="Farah").click()
    await page.get_by_role("button", name="Approve").focus()
    await page.keyboard.press("Enter")
    await page.locator(".acts .exp", has_text="Recording").wait_for(state="detached")
    settle(port)
    done = page.locator(".card.done")
    await done.wait_for()
    assert "Approved by Farah at" in await done.inner_text()
    assert await done.get_by_role("button").count() == 0
    assert await page.evaluate("document.activeElement.contains(document.querySelector('.card.done'))")
    assert [(who, value) for _, who, value, _ in port.clicks] == [("farah", "p1:approve")]


async def test_a_refused_click_leaves_the_buttons_and_says_why(page: Page, port: FakePort) -> None:
    port.click_answer = {"status": "refused", "reason": "Only Finance may answer this."}
    await page.get_by_role("button", name="Approve").click()
    await page.locator(".said", has_text="Only Finance may answer this.").wait_for()
    assert await page.get_by_role("button", name="Approve").is_enabled()
    await page.get_by_role("button", name="Bob").click()
    await page.locator(".said").wait_for(state="detached")


async def test_an_outage_keeps_the_draft_and_sends_once(page: Page, port: FakePort, site: Site) -> None:
    await site.down()
    await page.fill("#say", "first")
    await page.keyboard.press("Enter")
    await page.fill("#say", "a draft")
    await page.locator(".msg .state", has_text="waiting for the connection").wait_for()
    await page.locator("#banner", has_text="Reconnecting").wait_for()
    await site.up()
    await page.locator("#banner").wait_for(state="hidden")
    await page.locator("#messages .msg", has_text="first").wait_for()
    assert [message["text"] for message in port.kept["t1"]].count("first") == 1
    assert await page.input_value("#say") == "a draft"
    assert await page.locator("#outgoing .msg").count() == 0


async def test_a_first_message_opens_its_thread_and_a_reload_shows_it(page: Page, port: FakePort) -> None:
    await page.get_by_role("button", name="Bob").click()
    await page.get_by_role("button", name="New thread").click()
    await page.fill("#say", "line one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("line two")
    await page.keyboard.press("Enter")
    await page.locator("#messages .msg", has_text="line two").wait_for()
    assert port.kept["t2"][0]["text"] == "line one\nline two"
    assert page.url.endswith("#t2")
    await page.reload()
    await page.locator("#messages .msg", has_text="line two").wait_for()
    assert await page.get_by_role("button", name="Bob").get_attribute("aria-pressed") == "true"


async def test_live_text_shows_and_goes(page: Page, port: FakePort) -> None:
    port.tell({"kind": "live", "thread": "t1", "turn_id": "turn_2", "text": "one two", "attempt": 2})
    await page.locator("#live", has_text="one two").wait_for()
    assert "attempt 2" in await page.locator("#live").inner_text()
    port.tell({"kind": "live", "thread": "t1", "turn_id": "turn_2", "text": None, "attempt": 2})
    await page.locator("#live .msg").wait_for(state="detached")


async def test_text_is_never_markup(page: Page, port: FakePort) -> None:
    port.add_message("t1", author("guest"), "<img src=x onerror=alert(1)> [go](javascript:alert(1)) **bold** `<b>`")
    port.tell({"kind": "messages", "thread": "t1"})
    last = page.locator("#messages .msg").last
    await last.locator("strong", has_text="bold").wait_for()
    assert await last.locator("img, a, b:not(.who b)").count() == 0
    assert "javascript:alert(1)" in await last.inner_text()


async def test_the_timeline_shows_the_cut_and_a_step_opens(page: Page, port: FakePort) -> None:
    port.steps["t1", 0, "turn_2"] = {"input": {"sequence": 4}, "output": None, "records": {}}
    cut = page.locator(".step.cut")
    await cut.wait_for()
    assert "worker killed at" in await cut.inner_text()
    await cut.get_by_role("button").click()
    await page.locator("#inspector", has_text='"sequence": 4').wait_for()
    await page.keyboard.press("Escape")
    await page.locator("#inspector").wait_for(state="hidden")


async def test_killing_the_worker_says_so(page: Page) -> None:
    await page.get_by_role("button", name="Kill worker").click()
    await page.locator("#panel-note", has_text="Killed 4242").wait_for()
    await page.locator("#worker", has_text="restarting").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_reaches_everything_and_nothing_scrolls_sideways(page: Page, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 390, "height": 844})
    for name, inside in (("Speakers and threads", "#cast"), ("What happened", "#kill")):
        await page.get_by_role("button", name=name, exact=True).click()
        await page.locator(inside).wait_for(state="visible")
        await page.keyboard.press("Escape")
        await page.locator(inside).wait_for(state="hidden")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert await page.evaluate("document.getElementById('thread').scrollWidth") <= 390


async def test_the_theme_is_kept(page: Page) -> None:
    await page.get_by_role("button", name="Dark").click()
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"


SIGN_IN: dict[str, Any] = {
    "question": "Connect Tracker to go on",
    "fields": [["Account", "Tracker"]],
    "evidence": [],
    "buttons": [{"label": "Connect Tracker", "value": "p2:connect", "style": "primary"}],
    "expires_at": None,
    "outcome": None,
}
STATUS: dict[str, Any] = {
    "question": "Paused: waiting for Alice to connect Tracker.",
    "fields": [],
    "evidence": [],
    "buttons": [],
    "outcome": None,
}
LINK = "http://127.0.0.1:9/connect/sgn_1.secret"
QUOTED = r"“\[press\](https\://evil.example) www\.evil.example \<https\://evil.example\>”"


async def test_a_link_for_one_person_is_a_real_link_and_nothing_quoted_is_one(page: Page, port: FakePort) -> None:
    port.add_message("t1", AGENT, "", card=STATUS)
    port.add_message("t1", AGENT, "", card=SIGN_IN, private_to="alice")
    port.click_answer = {"status": "aside", "reason": None}
    await page.reload()
    button = page.get_by_role("button", name="Connect Tracker")
    await button.focus()
    await page.keyboard.press("Enter")
    await page.locator("#announce", has_text="for you alone").wait_for(state="attached")
    assert await button.get_attribute("aria-disabled") is None
    assert await page.locator(".said").count() == 0
    assert await page.evaluate("document.activeElement.textContent") == "Connect Tracker"
    text = f"[Connect Tracker]({LINK})\n\nThe page asks for this code: `482913`\n\n{QUOTED} [x](javascript:alert(1))"
    told = port.add_message("t1", AGENT, text, private_to="alice")
    told["notice"] = True
    port.tell({"kind": "messages", "thread": "t1"})
    link = page.locator(".msg.private a")
    await link.wait_for()
    assert await link.count() == 1
    assert await link.get_attribute("href") == LINK
    assert await link.get_attribute("target") == "_blank"
    assert {"noopener", "noreferrer"} <= set((await link.get_attribute("rel") or "").split())
    assert (
        "“[press](https://evil.example) www.evil.example <https://evil.example>”"
        in await page.locator(".msg.private").last.inner_text()
    )
    assert await page.locator(".msg.private code", has_text="482913").count() == 1
    assert await page.locator(".msg.private", has_text="Only Alice can see this").count() == 2
    for _ in range(3):  # by keys alone, from the button that asked for it
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.tagName") == "A":
            break
    assert await page.evaluate("document.activeElement.href") == LINK
    await page.get_by_role("button", name="Bob").click()
    await page.locator(".card.status").wait_for()
    assert await page.locator(".msg.private, .msg a").count() == 0
    assert await page.locator(".card.status button").count() == 0


async def test_a_status_that_is_over_says_so_once(page: Page, port: FakePort) -> None:
    told = port.add_message("t1", AGENT, "", card=STATUS)
    port.tell({"kind": "messages", "thread": "t1"})
    await page.locator(".card.status", has_text="Paused").wait_for()
    words = "Alice connected Tracker."
    told |= {
        "card": STATUS | {"question": words, "outcome": {"kind": "approved", "text": words, "at": port.now, "result": ""}},
        "version": 9,
    }
    port.tell({"kind": "messages", "thread": "t1"})
    await page.locator(".card.status.done").wait_for()
    assert (await page.locator(".card.status").inner_text()).count(words) == 1
