"""Signing in as the README tells it: the real demo, its own provider, a real browser, and a kill on the way."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.e2e.signing import CONNECT, Signing, shot

if TYPE_CHECKING:
    from tests.e2e.browser import Visit
    from tests.e2e.demo import Demo

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def issues(demo: Demo) -> list[tuple[str, str]]:
    """Read from the provider's file who opened what."""
    with closing(sqlite3.connect(f"file:{demo.data / 'tracker.db'}?mode=ro", uri=True)) as database:
        return list(database.execute("SELECT title, email FROM issue ORDER BY number"))


async def test_a_call_goes_on_as_who_signed_in(own_demo: Demo, visit: Visit) -> None:
    signing, page = Signing(visit), visit.page
    await visit.open(own_demo.address)
    await visit.say("issue Broken link")
    await signing.card.wait_for()
    await signing.status.wait_for()
    assert await signing.status.locator("a").count() == 0
    assert await signing.status.get_by_role("button").count() == 0
    await visit.shots("sign-in-card")
    await visit.speak_as("Bob")
    await signing.card.wait_for(state="detached")
    await signing.status.wait_for()
    assert await page.get_by_role("button", name=CONNECT).count() == 0
    await visit.speak_as("Alice")

    tab = await signing.to_provider()
    await shot(tab, visit, "sign-in-provider")
    assert issues(own_demo) == []
    await tab.get_by_role("button", name="Authorize").click()
    await tab.get_by_role("heading", name="is connected").wait_for()
    assert "code=" not in tab.url
    assert "state=" not in tab.url
    await shot(tab, visit, "sign-in-connected")
    await tab.close()
    await visit.message("Opened issue #1 “Broken link” as Alice.").wait_for()
    await visit.message("Alice connected Demo tracker.").wait_for()
    await visit.finished()
    assert await page.locator("#turns .turn").count() == 1
    assert "connected by Alice, held nothing meanwhile" in await visit.timeline()
    assert issues(own_demo) == [("Broken link", "alice@example.test")]
    await visit.shots("sign-in-done")

    await visit.say("issue Second")
    await visit.message("Opened issue #2 “Second” as Alice.").wait_for()
    assert await signing.card.count() == 0

    await visit.press("Revoke token of Alice")
    await page.locator("#panel-note", has_text="Revoked at").wait_for()
    await visit.say("issue Third")
    await (await signing.sign_in()).close()
    await visit.message("Opened issue #3 “Third” as Alice.").wait_for()
    await visit.say("issue Fourth")
    await visit.message("Opened issue #4 “Fourth” as Alice.").wait_for()
    assert await signing.card.count() == 0

    await visit.say("disconnect tracker")
    await visit.message("Disconnected Demo tracker: Alice's account was revoked there and forgotten here.").wait_for()
    await visit.press("Revoke token of Alice")
    await page.locator("#panel-note", has_text="nothing to revoke").wait_for()
    assert [title for title, _ in issues(own_demo)] == ["Broken link", "Second", "Third", "Fourth"]


async def test_a_refusal_is_told_and_the_turn_goes_on(demo: Demo, visit: Visit) -> None:
    signing = Signing(visit)
    await visit.open(demo.address)
    await visit.new_thread()
    await visit.speak_as("Alice")
    await visit.say("issue Never mind")
    tab = await signing.to_provider()
    await tab.get_by_role("button", name="Refuse").click()
    await tab.get_by_role("heading", name="Nothing was connected").wait_for()
    await tab.close()
    await visit.message("open_issue was not run: it was denied. Alice did not connect Demo tracker.").wait_for()
    await visit.finished()
    await visit.message("Alice did not connect Demo tracker.").first.wait_for()
    await visit.say("hello")
    await visit.message("Hello Alice!").wait_for()
    assert await signing.card.count() == 0


async def test_a_kill_while_the_person_is_at_the_provider_loses_nothing(own_demo: Demo, visit: Visit) -> None:
    signing, page = Signing(visit), visit.page
    await visit.open(own_demo.address)
    await visit.say("issue Killed meanwhile")
    tab = await signing.to_provider()
    visit.outage_expected = True
    own_demo.kill()
    await page.locator("#banner", has_text="Reconnecting").wait_for()
    own_demo.start()
    await page.locator("#banner").wait_for(state="hidden")
    visit.outage_expected = False
    await tab.get_by_role("button", name="Authorize").click()
    await tab.get_by_role("heading", name="is connected").wait_for()
    await tab.close()
    await visit.message("Opened issue #1 “Killed meanwhile” as Alice.").wait_for()
    await visit.finished()
    assert issues(own_demo) == [("Killed meanwhile", "alice@example.test")]


async def test_another_address_is_not_bound_without_the_code(own_demo: Demo, visit: Visit) -> None:
    signing = Signing(visit)
    await visit.open(own_demo.address)
    await visit.say("issue From my other account")
    tab = await signing.to_provider()
    await tab.get_by_label("Bob").check()
    signing.refusal_expected = True
    await tab.get_by_role("button", name="Authorize").click()
    await tab.get_by_text("Nothing was connected.").first.wait_for()
    await shot(tab, visit, "sign-in-other-address")
    await tab.close()
    signing.refusal_expected = False
    assert await signing.card.count() == 1
    await visit.press("Revoke token of Alice")
    await visit.page.locator("#panel-note", has_text="nothing to revoke").wait_for()

    tab = await signing.connect()
    told = await visit.page.locator(".msg.private", has_text="this code").last.inner_text()
    [code] = re.findall(r"this code:\s*(\d{6})\b", told)
    await shot(tab, visit, "sign-in-code")
    await tab.get_by_label("Code from the private message").fill(code)
    await tab.get_by_role("button", name="Continue to Demo tracker").click()
    await tab.get_by_label("Bob").check()
    await tab.get_by_role("button", name="Authorize").click()
    await tab.get_by_role("heading", name="is connected").wait_for()
    assert "A code alone showed" in await tab.inner_text("main")
    await tab.close()
    await visit.message("Opened issue #1 “From my other account” as Bob.").wait_for()
    assert issues(own_demo) == [("From my other account", "bob@example.test")]
