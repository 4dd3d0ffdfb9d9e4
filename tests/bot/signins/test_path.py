"""The way from a pressed Connect to an account that is there, and how else it can end.

What lives here: one person, one browser, a provider that does its part. What does not: a provider that doesn't (test_moods.py),
attackers (test_attacks.py), deaths (test_kills.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.signins.attempt import Attempt, Stage
from bot.signins.signins import SignIns
from bot.signins.waiting import Waiting
from durable_core.errors import CannotOpen, Unavailable
from durable_core.model import Prompt, PromptOutcome
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import ALICE, Desk, through

CONNECTED = {"account": "alice@tracker", "text": "Tracker is connected as alice@tracker."}


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
    for told in ("Tracker", "open_issue", "issues", "Alice", "Helper"):
        assert told in page.text
    page = await alice.press(code=offer.code)
    assert page.status == 200, page.text
    assert page.next.startswith(f"{desk.provider.url}/authorize?")
    page = await alice.go_on()
    assert page.status == 200, page.text
    assert page.url.startswith(f"{desk.url}/connect/done/")
    assert "alice@tracker" in page.text
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id, prompt.settled_by) == (PromptOutcome.APPROVED, "connected", "chat:alice")
    assert prompt.settled_via == "connect"
    assert await desk.note(prompt_id) == CONNECTED
    credential = await desk.credential()
    assert credential is not None
    assert credential.access_token == "CANARY-access"
    assert await desk.lines() == []
    assert (await desk.attempt(offer)).settled


async def test_the_page_says_the_same_whenever_it_is_loaded_again(desk: Desk, alice: Browser) -> None:
    offer, page = await through(desk, alice, await desk.asked())
    again = await alice.open(page.url)
    assert (again.status, again.text) == (page.status, page.text)
    link = await alice.open(offer.url)
    assert (link.status, link.text) == (page.status, page.text)
    callback = next(url for url in alice.visited if "/connect/callback/" in url)
    replayed = await alice.open(callback)
    assert (replayed.url, replayed.text) == (page.url, page.text)
    assert len(desk.provider.exchanged) == 1


async def test_the_person_says_no_on_the_page(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    page = await alice.press(place=1)
    assert page.status == 200
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id) == (PromptOutcome.DENIED, "declined")
    assert await desk.note(prompt_id) == {"text": "Alice declined to connect Tracker. Nothing was connected."}
    assert await desk.credential() is None
    assert (await alice.open(offer.url)).text == page.text


async def test_the_person_says_no_at_the_provider(desk: Desk, alice: Browser) -> None:
    desk.provider.denies = True
    prompt_id = await desk.asked()
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id) == (PromptOutcome.DENIED, "declined")
    assert await desk.note(prompt_id) == {"text": "Alice declined at Tracker. Nothing was connected."}
    assert desk.provider.exchanged == []


async def test_a_link_is_good_for_ten_minutes(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    desk.later(minutes=10)
    page = await alice.press(code=offer.code or "")
    assert page.status == 410
    assert desk.provider.authorized == []
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200
    assert await desk.note(prompt_id) == CONNECTED


async def test_a_way_through_the_provider_is_good_for_ten_minutes(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    desk.later(minutes=11)
    page = await alice.go_on()
    assert page.status == 410
    assert desk.provider.exchanged == []
    assert (await desk.prompt(prompt_id)).outcome is None
    [(who, line)] = await desk.lines()
    assert who == "chat:alice"
    assert line.startswith("It took more than ten minutes.")
    assert "CANARY" not in line
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200


async def test_a_long_running_server_goes_by_the_time_of_each_request(desk: Desk, alice: Browser) -> None:
    desk.later(hours=1)
    _, page = await through(desk, alice, await desk.asked())
    assert page.status == 200


async def test_many_links_of_one_request_are_good_at_once(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    first, second, third = [await desk.offered(prompt_id) for _ in range(3)]
    assert len({first.url, second.url, third.url}) == 3
    for offer in (first, third):
        await alice.open(offer.url)
        assert (await alice.press(code=offer.code or "")).next
    await alice.go_on()
    assert await desk.note(prompt_id) == CONNECTED
    page = await alice.open(second.url)
    assert page.status == 409
    assert "Alice connected Tracker." in page.text
    assert page.forms == []


async def test_one_sign_in_serves_all_requests_that_wait_for_it(desk: Desk, alice: Browser) -> None:
    waiting, other = await desk.asked(), await desk.asked()
    more, refused = await desk.asked(scopes=("issues", "admin")), await desk.asked(reason="refused")
    bob = await desk.asked(who=replace(ALICE, id="chat:bob", name="Bob"))
    offer = await desk.offered(waiting)
    await through(desk, alice, other)
    for prompt_id in (other, waiting, refused):
        assert await desk.note(prompt_id) == CONNECTED
    assert [(await desk.prompt(prompt_id)).outcome for prompt_id in (more, bob)] == [None, None]
    page = await alice.open(offer.url)
    assert page.status == 409
    assert "Alice connected Tracker." in page.text


async def test_what_an_earlier_start_of_dev_left_is_not_gone_on_with(desk: Desk, alice: Browser) -> None:
    left = await desk.asked(address="console:v1:left")
    desk.later(seconds=1)
    now = await desk.asked()
    channels, start = {"chat": desk.chat}, await desk.store.now()
    desk.replicas.all[:] = [
        SignIns(store=one.store, connections=one.connections, channels=channels, dormant_before=start)
        for one in desk.replicas.all
    ]
    await through(desk, alice, await desk.asked())
    assert [(await desk.prompt(one)).outcome is None for one in (left, now)] == [True, False]


async def test_what_was_refused_since_is_not_served_by_an_older_sign_in(desk: Desk, alice: Browser) -> None:
    await through(desk, alice, await desk.asked())
    desk.later(seconds=1)
    refused = await desk.asked(reason="refused")
    await desk.sign_ins.sweep()
    assert (await desk.prompt(refused)).outcome is None


@pytest.mark.parametrize(
    "failing", [CannotOpen("moor_prompt", "p", "body"), Unavailable("gone")], ids=lambda error: type(error).__name__
)
async def test_the_others_are_served_however_often_it_is_tried(
    desk: Desk, alice: Browser, failing: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can't be read stops no other; a database that is away is asked again."""
    first, second, third = await desk.asked(), await desk.asked(), await desk.asked()
    faults = [failing]

    async def account(self: Waiting, prompt: Prompt) -> str | None:
        if prompt.prompt_id == first and faults:
            raise faults.pop()
        return await right(self, prompt)

    right = Waiting.account
    monkeypatch.setattr(Waiting, "account", account)
    await through(desk, alice, third)
    desk.later(seconds=6)
    await desk.sign_ins.sweep()
    again = isinstance(failing, Unavailable)
    assert [(await desk.prompt(one)).outcome is not None for one in (first, second, third)] == [again, True, True]


