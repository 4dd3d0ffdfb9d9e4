"""Signing in, in a real browser at a real provider: from the card in the thread to the page and back into the same turn.

With MOORINGS_TEST_SHOTS=FOLDER each page is kept as a picture.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from operator import ne
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bot.principal import Principal
from channels.events import Standing
from tests.e2e.browser import Visit, visiting
from tests.e2e.signin_app import Served, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from tests.oidc import OidcPeer

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
DONE = "At the tracker you are {}@example.test."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, oidc_process: OidcPeer) -> AsyncIterator[Served]:
    """One app for the module; each test is somebody else's."""
    async with serving(tmp_path_factory.mktemp("sign-in"), oidc_process) as running:
        yield running


@asynccontextmanager
async def person(browser: Browser, served: Served, name: str) -> AsyncIterator[Visit]:
    """Open the console's page as somebody, in a new thread."""
    async with visiting(browser, theirs=served.peer.issuer) as visit:
        await visit.open(served.console)
        await visit.new_thread()
        await visit.speak_as(name)
        yield visit


async def press_connect(visit: Visit) -> str:
    """Press Connect on the card and return the address that is told in private."""
    await visit.press("Connect Tracker")
    link = visit.page.locator("#messages .msg.private a[href*='/connect/']").last
    await link.wait_for()
    address = await link.get_attribute("href")
    assert address is not None
    return address


@asynccontextmanager
async def tab(visit: Visit, address: str) -> AsyncIterator[Visit]:
    """Open an address in another tab of the same browser."""
    page = await visit.page.context.new_page()
    other = Visit(page, theirs=visit.theirs)
    other.refusals_expected = True  # pages that say no have a status that says no
    await page.goto(address)
    yield other
    await page.close()
    assert other.complaints == []
    assert other.abroad == []


async def go_on(page: Page) -> None:
    """Press the one main button, and wait until the provider has been reached."""
    await page.get_by_role("button", name=re.compile("^Continue")).click()
    await page.wait_for_url(re.compile("/interaction/"))


async def sign_in_there(page: Page, login: str, *, back: str) -> None:
    """Log in at the provider and agree, as far as it asks."""
    while not page.url.startswith(back):
        if await page.locator("input[name=login]").count():
            await page.fill("input[name=login]", login)
            await page.fill("input[name=password]", "any")
        elsewhere = partial(ne, page.url)
        await page.locator("button[type=submit]").click()
        await page.wait_for_url(elsewhere)


async def title(page: Page, text: str) -> None:
    await page.locator("h1", has_text=text).wait_for()


async def connect(visit: Visit, served: Served, login: str) -> None:
    """Go the whole way, from the card to the page that says so."""
    async with tab(visit, await press_connect(visit)) as other:
        await title(other.page, f"Connect {login.capitalize()}’s Tracker account?")
        await go_on(other.page)
        await sign_in_there(other.page, login, back=served.url)
        await title(other.page, "Tracker is connected")


async def test_an_account_is_connected_once_renewed_once_and_asked_for_again_once_it_is_revoked(
    browser: Browser, served: Served
) -> None:
    peer = served.peer
    peer.reset()
    async with person(browser, served, "Alice") as alice:
        await alice.say("whoami")
        async with tab(alice, await press_connect(alice)) as page:
            await title(page.page, "Connect Alice’s Tracker account?")
            await page.shots("flow-confirm")
            await go_on(page.page)
            await sign_in_there(page.page, "alice", back=served.url)
            await title(page.page, "Tracker is connected")
            assert "/connect/done/" in page.page.url
            assert "code=" not in page.page.url
            await page.shots("flow-connected")
            await page.page.reload()
            await title(page.page, "Tracker is connected")
            await page.page.get_by_role("link", name="Back to the console").click()
            await page.message(DONE.format("alice")).last.wait_for()
        await alice.message(DONE.format("alice")).last.wait_for()
        await alice.finished()
        await alice.shots("flow-thread")
        assert [one["grant_type"] for one in peer.asked()] == ["authorization_code"]

        await alice.new_thread()
        await alice.say("whoami")
        await alice.message(DONE.format("alice")).last.wait_for()
        assert await alice.page.get_by_role("button", name="Connect Tracker").count() == 0
        assert peer.asked("refresh_token") == []

        served.later(timedelta(hours=2))
        await alice.new_thread()
        await alice.say("whoami")
        await alice.message(DONE.format("alice")).last.wait_for()
        assert [one["outcome"] for one in peer.asked("refresh_token")] == ["granted"]

        peer.revoke("alice")
        peer.settings(skew=0)  # who signs in is judged by this machine's clock
        await alice.new_thread()
        await alice.say("whoami")
        await connect(alice, served, "alice")
        await alice.message(DONE.format("alice")).last.wait_for()
        await alice.finished()
        assert await alice.page.locator(".msg.private .card").count() == 1
        assert len(peer.asked("authorization_code")) == 2


