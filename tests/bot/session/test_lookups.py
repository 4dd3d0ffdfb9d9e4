"""Look-ups: who wrote is asked after admission; a platform that does not say refuses nobody until it has had its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from bot.answers import Way
from channels.errors import DeliveryFailed, RateLimited
from channels.events import Author, Place, Standing
from durable_core.model import Outcome
from tests.bot.session.accounts import connect, with_accounts
from tests.bot.session.actors import CHANNEL, FakeChannel, calls
from tests.bot.session.kit import Thread, open_thread, person
from tests.bot.session.test_approvals import REFUND, ask

ANN, BEN = person("ann", Standing.UNKNOWN), person("ben", Standing.UNKNOWN)


class AskedChannel(FakeChannel):
    """A channel whose people have to be looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Standing.MEMBER
        self.troubles: list[Exception] = []
        self.asked: list[str] = []
        self.together = 0
        self.most = 0

    async def look_up(self, address: str, author: Author, place: Place, *, fresh: bool = False) -> tuple[Author, Place]:
        self.asked.append(author.id)
        self.together += 1
        self.most = max(self.most, self.together)
        await asyncio.sleep(0)
        self.together -= 1
        if self.troubles:
            raise self.troubles.pop(0)
        return replace(author, name=f"{author.id.title()} Known", standing=self.standing), place


@pytest_asyncio.fixture
async def thread() -> AsyncIterator[Thread]:
    made = await open_thread()
    made.channel = AskedChannel()
    made.hire("w1")
    yield made
    made.unwatch()
    await made.store.close()


def asked(thread: Thread) -> AskedChannel:
    assert isinstance(thread.channel, AskedChannel)
    return thread.channel


async def test_the_name_and_standing_that_were_found_go_into_the_conversation(thread: Thread) -> None:
    await thread.say("hi", ANN)
    await thread.work()
    assert thread.channel.texts == ["answer 1"]
    assert asked(thread).asked == ["ann"]
    (request,) = thread.model.requests
    assert [getattr(item, "author", "") for item in request.history] == ["Ann Known"]


async def test_an_outage_of_minutes_refuses_nobody_and_charges_nothing(thread: Thread) -> None:
    asked(thread).troubles = [DeliveryFailed("unavailable", permanent=False) for _ in range(7)]
    receipt = await thread.say("hi", ANN)
    for _ in range(8):
        await thread.work()
        thread.later_s(60)
    await thread.work()
    assert thread.channel.texts == ["answer 1"]
    assert (await thread.store.submission(receipt.submission_id)).outcome is Outcome.COMPLETED


async def test_a_rate_limit_is_waited_out(thread: Thread) -> None:
    asked(thread).troubles = [RateLimited(30)]
    await thread.say("hi", ANN)
    await thread.work()
    thread.later_s(29)
    await thread.work()
    assert asked(thread).asked == ["ann"]
    thread.later_s(1)
    await thread.work()
    assert thread.channel.texts == ["answer 1"]


async def test_after_its_time_an_unknown_author_is_refused(thread: Thread) -> None:
    asked(thread).troubles = [DeliveryFailed("unavailable", permanent=False) for _ in range(100)]
    receipt = await thread.say("hi", ANN)
    for _ in range(12):
        await thread.work()
        thread.later_s(61)
    await thread.work()
    assert (await thread.store.submission(receipt.submission_id)).outcome is Outcome.FAILED
    assert thread.model.requests == []


async def test_several_people_are_looked_up_side_by_side(thread: Thread) -> None:
    await thread.say("one", ANN)
    await thread.say("two", BEN)
    await thread.work()
    assert asked(thread).most == 2
    assert len(thread.channel.texts) == 2


async def test_a_guest_who_was_looked_up_is_refused(thread: Thread) -> None:
    asked(thread).standing = Standing.GUEST
    receipt = await thread.say("hi", ANN)
    await thread.work()
    assert (await thread.store.submission(receipt.submission_id)).outcome is Outcome.FAILED
    assert thread.model.requests == []


async def test_a_click_counts_only_where_its_card_was_put(thread: Thread) -> None:

    await ask(thread)
    await thread.work()
    prompt = await thread.prompt()
    forged = await thread.answers.admit(
        prompt.prompt_id,
        "approve",
        principal=person("alice"),
        place=Place("channel"),
        way=Way(via="button", source=CHANNEL, key="forged", at=(CHANNEL, "another thread"), tell_at=(CHANNEL, "another thread")),
    )
    assert (forged.status.value, forged.reason) == ("refused", "elsewhere")
    assert (await thread.prompt()).outcome is None
    await thread.click("deny")
    await thread.work()


async def test_an_approved_call_waits_out_a_platform_that_does_not_say_who_its_requester_is_now(thread: Thread) -> None:
    thread.model.script.insert(0, calls(REFUND))  # type: ignore[arg-type]
    await thread.say("refund 5", ANN)
    await thread.work()
    await thread.click("approve", ANN)
    asked(thread).troubles = [RateLimited(30), DeliveryFailed("unavailable", permanent=False)]
    await thread.work()
    assert thread.log.names() == []
    for _ in range(2):
        thread.later_s(31)
        await thread.work()
    assert len(thread.log.names()) == 1
    assert thread.channel.texts


async def test_a_yes_that_was_kept_over_a_sign_in_is_no_time_that_a_look_up_took(thread: Thread) -> None:
    with_accounts(thread)
    thread.model.script.insert(0, calls(("close_issue", {"number": 7})))
    await thread.say("close it", ANN)
    await thread.work()
    await thread.click("approve", ANN)
    await thread.work()
    thread.later_s(20 * 3600)
    await connect(thread, who=ANN)
    asked(thread).troubles = [RateLimited(30), DeliveryFailed("unavailable", permanent=False)]
    await thread.work()
    assert thread.log.names() == []
    for _ in range(2):
        thread.later_s(31)
        await thread.work()
    assert thread.log.names() == ["close_issue"]


async def test_an_approved_call_of_somebody_who_became_a_guest_does_not_run(thread: Thread) -> None:
    thread.model.script.insert(0, calls(REFUND))  # type: ignore[arg-type]
    await thread.say("refund 5", ANN)
    await thread.work()
    asked(thread).standing = Standing.GUEST
    await thread.click("approve", ANN)
    await thread.work()
    assert thread.log.names() == []
