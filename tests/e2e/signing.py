"""A person who signs in from the console's page: the private card, the link, our page, the demo's provider.

What lives here: those steps in a browser, what its tabs complain of. What does not: expectations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Locator, Page

    from tests.e2e.browser import Visit

CONNECT = "Connect Demo tracker"


class Signing:
    """Sign-ins of one visit; each happens in a tab of its own."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.refusal_expected = False

    @property
    def card(self) -> Locator:
        """The private card that asks."""
        return self.visit.page.locator(".msg.private .card:not(.done)", has_text="Demo tracker")

    @property
    def status(self) -> Locator:
        """What everybody sees."""
        return self.visit.message("Paused: waiting for Alice to connect Demo tracker.")

    async def connect(self) -> Page:
        """Press Connect, wait for the link and open it in a new tab."""
        links = self.visit.page.locator('.msg.private a[href*="/connect/"]')
        before = await links.count()
        await self.card.get_by_role("button", name=CONNECT).click()
        link = links.nth(before)
        await link.wait_for()
        async with self.visit.page.context.expect_page() as opened:
            await link.click()
        tab = await opened.value
        self.watch(tab)
        await tab.get_by_role("heading", name="Connect").wait_for()
        return tab

    async def to_provider(self) -> Page:
        """Go on as far as the provider's page."""
        tab = await self.connect()
        await tab.get_by_role("button", name="Continue to Demo tracker").click()
        await tab.get_by_role("heading", name="asks to use your demo account").wait_for()
        return tab

    async def sign_in(self) -> Page:
        """Go all the way, as Alice; ends at the page that says so."""
        tab = await self.to_provider()
        await tab.get_by_role("button", name="Authorize").click()
        await tab.get_by_role("heading", name="is connected").wait_for()
        return tab

    def watch(self, tab: Page) -> None:
        """Hear what the browser says about a tab, as about the page."""
        tab.on("pageerror", lambda error: self.visit.complaints.append(str(error)))
        tab.on("console", self._heard)
        tab.on("request", self.visit._asked)

    def _heard(self, line: ConsoleMessage) -> None:
        """Pass on what is heard, but for the status of a page that says no."""
        if not (self.refusal_expected and line.text.startswith("Failed to load resource")):
            self.visit._heard(line)


async def shot(tab: Page, visit: Visit, name: str) -> None:
    """Keep pictures of a tab, where the run asks for them."""
    page, visit.page = visit.page, tab
    try:
        await visit.shots(name)
    finally:
        visit.page = page
