"""The pages and the way between them in a browser that people use: cookies, forms and what leaves by itself.

What lives here: what only a browser decides. What does not: the whole way from a thread and back (tests/e2e/), attacks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from durable_core.model import PromptOutcome
from tests.bot.signins.desk import Desk, open_desk
from tests.e2e.browser import Visit, browsing, visiting

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as made:
        yield made


@asynccontextmanager
async def somebody(browser: Browser) -> AsyncIterator[Visit]:
    async with visiting(browser) as visit:
        visit.refusals_expected = True  # pages that say no have a status that says no
        yield visit


async def says(visit: Visit, title: str) -> None:
    await visit.page.locator("h1", has_text=title).wait_for()


async def continues(visit: Visit, code: str | None) -> None:
    await visit.page.get_by_label("Code from the private message").fill(code or "")
    await visit.page.get_by_role("button", name="Continue to Tracker").click()


async def test_a_code_is_typed_wrongly_then_rightly_and_the_account_is_connected(desk: Desk, browser: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    assert offer.code is not None
    async with somebody(browser) as alice:
        await alice.page.goto(offer.url)
        await says(alice, "Connect Alice’s Tracker account?")
        wrong = f"{(int(offer.code) + 1) % 1_000_000:06}"
        await continues(alice, wrong)
        await alice.page.get_by_role("alert").wait_for()
        assert await alice.page.evaluate("document.activeElement.name") == "code"
        await continues(alice, f"{offer.code[:3]} {offer.code[3:]}")
        await says(alice, "Tracker is connected")
        assert alice.page.url.startswith(f"{desk.url}/connect/done/")
        assert "A code alone showed that this was Alice." in await alice.page.locator("main").inner_text()
        (cookie,) = await alice.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
        assert desk.provider.referers == [None]
        await alice.page.goto(offer.url)
        await says(alice, "Tracker is connected")
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    assert len(desk.provider.exchanged) == 1


async def test_not_now_is_told_and_nothing_is_left_in_the_browser(desk: Desk, browser: Browser) -> None:
    prompt_id = await desk.asked()
    async with somebody(browser) as alice:
        await alice.page.goto((await desk.offered(prompt_id)).url)
        assert await alice.page.context.cookies() == []
        await alice.page.get_by_role("button", name="Not now").click()
        await says(alice, "Nothing was connected")
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.DENIED


async def test_a_no_at_the_provider(desk: Desk, browser: Browser) -> None:
    desk.provider.denies = True
    offer = await desk.offered(await desk.asked())
    async with somebody(browser) as alice:
        await alice.page.goto(offer.url)
        await continues(alice, offer.code)
        await says(alice, "Nothing was connected")


async def test_another_browser_can_not_go_on_with_what_one_began(desk: Desk, browser: Browser) -> None:
    offer = await desk.offered(await desk.asked())
    async with somebody(browser) as alice, somebody(browser) as mallory:
        await alice.page.goto(offer.url)
        await continues(alice, offer.code)
        await says(alice, "Tracker is connected")
        await mallory.page.goto(offer.url)
        await says(mallory, "This was begun in another browser")
        await mallory.page.goto(alice.page.url)
        assert "alice@tracker" not in await mallory.page.content()
        await alice.page.go_back()
        await says(alice, "Tracker is connected")
        assert len(desk.provider.exchanged) == 1


async def test_a_form_of_another_site_does_nothing(desk: Desk, browser: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    async with somebody(browser) as alice:
        await alice.page.goto(f"{desk.provider.url}/token")  # a page of another origin
        await alice.page.set_content(f"<form method=post action='{offer.url}/decline'><button>Look at this</button></form>")
        await alice.page.get_by_role("button").click()
        await says(alice, "could not be connected")
    assert (await desk.prompt(prompt_id)).outcome is None
    assert desk.provider.authorized == []


async def test_a_link_that_is_too_old_or_unknown(desk: Desk, browser: Browser) -> None:
    offer = await desk.offered(await desk.asked())
    async with somebody(browser) as alice:
        await alice.page.goto(f"{offer.url}x")
        await says(alice, "There is no such link")
        desk.later(minutes=11)
        await alice.page.goto(offer.url)
        await says(alice, "This link has expired")
