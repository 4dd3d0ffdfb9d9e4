"""The panel of the demo: days pass at once, for both processes, and after the death of everything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.browser import Visit
    from tests.e2e.demo import Demo

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

DAY_MS = 86_400_000


async def test_three_days_pass_at_once_and_stay_passed(own_demo: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(own_demo.address)
    await visit.say("deploy api")
    await visit.card("Deploy api").wait_for()
    await visit.new_thread()
    await visit.say("refund 20 for ch_1")
    await visit.card("Refund 20 for ch_1?").get_by_text("expires in 3 days").wait_for()
    await visit.shots("before-the-move")
    await visit.press("Move clock +3 days")
    await page.locator("#panel-note", has_text="Three days have passed").wait_for()
    assert "3 days ahead" in await page.locator("#ahead").inner_text()
    await visit.message("was not run: nobody answered in time").wait_for()
    await visit.finished()
    await page.locator(".step.move", has_text="Clock moved on 3 days").wait_for()
    assert "Nobody answered in time" in await visit.card("Refund 20 for ch_1?", settled=True).inner_text()
    await visit.shots("moved-on")
    await page.get_by_role("button", name="deploy api").first.click()
    await visit.message("api was not deployed: nobody answered in time").wait_for()

    visit.outage_expected = True
    own_demo.kill()
    await page.locator("#banner", has_text="Reconnecting").wait_for()
    own_demo.start()
    own_demo.said("Moorings clock: 3 days ahead")
    await page.locator("#banner").wait_for(state="hidden")
    visit.outage_expected = False
    await visit.say("hello")
    await visit.message("Hello Alice!").wait_for()
    await visit.finished()
    assert "3 days ahead" in await page.locator("#ahead").inner_text()
    moved = json.loads((own_demo.data / "moved.json").read_text())
    assert moved["ahead_ms"] == 3 * DAY_MS
