"""The panel of the demo: days pass at once, a deploy rolls, and nothing that waits or runs is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.demo import Demo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.browser import Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

DAY_MS = 86_400_000


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Demo]:
    """A demo whose workers hand over at once what they are at."""
    running = Demo(tmp_path / "data", variables={"MOORINGS_DRAIN_SECONDS": "0"}).start()
    yield running
    running.ensure_stopped()


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


async def test_a_deploy_rolls_past_what_waits_and_what_runs(impatient: Demo, visit: Visit) -> None:
    page = visit.page
    await visit.open(impatient.address)
    await visit.say("hello")
    await visit.message("Hello Alice! This is message 1 of this conversation.").wait_for()
    await visit.say("refund 20 for ch_1")
    await visit.card("Refund 20 for ch_1?").wait_for()
    await page.locator("#pill", has_text="Waiting for Alice").wait_for()
    waits = page.url
    await visit.new_thread()
    await visit.say("slow 600")
    [begun] = impatient.said(r"slow: start, 600 s, key (\S+), attempt 1")
    await visit.press("Deploy v2 rolling")
    await visit.shots("deploying")
    await page.locator("#panel-note", has_text="v2 is deployed").wait_for()
    [again] = impatient.said(r"slow: start, 600 s, key (\S+), attempt 2")
    assert again[1] == begun[1]
    await page.locator(".step.running", has_text="slow, attempt 2").locator(".by", has_text="v2").wait_for()
    assert "slow, attempt 1 v1 handed over by its worker" in await visit.timeline()
    await visit.shots("taken-over")

    await page.goto(waits)
    await visit.press("Approve")
    await visit.card("Refund 20 for ch_1?", settled=True).get_by_text("Refunded 20 for ch_1, receipt rf_").wait_for()
    await visit.finished()
    deployed = page.locator("#turns section .step", has_text="v2 deployed")
    assert "v1 finished its work or handed it over" in await deployed.inner_text()
    names = [name.split() for name in await page.locator("#turns section .step:has(.by)").all_inner_texts()]
    assert [(name[1], "v2" in name) for name in names] == [("Model", False), ("refund_charge", True), ("Model", True)]
    await visit.shots("deployed")
    await visit.say("hello")
    await visit.message("This is message 3 of this conversation, answered by v2.").wait_for()
    await page.get_by_role("button", name="Deploy v3 rolling").wait_for()
    assert json.loads((impatient.data / "moved.json").read_text())["deployment"] == 2
