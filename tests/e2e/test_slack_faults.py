"""Slack's API in trouble: each message is shown once, at the right time, and one trouble is not another's.

What lives here: faults of the two calls that show things, a death between a post and its record, refusals for good.
What does not: what `find` reads (tests/channels/slack/).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.testing.slack import FakeSlack, Said
from bot.testing.slack.faults import Fault, dropped, rate_limited, refused, server_error, slow
from channels.slack import api
from durable_core.failpoints import NAME_VARIABLE, ONCE_FILE_VARIABLE
from tests.e2e.shop import Shop, delivered, made_at, open_shop, words
from tests.e2e.test_slack_kills import grounds, street

CALL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """What goes wrong, how many calls it takes then, and how long the next one has to wait at least."""

    name: str
    fault: Fault
    calls: int = 2
    wait: float = 0.0
    again: int = 0
    """Calls that have their effect, though nothing comes of it."""


POSTS = (
    Case("429", rate_limited(2), wait=2.0),
    Case("500 before", server_error()),
    Case("500 after", server_error(after_commit=True), calls=1),
    Case("disconnected before", dropped()),
    Case("disconnected after", dropped(after_commit=True), calls=1),
    Case("slow", slow(0.3), calls=1),
    Case("too slow", slow(CALL_SECONDS + 0.5), calls=1),
)
UPDATES = (
    Case("429", rate_limited(2), wait=2.0),
    Case("500 before", server_error()),
    Case("500 after", server_error(after_commit=True)),
    Case("disconnected before", dropped()),
    Case("disconnected after", dropped(after_commit=True)),
    Case("slow", slow(0.3), calls=1),
    Case("too slow", slow(CALL_SECONDS + 0.5)),
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "CALL_SECONDS", CALL_SECONDS)


async def sent(shop: Shop, said: Said, count: int) -> None:
    """Wait until all is sent, and check that each message is there once."""
    await shop.slack.until(lambda: all(state == "sent" for state, _ in shop.books.owed) and len(shop.books.owed) >= count)
    ids = delivered(shop.slack, said)
    assert len(ids) == len(set(ids))


async def _post(case: Case, folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir)
    async with open_shop(folder) as shop:
        slack = shop.slack
        times: list[float] = []
        made_at(slack, "chat.postMessage", times, time.monotonic)
        slack.fail("chat.postMessage", case.fault)
        said = await slack.mention("alice", "general", "hello")
        aside = await slack.mention("bob", "private", "hello")
        await shop.replies(aside, 1)
        await shop.replies(said, 1)
        await sent(shop, said, 2)
        posts = [call for call in slack.made("chat.postMessage") if call.args["channel"] == said.channel]
        assert len(posts) == case.calls, case.name
        assert sum(call.committed for call in posts) == 1, case.name
        assert ["Hello Alice" in text for text in shop.words(said)] == [True], case.name
        if case.wait:
            assert times[-1] - times[0] >= case.wait, case.name


async def test_a_post_in_trouble_is_shown_once(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for number, case in enumerate(POSTS):
            group.create_task(_post(case, tmp_path / str(number)), name=case.name)


async def _update(case: Case, folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir)
    async with open_shop(folder) as shop:
        slack = shop.slack
        times: list[float] = []
        made_at(slack, "chat.update", times, time.monotonic)
        slack.fail("chat.update", case.fault)
        said = await slack.mention("alice", "general", "refund 20 for ch_1")
        card = await slack.until(lambda: slack.card(said))
        await slack.click(card, "Approve", "alice")
        aside = await slack.mention("bob", "private", "hello")
        await shop.replies(aside, 1)
        await shop.replies(said, 2)
        await sent(shop, said, 4)
        settled, reply = slack.replies(said)
        assert ("Approved by Alice" in settled.words, settled.buttons) == (True, ()), case.name
        assert reply.words == "Refunded 20 for ch_1, receipt rf_0001.", case.name
        assert shop.books.refunds == ["ch_1"]
        assert len([call for call in slack.made("chat.postMessage") if call.args["channel"] == said.channel]) == 2, case.name
        assert slack.made("chat.update")[0].fault == case.fault
        if case.wait:
            assert times[1] - times[0] >= case.wait, case.name
        elif case.calls == 1:
            assert all(call.ok for call in slack.made("chat.update")), case.name


async def test_an_edit_in_trouble_is_made(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for number, case in enumerate(UPDATES):
            group.create_task(_update(case, tmp_path / str(number)), name=case.name)


async def test_another_channel_goes_on_meanwhile(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        slack = shop.slack
        slack.fail("chat.postMessage", rate_limited(3600))
        said = await slack.mention("alice", "general", "hello")
        await slack.until(lambda: slack.made("chat.postMessage"))
        aside = await slack.mention("bob", "private", "hello")
        await shop.replies(aside, 1)
        assert slack.replies(said) == []


# Dead between a post and its record


async def _dies_at(name: str, number: int, ground: Any) -> tuple[FakeSlack, Said, int]:
    async with ground.room:
        folder_name = f"{name[-5:].replace('.', '')}{number}"
        once = ground.parent / f"{folder_name}.once"
        env = {NAME_VARIABLE: f"{name}:{number}", ONCE_FILE_VARIABLE: str(once)}
        async with asyncio.timeout(30), street(ground, folder_name, env=env) as one:
            said = await one.slack.mention("alice", "general", "refund 20 for ch_1")
            while one.slack.card(said) is None:
                await one.bell.wait(one.server)
                await one.up()
            await one.parked()
            await one.up()
            card = one.slack.card(said)
            assert card is not None
            while not (await one.slack.click(card, "Approve", "alice")).ok:  # Slack doesn't send a click again, people do
                await one.server.up()
                await one.up()
            await one.settled()
            ids = delivered(one.slack, said)
            assert len(ids) == len(set(ids)) == 2, (name, number)
            assert [text.partition("\n")[0] for text in words(one.slack, said)] == [
                "Refund 20 for ch_1?",
                "Refunded 20 for ch_1, receipt rf_0001.",
            ], (name, number)
            assert "Approved by Alice" in words(one.slack, said)[0]
            assert one.books.refunds == ["ch_1"]
            assert once.exists(), (name, number)
            return one.slack, said, number


@pytest.mark.parametrize("name", ["send.before", "send.after", "send.after_record"])
async def test_a_death_around_a_post_shows_it_once(name: str) -> None:
    async with grounds() as ground, asyncio.TaskGroup() as group:
        stories = [group.create_task(_dies_at(name, number, ground)) for number in (1, 2, 3)]
    for slack, _, number in (story.result() for story in stories):
        posts = slack.made("chat.postMessage")
        assert sum(call.committed for call in posts) == 2, (name, number)
        if name == "send.after" and number == 1:
            assert slack.made("conversations.replies"), "it was looked for"


# Refused for good


@pytest.mark.parametrize("error", ["is_archived", "token_revoked", "not_in_channel", "msg_too_long"])
async def test_a_refusal_for_good_is_buried_at_once_and_the_session_goes_on(tmp_path: Path, error: str) -> None:
    async with open_shop(tmp_path) as shop:
        times = 2 if error == "msg_too_long" else 1  # in its best form, then in the plainer one
        shop.slack.fail("chat.postMessage", refused(error), times=times)
        said = await shop.slack.mention("alice", "general", "hello")
        await shop.slack.until(lambda: [state for state, _ in shop.books.owed] == ["dead"])
        assert shop.books.owed == [("dead", error)]
        assert len(shop.slack.made("chat.postMessage")) == times
        assert shop.books.outcomes == ["completed"]
        await shop.slack.message("alice", "general", "hello", said)
        (reply,) = await shop.replies(said, 1)
        assert "message 2 of this" in reply.words


async def test_a_card_refused_for_good_does_not_hold_up_the_session(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.slack.fail("chat.postMessage", refused("is_archived"))
        said = await shop.slack.mention("alice", "general", "refund 20 for ch_1")
        await shop.slack.until(lambda: "dead" in [state for state, _ in shop.books.owed])
        await shop.slack.message("alice", "general", "hello", said)
        await shop.slack.until(lambda: any("message 2 of this" in text for text in shop.words(said)))
        assert shop.books.refunds == []


async def test_a_settled_form_refused_for_good_does_not_hold_up_the_reply(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.slack.fail("chat.update", refused("edit_window_closed"), times=9)
        said = await shop.slack.mention("alice", "general", "refund 20 for ch_1")
        card = await shop.slack.until(lambda: shop.slack.card(said))
        await shop.slack.click(card, "Approve", "alice")
        await shop.replies(said, 2)
        assert shop.words(said)[1] == "Refunded 20 for ch_1, receipt rf_0001."
        await shop.slack.click(card, "Deny", "alice")
        await shop.slack.until(lambda: shop.slack.whispers("alice"))
        assert "settled before: Approved by Alice" in shop.slack.whispers("alice")[0].words
        assert shop.books.refunds == ["ch_1"]
