"""Every state of a card on the console's page, at both widths in both themes: nothing scrolls sideways, all is there by keyboard.

With MOORINGS_TEST_SHOTS=FOLDER each state is kept as a picture.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web

from bot.cards import card
from bot.console.page import install_console
from bot.console.security import loopback_guard
from durable_core.model import Prompt, PromptOutcome
from tests.bot.asked import DAY, prompt, settled, vote
from tests.bot.asked import option as choice
from tests.bot.console.fake_port import AGENT, FakePort, author
from tests.e2e.browser import Visit, visiting

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

NUMBERS = itertools.count()
NOW = int(time.time() * 1000)
EDIT = [
    {"name": "amount", "label": "amount", "value": '"140.00"', "multiline": False},
    {"name": "reason", "label": "reason", "value": '"the parcel never arrived"', "multiline": True},
]
REGIONS = [choice(f"r{number}", f"Region {number}", description=f"{number * 12} ms away") for number in range(1, 9)]


CUT_OFF = """
    [...document.querySelectorAll('#thread, .card, .card :not(.hidden)')]
        .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1)
        .filter((one) => getComputedStyle(one).overflowX !== 'visible')
        .map((one) => one.className)
"""


def asked(text: str, number: int = 1, **more: Any) -> Prompt:
    row = {"expires_at": NOW + 3 * DAY, "call_id": f"0.0.{number}", "group": "prm_1"}
    return prompt(text, f"prm_{number}", row=row, note=True, **more)


def of_three(*outcomes: PromptOutcome | None) -> list[Prompt]:
    three = [
        asked("Refund €140.00 for ch_1?", 1, edit=EDIT, evidence=["Read since the request: charge ch_1 (payments)"]),
        asked("Refund €20.00 for ch_2?", 2, fields=[["Tool", "refund_charge"], ["charge_id", "ch_2"], ["note", "x" * 900]]),
        replace(asked("Send the receipt to alice@example.org?", 3, quorum=2), quorum=2, votes=(vote("Bob"),)),
    ]
    notes = ({"edits": {"amount": "120.00"}}, {"text": "Not this month:\nthe budget is spent."}, None)
    return [
        one if outcome is None else settled(one, outcome, at=NOW - 60_000, note=note)
        for one, outcome, note in zip(three, outcomes, notes, strict=True)
    ]


REFUND = replace(asked("Refund €140.00 for ch_1?", edit=EDIT, evidence=["Read since the request: charge ch_1"]), group=None)
QUESTION = asked("Which region shall it run in?", kind="question", detail="Alice may answer.", action=None, fields=[])
STATES: dict[str, Callable[[], Sequence[Prompt]]] = {
    "open": lambda: [REFUND],
    "votes": lambda: [replace(REFUND, quorum=2, votes=(vote("Alice"),))],
    "handed-on": lambda: [replace(REFUND, level=1, asked="The head of finance")],
    "several": lambda: of_three(None, None, None),
    "partly": lambda: of_three(PromptOutcome.APPROVED, PromptOutcome.DENIED, None),
    "several-settled": lambda: of_three(PromptOutcome.APPROVED, PromptOutcome.DENIED, PromptOutcome.EXPIRED),
    "approved": lambda: [settled(REFUND, PromptOutcome.APPROVED, at=NOW)],
    "edited": lambda: [
        settled(REFUND, PromptOutcome.APPROVED, at=NOW, note={"edits": {"amount": "120.00", "reason": "half of it"}})
    ],
    "denied": lambda: [settled(REFUND, PromptOutcome.DENIED, at=NOW, note={"text": "Not this month."})],
    "overridden": lambda: [settled(REFUND, PromptOutcome.APPROVED, by="Olga", at=NOW, note={"reason": "The shop is on fire."})],
    "expired": lambda: [settled(REFUND, PromptOutcome.EXPIRED, at=NOW)],
    "ignored": lambda: [settled(REFUND, PromptOutcome.IGNORED, at=NOW)],
    "cancelled": lambda: [settled(REFUND, PromptOutcome.CANCELLED, at=NOW)],
    "select": lambda: [prompt_of(QUESTION, options=REGIONS, display="select", allow_freeform=True)],
    "choices": lambda: [prompt_of(QUESTION, options=REGIONS[:3], allow_freeform=True)],
    "answered": lambda: [
        settled(prompt_of(QUESTION, options=REGIONS), PromptOutcome.ANSWERED, by="Alice", at=NOW, note={"text": "the nearest"})
    ],
}


def prompt_of(like: Prompt, **body: Any) -> Prompt:
    row = {"expires_at": like.expires_at}
    return prompt("Which region shall it run in?", kind="question", row=row, detail="Alice may answer.", fields=[], **body)


def shown_in(port: FakePort, prompts: Sequence[Prompt]) -> None:
    port.kept["t1"] = [message for message in port.kept["t1"] if message["card"] is None]
    drawn = card(prompts, results={"prm_1": "Ran once."} if len(prompts) == 1 else {}).to_json()
    if prompts[0].outcome is not PromptOutcome.APPROVED and drawn["outcome"]:
        drawn["outcome"]["result"] = ""
    message = port.add_message("t1", AGENT, "I found the charge, so I have asked.", card=drawn)
    message["id"] = f"{message['id']}-{next(NUMBERS)}"
    port.tell({"kind": "messages", "thread": "t1"})


@asynccontextmanager
async def page_of(port: FakePort, browser: Browser) -> AsyncIterator[Visit]:
    app = web.Application(middlewares=[loopback_guard()])
    install_console(app, port, key="key", public_port=0)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with visiting(browser) as visit:
            await visit.open(f"http://127.0.0.1:{runner.addresses[0][1]}/console/?k=key#t1")
            yield visit
    finally:
        await runner.cleanup()


@pytest.fixture
def port() -> FakePort:
    port = FakePort()
    port.now = NOW
    port.add_thread("t1", "refund 140 for ch_1", waiting=True)
    port.add_message("t1", author("alice"), "refund 140 for ch_1, the parcel never arrived")
    return port


@pytest_asyncio.fixture(loop_scope="module")
async def visit(port: FakePort, browser: Browser) -> AsyncIterator[Visit]:
    async with page_of(port, browser) as visit:
        yield visit


async def fits(visit: Visit) -> None:
    """Nothing scrolls sideways, at either width."""
    for width in (1280, 390):
        await visit.page.set_viewport_size({"width": width, "height": 844})
        assert await visit.page.evaluate("document.documentElement.scrollWidth") == width
        assert await visit.page.evaluate(CUT_OFF) == []
    await visit.page.set_viewport_size({"width": 1280, "height": 844})


async def test_every_state_of_a_card_fits(visit: Visit, port: FakePort) -> None:
    for name, prompts in STATES.items():
        shown_in(port, prompts())
        stamp = port.kept["t1"][-1]["id"]
        await visit.page.locator(f"[data-message='{stamp}'] .card").wait_for()
        await fits(visit)
        await visit.shots(f"card-{name}")
        card_ = visit.page.locator(".card")
        is_open = any(one.outcome is None for one in prompts())
        assert (await card_.locator("button").count() > 0) is is_open
        if not is_open:
            assert await visit.page.locator(".card.done").count() == 1


async def test_all_of_several_are_approved_at_once_or_one_by_one(visit: Visit, port: FakePort) -> None:
    shown_in(port, of_three(None, None, None))
    await visit.page.locator(".item").nth(2).wait_for()
    assert "1 of 2 approved: Bob" in await visit.page.locator(".item").nth(2).inner_text()
    await visit.speak_as("Farah")
    await visit.page.get_by_role("button", name="Approve all").click()
    await visit.page.locator(".exp", has_text="Recording").first.wait_for(state="detached")
    await visit.page.locator(".item").nth(1).get_by_role("button", name="Deny", exact=True).click()
    await visit.page.locator(".exp", has_text="Recording").first.wait_for(state="detached")
    assert [value for _, _, value, _ in port.clicks] == ["prm_1:*approve", "prm_2:deny"]


async def test_a_form_is_filled_in_by_keyboard_and_survives_a_redraw(visit: Visit, port: FakePort) -> None:
    shown_in(port, of_three(None, None, None))
    item = visit.page.locator(".item").nth(1)
    await item.get_by_role("button", name="Deny with a note").focus()
    await visit.page.keyboard.press("Enter")
    await visit.page.locator(".fill textarea").wait_for()
    await visit.page.keyboard.type("Not this month")
    await fits(visit)
    await visit.shots("card-form-note")
    shown = port.kept["t1"][-1]
    again = card(of_three(PromptOutcome.APPROVED, None, None)).to_json()
    shown |= {"card": again, "version": shown["version"] + 1}
    port.tell({"kind": "messages", "thread": "t1"})
    await visit.page.locator(".item.done").wait_for()
    await visit.page.keyboard.type(", sorry")
    assert await visit.page.input_value(".fill textarea") == "Not this month, sorry"
    port.click_answer = {"status": "refused", "reason": "Only Finance may answer this."}
    await visit.page.keyboard.press("Control+Enter")
    await visit.page.locator(".said", has_text="Only Finance may answer this.").wait_for()
    assert await visit.page.input_value(".fill textarea") == "Not this month, sorry"
    port.click_answer = {"status": "settled"}
    await visit.page.locator(".fill").get_by_role("button", name="Deny").click()
    await visit.page.locator(".fill").wait_for(state="detached")
    assert port.clicks[-1][2] == "prm_2:deny"
    assert port.filled[-1] == {"note": "Not this month, sorry"}


async def test_arguments_are_changed_before_they_are_approved(visit: Visit, port: FakePort) -> None:
    shown_in(port, [REFUND])
    await visit.page.get_by_role("button", name="Change first").click()
    await visit.page.get_by_label("amount").fill("120.00")
    await fits(visit)
    await visit.shots("card-form-edit")
    await visit.page.keyboard.press("Escape")
    await visit.page.locator(".fill").wait_for(state="detached")
    assert await visit.page.evaluate("document.activeElement.textContent") == "Change first"
    await visit.page.keyboard.press("Enter")
    await visit.page.get_by_label("amount").fill("120.00")
    await visit.page.keyboard.press("Enter")
    await visit.page.locator(".fill").wait_for(state="detached")
    assert port.clicks[-1][2] == "prm_1:approve"
    assert port.filled[-1] == {"edit.amount": "120.00", "edit.reason": "the parcel never arrived"}


async def test_a_list_is_chosen_from_and_words_of_ones_own_are_sent(visit: Visit, port: FakePort) -> None:
    shown_in(port, STATES["select"]())
    await visit.page.get_by_label("Choose an answer").select_option("Region 3: 36 ms away")
    await visit.page.get_by_role("button", name="Answer", exact=True).click()
    await visit.page.locator(".exp", has_text="Recording").wait_for(state="detached")
    await visit.page.get_by_role("button", name="Answer in words").click()
    await visit.page.keyboard.type("Wherever Bob is")
    await visit.shots("card-form-words")
    await visit.page.get_by_role("button", name="Send", exact=True).first.click()
    await visit.page.locator(".fill").wait_for(state="detached")
    assert [value for _, _, value, _ in port.clicks] == ["prm_1:r3", "prm_1:"]
    assert port.filled[-1] == {"text": "Wherever Bob is"}


async def test_a_remark_is_quiet_and_a_private_card_says_who_sees_it(visit: Visit, port: FakePort) -> None:
    port.add_message("t1", AGENT, "Waiting for Farah, who was asked privately.")["notice"] = True
    port.add_message("t1", AGENT, "@Farah: still waiting for your answer.")["notice"] = True
    port.add_message("t1", AGENT, "", card=card([REFUND]).to_json(), private_to="farah")
    port.tell({"kind": "messages", "thread": "t1"})
    await visit.speak_as("Farah")
    await visit.page.locator(".msg.private .card").wait_for()
    assert await visit.page.locator(".msg.notice").count() == 2
    await fits(visit)
    await visit.shots("card-private")