async def test_connected_meanwhile_by_a_version_that_serves_no_others(
    desk: Desk, alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(self: Waiting, attempt: Attempt) -> None:
        del self, attempt

    monkeypatch.setattr(Waiting, "serve", serve)
    waiting, other = await desk.asked(), await desk.asked()
    offer = await desk.offered(waiting)
    await through(desk, alice, other)
    await alice.open(offer.url)
    page = await alice.press(code=offer.code or "")
    assert page.status == 200
    assert page.url.startswith(f"{desk.url}/connect/done/")
    assert "alice@tracker" in page.text
    assert len(desk.provider.authorized) == 1
    assert await desk.note(waiting) == CONNECTED


async def test_connect_is_pressed_after_it_was_connected_elsewhere(desk: Desk, alice: Browser) -> None:
    await through(desk, alice, await desk.asked())
    waiting = await desk.asked()  # it had been looked at before
    offer = await desk.offered(waiting)
    assert offer.url == ""
    assert offer.words == "Tracker is connected already. It goes on."
    assert await desk.note(waiting) == CONNECTED


async def test_connect_is_pressed_when_it_is_over(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    await through(desk, alice, prompt_id)
    offer = await desk.offered(prompt_id)
    assert (offer.url, offer.code) == ("", None)
    assert offer.words == "Alice connected Tracker. There is nothing to connect."


async def test_the_request_is_settled_while_the_person_is_away(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer, other = await desk.offered(prompt_id), await desk.offered(prompt_id)
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    async with Browser() as phone:
        await phone.open(other.url)
        await phone.press(place=1)
    page = await alice.go_on()
    assert page.status == 409
    assert "Alice did not connect Tracker." in page.text
    assert desk.provider.exchanged == []
    assert await desk.credential() is None


async def test_a_step_back_and_on_again_takes_a_fresh_state(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    first = await alice.press(code=offer.code or "")
    await alice.open(offer.url)
    await alice.press(code="")
    page = await alice.go_on()
    assert page.status == 200
    alice.page = first  # the tab that was left open
    stale = await alice.go_on()
    assert "earlier try" in stale.text or "alice@tracker" in stale.text
    assert len(desk.provider.exchanged) == 1
    assert await desk.note(prompt_id) == CONNECTED


async def test_the_button_is_pressed_twice_and_the_first_answer_is_thrown_away(desk: Desk, alice: Browser) -> None:
    """As browsers do with a double click: the second request has no cookie of the first."""
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    loaded = await alice.open(offer.url)
    async with Browser() as before_any_answer:
        before_any_answer.page = loaded
        await before_any_answer.press(code=offer.code or "")
    page = await alice.press(code=offer.code or "")
    assert page.status == 200
    assert (await alice.go_on()).status == 200
    assert await desk.note(prompt_id) == CONNECTED


async def test_one_replica_begins_and_another_finishes(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    desk.replicas.turn = 1
    await alice.open(offer.url)
    desk.replicas.turn = 0
    await alice.press(code=offer.code or "")
    desk.replicas.turn = 1
    page = await alice.go_on()
    assert page.status == 200
    assert await desk.note(prompt_id) == CONNECTED


async def test_two_callbacks_at_once_are_one_exchange_and_one_page(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    back = (await alice.go_on(follow=False)).headers["Location"]
    pages = await asyncio.gather(*(alice.fetch(back) for _ in range(10)))
    assert len(desk.provider.exchanged) == 1
    final = [await alice.fetch(page.url) for page in pages]
    assert {(page.status, page.url, page.text) for page in final} == {(200, final[0].url, final[0].text)}
    assert "alice@tracker" in final[0].text
    assert await desk.note(prompt_id) == CONNECTED


@pytest.mark.parametrize("proven", [True, False])
async def test_the_providers_word_for_an_address_is_a_proof(desk: Desk, alice: Browser, proven: bool) -> None:
    object.__setattr__(desk.connection, "verifies_email", True)
    desk.chat.emails["alice"] = "Alice@Example.test"
    desk.provider.account["email_verified"] = proven
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    assert offer.code is None
    await alice.open(offer.url)
    await alice.press()
    page = await alice.go_on()
    if proven:
        assert page.status == 200
        assert await desk.note(prompt_id) == CONNECTED
        return
    assert page.status == 400
    assert (await desk.attempt(offer)).stage is Stage.FAILED
    assert await desk.credential() is None
    assert desk.provider.revoked == ["CANARY-refresh", "CANARY-access"]
    assert (await desk.offered(prompt_id)).code is not None
