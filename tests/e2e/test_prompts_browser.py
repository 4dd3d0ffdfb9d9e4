"""Requests from the question to their end on the console's page: several people, a clock that is moved, forms, shared cards.

With MOORINGS_TEST_SHOTS=FOLDER each state is kept as a picture.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.e2e.browser import Visit, visiting
from tests.e2e.prompts_app import HOUR, Served, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One app for the module; each test opens a thread of its own."""
    async with serving(tmp_path_factory.mktemp("prompts")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser, served: Served) -> AsyncIterator[Visit]:
    """One page for the module."""
    async with visiting(browser) as one:
        await one.open(served.address)
        yield one


async def asked(visit: Visit, text: str) -> None:
    """Have Alice ask for something in a new thread."""
    await visit.new_thread()
    await visit.speak_as("Alice")
    await visit.say(text)


async def refused(visit: Visit, who: str, reason: str, *, button: str = "Approve") -> None:
    """Have somebody press a button in vain: they alone are told why, and the card stays as it is."""
    await visit.speak_as(who)
    await visit.press(button)
    await visit.page.locator(".card .said", has_text=reason).wait_for()
    assert await visit.page.get_by_role("button", name=button, exact=True).is_enabled()


async def test_two_of_the_owners_have_to_agree(page: Visit) -> None:
    await asked(page, "drop")
    card = page.card("Drop the table orders_2019?")
    await card.get_by_text("0 of 2 approved").wait_for()
    await refused(page, "Alice", "Only two of the owners may answer this.")
    await page.shots("prompts-refused")
    await page.speak_as("Bob")
    assert await page.page.locator(".card .said").count() == 0
    await page.press("Approve")
    await card.get_by_text("1 of 2 approved: Bob").wait_for()
    await page.shots("prompts-one-of-two")
    await refused(page, "Bob", "You approved this before, and each person counts once. 1 more person has to approve.")
    await page.speak_as("Farah")
    await page.press("Approve")
    settled = page.card("Drop the table", settled=True)
    await settled.get_by_text("Dropped orders_2019.").wait_for()
    assert "Approved by Bob and Farah at" in await settled.inner_text()
    assert await settled.get_by_role("button").count() == 0
    await page.finished()
    await page.shots("prompts-approved-by-two")


async def test_who_is_late_is_reminded_once_then_it_is_handed_on(page: Visit, served: Served) -> None:
    await asked(page, "wire")
    card = page.card("Wire 4800 to")
    await card.get_by_text("Whoever is on call may answer.").wait_for()
    served.later(HOUR)
    reminder = page.page.locator(".msg.notice", has_text="Still unanswered: “Wire 4800 to DE02")
    await reminder.wait_for()
    await page.shots("prompts-reminded")
    served.later(3 * HOUR)
    handed = page.page.locator(".msg.notice", has_text="Nobody answered in time, so now a team lead may answer")
    await handed.wait_for()
    await page.page.locator("#pill", has_text="Waiting for a team lead").wait_for()
    assert await reminder.count() == 1
    await card.get_by_text("A team lead may answer, as nobody did in time.").wait_for()
    await refused(page, "Bob", "Only a team lead may answer this.")
    await page.shots("prompts-handed-on")
    await page.speak_as("Farah")
    await page.press("Approve")
    settled = page.card("Wire 4800", settled=True)
    await settled.get_by_text("with Farah's yes.").wait_for()
    assert "Approved by Farah at" in await settled.inner_text()
    await page.finished()
    assert await reminder.count() == 1


async def test_what_nobody_answers_is_not_run(page: Visit, served: Served) -> None:
    await asked(page, "archive")
    await page.card("Archive lighthouse?").wait_for()
    served.later(2 * HOUR)
    settled = page.card("Archive lighthouse?", settled=True)
    await settled.get_by_text("Nobody answered in time. It did not run").wait_for()
    await page.message("archive: expired").wait_for()
    await page.finished()
    await page.shots("prompts-expired")

    await asked(page, "restart")
    await page.card("Restart search?").wait_for()
    served.later(2 * HOUR)
    await page.card("Restart search?", settled=True).get_by_text("Nobody answered in time. It did not run").wait_for()
    await page.page.locator("#pill", has_text="Cancelled").wait_for()
    assert await page.message("restart: ").count() == 0
    await page.shots("prompts-expired-turn-cancelled")


