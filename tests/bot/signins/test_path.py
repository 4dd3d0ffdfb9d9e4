"""The way from a pressed Connect to an account that is there, and every way that it can end.

What lives here: one person, one browser, a provider in every mood. What does not: attackers, deaths.
"""

from __future__ import annotations

from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk


async def through(desk: Desk, browser: Browser, prompt_id: str) -> None:
    """Press Connect, give the code, let the provider send the browser back."""
    offer = await desk.offered(prompt_id)
    await browser.open(offer.url)
    await browser.press(code=offer.code or "")
    await browser.go_on()


async def test_connect(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    assert offer.url.startswith(f"{desk.url}/connect/")
    assert offer.code is not None
    assert len(offer.code) == 6
    assert offer.url in offer.words
    assert offer.code in offer.words
    page = await alice.open(offer.url)
    assert page.status == 200, page.text
    assert "Tracker" in page.text
    assert "open_issue" in page.text
    page = await alice.press(code=offer.code)
    assert page.status == 200, page.text
    assert page.next.startswith(f"{desk.provider.url}/authorize?")
    page = await alice.go_on()
    assert page.status == 200, page.text
    assert page.url.startswith(f"{desk.url}/connect/done/")
    assert "alice@tracker" in page.text
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id, prompt.settled_by) == (PromptOutcome.APPROVED, "connected", "chat:alice")
    assert await desk.note(prompt_id) == {"account": "alice@tracker", "text": "Tracker is connected as alice@tracker."}
    credential = await desk.credential()
    assert credential is not None
    assert credential.access_token == "CANARY-access"
    assert await desk.lines() == []