async def test_a_no_at_the_provider_goes_back_to_the_thread(browser: Browser, served: Served) -> None:
    async with person(browser, served, "Bob") as bob:
        await bob.say("whoami")
        async with tab(bob, await press_connect(bob)) as page:
            await go_on(page.page)
            await page.page.get_by_role("link", name="Cancel").click()
            await title(page.page, "Nothing was connected")
            await page.shots("flow-declined")
        await bob.message("whoami: ").last.wait_for()
        await bob.finished()
        assert await bob.page.get_by_role("button", name="Connect Tracker").count() == 0


async def test_a_no_on_our_page_goes_back_to_the_thread(browser: Browser, served: Served) -> None:
    async with person(browser, served, "Bob") as bob:
        await bob.say("whoami")
        async with tab(bob, await press_connect(bob)) as page:
            await page.page.get_by_role("button", name="Not now").click()
            await title(page.page, "Nothing was connected")
        await bob.message("whoami: ").last.wait_for()
        await bob.finished()


async def test_scanners_change_nothing_and_another_browser_gets_nothing_of_what_one_has_begun(
    browser: Browser, served: Served
) -> None:
    async with person(browser, served, "Farah") as farah:
        await farah.say("whoami")
        address = await press_connect(farah)
        for _ in range(2):
            async with visiting(browser) as scanner:
                await scanner.page.goto(address)
                await title(scanner.page, "Connect Farah’s Tracker account?")
                assert await scanner.page.context.cookies() == []
        async with tab(farah, address) as page:
            await go_on(page.page)
            async with visiting(browser, theirs=served.peer.issuer) as stranger:
                stranger.refusals_expected = True
                await stranger.page.goto(address)
                await title(stranger.page, "another browser")
                assert "farah" not in (await stranger.page.content()).lower()
                await stranger.shots("flow-other-browser")
            await sign_in_there(page.page, "farah", back=served.url)
            await title(page.page, "Tracker is connected")
        await farah.message(DONE.format("farah")).last.wait_for()


@pytest.mark.postgres
async def test_two_replicas_that_renew_at_once_ask_once(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, oidc_process: OidcPeer, migrated_url: str
) -> None:
    oidc_process.reset()
    folder = tmp_path_factory.mktemp("shared")  # of two processes on one machine: so is the console
    async with serving(folder, oidc_process, database=migrated_url) as one:
        two_more = serving(folder, oidc_process, database=migrated_url, like=one)
        async with two_more as two, person(browser, one, "Alice") as alice:
            await alice.say("whoami")
            await connect(alice, one, "alice")
            await alice.message(DONE.format("alice")).last.wait_for()
            (kept,) = await one.runtime.connections.listed()
            requester = Principal(kept.owner, "Alice", Standing.MEMBER, channel="console")
            one.later(timedelta(hours=2))
            first, second = await asyncio.gather(
                *(replica.runtime.connections.token(replica.need, requester) for replica in (one, two))
            )
            assert first == second
            assert [asked["outcome"] for asked in oidc_process.asked("refresh_token")] == ["granted"]