async def test_an_invoice_is_changed_before_it_is_approved(page: Visit) -> None:
    await asked(page, "invoice")
    await page.card("Invoice Nordwind for 1200?").wait_for()
    await page.shots("prompts-open")
    await page.press("Change first")
    await page.page.get_by_label("amount").fill("twelve")
    await page.page.locator(".fill").get_by_role("button", name="Approve with changes").click()
    await page.page.locator(".card .said", has_text="Not valid: write amount in the form").wait_for()
    await page.shots("prompts-form-refused")
    await page.page.get_by_label("amount").fill("1150")
    await page.page.get_by_label("text").fill("Consulting in May,\nthree days")
    await page.shots("prompts-form-changed")
    await page.page.locator(".fill").get_by_role("button", name="Approve with changes").click()
    settled = page.card("Invoice Nordwind", settled=True)
    await settled.get_by_text("Invoiced Nordwind for 1150: Consulting in May, three days").wait_for()
    assert "Alice changed" not in await settled.inner_text()
    assert "Approved by Alice with changes" in await settled.inner_text()
    assert (await settled.locator(".changed dd").all_inner_texts()) == ["1150", "Consulting in May,\\nthree days"]
    await page.finished()
    await page.shots("prompts-approved-with-changes")


async def test_of_two_on_a_card_one_runs_while_the_other_waits(page: Visit) -> None:
    await asked(page, "mails")
    first, second = page.page.locator(".item").nth(0), page.page.locator(".item").nth(1)
    await second.get_by_role("button", name="Approve", exact=True).wait_for()
    await page.shots("prompts-several")
    await second.get_by_role("button", name="Approve", exact=True).click()
    await second.get_by_text("Wrote to ben@example.org.").wait_for()
    assert await first.get_by_role("button", name="Approve", exact=True).is_enabled()
    assert await page.page.get_by_role("button", name="Approve all").count() == 0
    await page.shots("prompts-partly-approved")
    await first.get_by_role("button", name="Approve", exact=True).click()
    await first.get_by_text("Wrote to ann@example.org.").wait_for()
    await page.finished()

    await asked(page, "mails")
    await page.press("Approve all")
    for place in (0, 1):
        await page.page.locator(".item.done").nth(place).get_by_text("Wrote to").wait_for()
    await page.finished()
    assert await page.page.locator(".card button").count() == 0
    assert await page.page.locator("#turns .turn .step b", has_text="mail").count() == 2
    await page.shots("prompts-all-approved")


async def test_questions_are_answered_from_a_list_and_in_words(page: Visit) -> None:
    await asked(page, "where")
    await page.page.get_by_label("Choose an answer").select_option("Lisbon")
    await page.shots("prompts-select")
    await page.press("Answer")
    await page.card("Where shall it run?", settled=True).get_by_text("Answered by Alice: Lisbon").wait_for()
    await page.finished()
    assert "ask_question" not in (await page.timeline()).replace("asked for ask_question", "")
    await page.shots("prompts-answered")

    await asked(page, "why")
    await page.press("Answer in words")
    await page.page.get_by_label("Your answer").fill("The lorry broke down.")
    await page.shots("prompts-form-words")
    await page.page.locator(".fill").get_by_role("button", name="Send").click()
    settled = page.card("Why is it late?", settled=True)
    await settled.locator("blockquote", has_text="The lorry broke down.").wait_for()
    await page.finished()


async def test_a_denial_says_why(page: Visit) -> None:
    await asked(page, "archive")
    await page.press("Deny with a note")
    await page.page.locator(".fill textarea").fill("Not before the audit.")
    await page.page.locator(".fill").get_by_role("button", name="Deny").click()
    settled = page.card("Archive lighthouse?", settled=True)
    await settled.locator("blockquote", has_text="Not before the audit.").wait_for()
    assert "Denied by Alice at" in await settled.inner_text()
    await page.message("Not before the audit.").last.wait_for()
    await page.finished()
    await page.shots("prompts-denied")


async def test_who_writes_on_withdraws_the_card(page: Visit) -> None:
    await asked(page, "archive")
    await page.card("Archive lighthouse?").wait_for()
    await page.say("hello instead")
    await page.card("Archive lighthouse?", settled=True).get_by_text("No longer needed: Alice wrote on").wait_for()
    await page.message("You said: hello instead").wait_for()
    await page.finished()
    await page.shots("prompts-withdrawn")
