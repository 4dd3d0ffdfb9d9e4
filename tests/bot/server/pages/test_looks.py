"""The pages in a real browser, phone and desk, light and dark: nothing sideways, all of it legible, keys get everywhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from aiohttp import web

from bot.server.pages import MARK_PATH, PAGE_HEADERS, STYLE_PATH, Asset, draw, mark, style
from bot.signins.page import PageKind
from tests.bot.server.pages.samples import CODE, CONFIRM, EMOJI, HOSTILE, PAGES, RIGHT_TO_LEFT, TOO_LONG, UNSEEN, filled
from tests.e2e.browser import SHOTS, Visit, browsing, visiting

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HARD = {
    "hard-long": replace(
        CODE,
        agent=TOO_LONG,
        person=TOO_LONG,
        service="Internationaler-Rechnungsprüfungsdienst",
        scopes=tuple(f"https://example.test/auth/very/long/scope/{number}" for number in range(6)),
        tool="open_issue_in_the_tracker_of_the_whole_company_and_tell_everybody_about_it",
    ),
    "hard-right-to-left": replace(CONFIRM, agent=EMOJI, person=RIGHT_TO_LEFT, service="جيت هب", proof="email"),
    "hard-hostile": filled(PageKind.CONFIRM, HOSTILE),
    "hard-hostile-failed": filled(PageKind.FAILED, HOSTILE),
    "hard-unseen": filled(PageKind.CONNECTED, UNSEEN),
}
SHOWN = {**PAGES, **HARD}
# Width and theme don't meet in any rule; all four are for pictures.
VIEWS = [(1280, "light"), (390, "dark")] + ([(1280, "dark"), (390, "light")] if os.environ.get(SHOTS) else [])

# The least contrast of any text with what is painted behind it (WCAG 2: 1.4.3), and of the edge of what is typed into (1.4.11).
CONTRAST = """() => {
  const canvas = document.createElement("canvas"); canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const paint = (colors) => {
    pen.clearRect(0, 0, 1, 1);
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => { const c = part / 255; return c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ratio = (one, two) => { const [a, b] = [light(one), light(two)].sort((x, y) => y - x); return (a + .05) / (b + .05); };
  const behind = (node) => {
    const colors = [];
    for (let at = node; at; at = at.parentElement) colors.unshift(getComputedStyle(at).backgroundColor);
    return ["#fff", ...colors];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), node = walker.currentNode.parentElement;
    if (!text) continue;
    const under = behind(node);
    found.push([ratio(paint(under), paint([...under, getComputedStyle(node).color])), text.slice(0, 40), 4.5]);
  }
  for (const node of document.querySelectorAll("input:not([type=hidden])")) {
    const under = behind(node);
    found.push([ratio(paint(under), paint([...under, getComputedStyle(node).borderTopColor])), "edge of " + node.id, 3]);
  }
  return found;
}"""
SMALL = """() => [...document.querySelectorAll("button, a, input:not([type=hidden])")]
  .map((node) => [node.innerText, node.getBoundingClientRect().height])
  .filter(([, height]) => height < 44)"""


def _served(asset: Asset, request: web.Request) -> web.Response:
    return web.Response(body=asset.body, content_type=asset.content_type, headers=asset.headers(request.query.get("v")))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        html = draw(SHOWN[request.match_info["name"]])
        html = html.replace('http-equiv="refresh"', 'http-equiv="x-refresh"')  # it would be gone before it is looked at
        return web.Response(text=html, content_type="text/html", headers=PAGE_HEADERS)

    async def the_style(request: web.Request) -> web.Response:
        return _served(style(), request)

    async def the_mark(request: web.Request) -> web.Response:
        return _served(mark(), request)

    app = web.Application()
    app.add_routes([web.get(STYLE_PATH, the_style), web.get(MARK_PATH, the_mark), web.get("/connect/page/{name}", page)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/connect/page/"
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    async with visiting(browser) as one:
        yield one


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
async def test_every_page_fits_and_can_be_read(visit: Visit, site: str, width: int, scheme: str) -> None:
    page = visit.page
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    for name in SHOWN:
        await page.goto(site + name)
        if folder := os.environ.get(SHOTS):
            await page.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png", full_page=True)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
        contrasts = await page.evaluate(CONTRAST)
        assert len(contrasts) > 2
        assert [(name, each) for each in contrasts if each[0] < each[2]] == []
        if width < 560:
            assert await page.evaluate(SMALL) == [], name


async def test_a_text_that_is_too_pale_would_be_found(visit: Visit) -> None:
    await visit.page.set_content(
        "<body bgcolor=white><p><font color=#767676>enough</font> <font color=#777777>too pale</font></p>"
    )
    assert [each[1] for each in await visit.page.evaluate(CONTRAST) if each[0] < each[2]] == ["too pale"]


async def test_on_a_phone_the_main_action_is_seen_without_scrolling(visit: Visit, site: str) -> None:
    await visit.page.set_viewport_size({"width": 390, "height": 664})  # what Safari leaves of 844 with its bars out
    for name in ("confirm-platform", "confirm-email", "confirm-shared", "progress-leaving", "connected"):
        await visit.page.goto(site + name)
        box = await visit.page.locator(".go").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 664, name


async def test_the_keyboard_gets_everywhere_and_shows_where_it_is(visit: Visit, site: str) -> None:
    await visit.page.goto(site + "confirm-code")
    reached = []
    for _ in range(3):
        await visit.page.keyboard.press("Tab")
        reached.append(await visit.page.evaluate("document.activeElement.innerText || document.activeElement.name"))
        outline = await visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
    assert reached == ["code", "Continue to GitHub", "Not now"]


async def test_a_wrong_code_is_where_the_focus_is(visit: Visit, site: str) -> None:
    await visit.page.goto(site + "confirm-code-wrong")
    assert await visit.page.evaluate("document.activeElement.name") == "code"
    assert await visit.page.get_by_label("Code from the private message").count() == 1


async def test_nothing_moves_for_whoever_wants_no_motion(visit: Visit, site: str) -> None:
    moving = "document.getAnimations().length"
    await visit.page.goto(site + "progress-waiting")
    assert await visit.page.evaluate(moving) == 1
    await visit.page.emulate_media(reduced_motion="reduce")
    assert await visit.page.evaluate(moving) == 0


async def test_hostile_words_run_nothing(visit: Visit, site: str) -> None:
    said: list[str] = []
    visit.page.on("dialog", lambda dialog: said.append(dialog.message))
    for kind in ("hard-hostile", "hard-hostile-failed"):
        await visit.page.goto(site + kind)
        assert await visit.page.locator("script, img, iframe").count() == 0
    assert said == []
