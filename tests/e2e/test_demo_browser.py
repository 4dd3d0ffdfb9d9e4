"""The demo as a person meets it: the real processes, a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from tests.e2e.browser import Visit
    from tests.e2e.demo import Demo

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Theme = Literal["light", "dark"]
_FOCUSED = "document.activeElement.textContent.trim()"


async def test_talk_approve_and_be_refused(demo: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(demo.address)
    await visit.new_thread()
    await visit.shots("empty")
    await visit.say("hello")
    await visit.message("Hello Alice! This is message 1 of this conversation.").wait_for()

    await visit.say("refund 20 for ch_1")
    assert "Alice may answer. It runs once, as Alice." in await visit.card("Refund 20 for ch_1?").inner_text()
    await visit.press("Approve")
    settled = visit.card("Refund 20 for ch_1?", settled=True)
    await settled.get_by_text("Refunded 20 for ch_1, receipt rf_").wait_for()
    assert "Approved by Alice at" in await settled.inner_text()
    assert await settled.get_by_role("button").count() == 0
    await visit.finished()

    await visit.say("refund 140 for ch_2")
    await visit.card("Refund 140 for ch_2?").wait_for()
    await visit.press("Approve")
    await page.locator(".card .said", has_text="may").wait_for()
    assert await page.get_by_role("button", name="Approve", exact=True).is_enabled()
    await visit.shots("refused")
    await visit.speak_as("Farah")
    assert await page.locator(".card .said").count() == 0
    await visit.press("Approve")
    settled = visit.card("Refund 140 for ch_2?", settled=True)
    await settled.get_by_text("Refunded 140 for ch_2, receipt rf_").wait_for()
    assert "Approved by Farah at" in await settled.inner_text()
    await visit.finished()

    await visit.speak_as("Guest")
    await visit.say("let me in")
    await page.locator(".msg.private", has_text="Guests can't use this bot.").wait_for()
    await visit.shots("guest")
    assert "Only Guest can see this" in await page.locator(".msg.private").inner_text()
    await visit.speak_as("Bob")
    await page.locator(".msg.private").wait_for(state="detached")

    await visit.speak_as("Alice")
    before = await visit.told()
    await page.reload()
    await visit.message("let me in").wait_for()
    assert await visit.told() == before
    assert await page.locator(".card.done").count() == 2


async def test_a_killed_worker_costs_nothing_but_time(demo: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(demo.address)
    await visit.new_thread()
    await visit.say("slow 5")
    [start] = demo.said(r"slow: start, 5 s, key (\S+), attempt 1")
    await page.locator("#pill", has_text="Working").wait_for()
    await page.get_by_role("button", name="Kill worker").click()
    await page.locator("#panel-note", has_text="Killed").wait_for()
    await page.locator(".step.running", has_text="slow, attempt 2").wait_for()
    await visit.shots("running-again")
    await visit.message("That took 5 s.").wait_for()
    await visit.finished()
    [end] = demo.said(r"slow: end, 5 s, key (\S+), attempt 2")
    assert end[1] == start[1]

    told, happened = await visit.told(), await visit.timeline()
    assert len([text for text in told if "That took 5 s." in text]) == 1
    assert "2 attempts" in happened
    assert re.search(r"slow, attempt 1 worker killed before \d\d:\d\d:\d\d", happened)
    assert "slow, attempt 2 model reply reused, tool ran again with the same key" in happened
    assert await page.locator(".step.cut").count() == 1
    await visit.shots("killed")
    await page.reload()
    await visit.message("That took 5 s.").wait_for()
    await page.locator(".step.cut").wait_for()
    assert await visit.told() == told
    assert await visit.timeline() == happened


async def test_words_show_as_they_are_written(demo: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(demo.address)
    await visit.new_thread()
    await visit.say("stream 40")
    growing = page.locator("#live .text")
    seen = []
    for words in (3, 9, 18):
        await growing.filter(has_text=re.compile(rf"^\s*(\S+\s+){{{words}}}")).wait_for()
        seen.append(len((await growing.inner_text()).split()))
        assert await visit.message("harbour anchor rope").count() == 0
    assert seen == sorted(seen)
    assert seen[-1] < 40
    await visit.message("harbour anchor rope").wait_for()
    await visit.finished()
    assert len((await visit.message("harbour").locator(".text").inner_text()).split()) == 40
    assert await growing.count() == 0


async def test_a_card_survives_the_death_of_everything(own_demo: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(own_demo.address)
    await visit.say("refund 20 for ch_7")
    await visit.card("Refund 20 for ch_7?").wait_for()
    await page.locator("#pill", has_text="Waiting for Alice").wait_for()
    told, thread = await visit.told(), page.url
    visit.outage_expected = True
    own_demo.kill()
    await page.locator("#banner", has_text="Reconnecting").wait_for()
    await page.fill("#say", "a draft")
    await visit.shots("reconnecting")
    own_demo.start()
    await page.locator("#banner").wait_for(state="hidden")
    visit.outage_expected = False
    assert await page.input_value("#say") == "a draft"
    await page.reload()
    await visit.card("Refund 20 for ch_7?").wait_for()
    assert (await visit.told(), page.url) == (told, thread)
    await visit.press("Approve")
    await visit.card("Refund 20 for ch_7?", settled=True).get_by_text("Refunded 20 for ch_7").wait_for()
    await visit.finished()
    assert [text for text in await visit.told() if text.startswith("Support") and "receipt rf_0001" in text]


async def test_the_keyboard_is_enough(demo: Demo, visit: Visit) -> None:
    page, keys = visit.page, visit.page.keyboard
    await visit.open(demo.address)
    await page.reload()
    await page.locator("#cast button").first.wait_for()
    await keys.press("Tab")
    assert await page.evaluate(_FOCUSED) == "Skip to the message box"
    for _ in range(12):
        if await page.evaluate(_FOCUSED) == "New thread":
            break
        await keys.press("Tab")
    await keys.press("Enter")
    await page.locator("#say:focus").wait_for()
    await keys.type("refund 20 for ch_9")
    await keys.press("Enter")
    await visit.card("Refund 20 for ch_9?").wait_for()
    for _ in range(6):
        await keys.press("Shift+Tab")
        if await page.evaluate(_FOCUSED) == "Approve":
            break
    assert await page.evaluate("document.activeElement.matches(':focus-visible')")
    await keys.press("Enter")
    await visit.card("Refund 20 for ch_9?", settled=True).wait_for()
    assert await page.evaluate("document.activeElement.matches('.msg:has(.card.done), .msg .card.done *')")
    await visit.finished()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_phone_reaches_everything(demo: Demo, visit: Visit, theme: Theme) -> None:
    page = visit.page
    await page.emulate_media(color_scheme=theme)
    await page.set_viewport_size({"width": 390, "height": 844})
    await visit.open(demo.address)
    for opens, inside, shuts in (
        ("Speakers and threads", "#cast", "Close the list"),
        ("What happened", "#kill", "Close what happened"),
    ):
        for escape in (False, True):
            await page.get_by_role("button", name=opens, exact=True).click()
            await page.locator(inside).wait_for(state="visible")
            await (page.keyboard.press("Escape") if escape else page.get_by_role("button", name=shuts).click())
            await page.locator(inside).wait_for(state="hidden")
    await page.get_by_role("button", name="Speakers and threads", exact=True).click()
    await visit.new_thread()
    await page.locator("#cast").wait_for(state="hidden")
    await visit.say("refund 140 for ch_" + "1234567890" * 5)
    await visit.press("Approve")
    await page.locator(".card .said").wait_for()
    await visit.shots(f"long-value-refused-on-{theme}")
    await page.emulate_media(color_scheme=theme)
    await visit.press("Deny")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert await page.evaluate("document.getElementById('thread').scrollWidth") <= 390
    dark = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(18, 22, 28)"
    assert dark is (theme == "dark")


async def test_a_denial_with_a_note_is_quoted_on_the_card(demo: Demo, visit: Visit) -> None:
    await visit.open(demo.address)
    await visit.new_thread()
    await visit.speak_as("Alice")
    await visit.say("refund 40 for ch_1")
    await visit.card("Refund 40").get_by_role("button", name="Deny with a note").click()
    await visit.page.locator(".fill textarea").fill("Not this month")
    await visit.page.keyboard.press("Control+Enter")
    settled = visit.card("Refund 40", settled=True)
    await settled.wait_for()
    assert "Denied by Alice at" in await settled.inner_text()
    assert await settled.locator("blockquote").inner_text() == "Not this month"
    await visit.finished()
    assert await visit.page.locator(".fill").count() == 0
