"""One message, told of more than once: one turn and one reply; and what is no message at all: none.

What lives here: redeliveries, twins, own posts, edits. What does not: deaths in the middle (test_slack_kills.py).
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.testing.slack import FakeSlack, Said
from bot.testing.slack.payloads import Twin
from tests.bot.testing.kit import listening
from tests.e2e.shop import Books, Shop, delivered, open_shop, words
from tests.e2e.test_slack_kills import grounds, street

Json = dict[str, Any]


async def tell(slack: FakeSlack, *payloads: Json, retry: int = 0) -> list[int]:
    """Post events as Slack does, all at once; their statuses."""
    async with aiohttp.ClientSession() as http:

        async def one(payload: Json) -> int:
            body = json.dumps(payload).encode()
            headers = {"Content-Type": "application/json", **slack.sign(body)}
            if retry:
                headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
            async with http.post(slack.events_url, data=body, headers=headers) as answer:
                return answer.status

        return list(await asyncio.gather(*(one(payload) for payload in payloads)))


async def unheard(slack: FakeSlack, text: str, first: Twin = "message") -> tuple[Said, list[Json]]:
    """Have Alice mention the bot while nobody listens; the two events that Slack has for it."""
    url = slack.events_url
    async with listening(slack) as ear:
        said = await slack.mention("alice", "general", text, first=first)
        payloads = list(ear.payloads)
    slack.events_url = url
    return said, payloads


async def quiet(shop: Shop) -> None:
    """Wait until all that came before is done: a later message is answered, and Slack has no more to tell."""
    said = await shop.slack.direct("farah", "hello")
    place = said.channel
    await shop.slack.until(lambda: any(one.from_bot for one in shop.slack.visible_to("farah", place)))
    await shop.slack.settled()


async def once(shop: Shop, said: Said, *, messages: int = 1) -> None:
    """Check that a message got one reply, out of one turn."""
    await shop.replies(said, 1)
    await quiet(shop)
    assert ["message 1 of this" in text for text in shop.words(said)] == [True]
    assert len(set(delivered(shop.slack, said))) == 1
    assert (shop.books.messages, shop.books.turns, shop.books.runs) == (messages + 1, messages + 1, messages + 1)
    assert shop.slack.whispers("alice") == []


# Told of more than once


async def test_every_event_thrice(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said = await shop.slack.mention("alice", "general", "hello", copies=3)
        assert [posting.status for posting in said.postings] == [200] * 6
        await once(shop, said)


@pytest.mark.parametrize("first", ["message", "app_mention"])
@pytest.mark.parametrize("between", [0.0, 0.3])
async def test_twins_in_either_order(tmp_path: Path, first: Twin, between: float) -> None:
    async with open_shop(tmp_path) as shop:
        said, (one, other) = await unheard(shop.slack, "hello", first)
        assert one["event_id"] != other["event_id"]
        assert await tell(shop.slack, one) == [200]
        await asyncio.sleep(between)
        assert await tell(shop.slack, other) == [200]
        await once(shop, said)


async def test_twins_and_their_copies_at_once(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, payloads = await unheard(shop.slack, "hello")
        assert set(await tell(shop.slack, *(payloads * 8))) == {200}
        await once(shop, said)


async def test_only_the_retries_arrive(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said = await shop.slack.mention("alice", "general", "hello", lose_first=True)
        assert [[attempt.lost for attempt in one.attempts] for one in said.postings] == [[True, False], [True, False]]
        await once(shop, said)


async def test_only_the_last_retry_of_one_twin_arrives(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, (_, mention) = await unheard(shop.slack, "hello")
        assert await tell(shop.slack, mention, retry=3) == [200]
        await once(shop, said)


async def test_a_twin_and_a_copy_long_after_the_turn(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, (one, other) = await unheard(shop.slack, "hello")
        assert await tell(shop.slack, one) == [200]
        await shop.replies(said, 1)
        await quiet(shop)
        assert await tell(shop.slack, other, one, other) == [200] * 3
        await shop.slack.direct("bob", "hello")
        await shop.slack.until(lambda: shop.books.messages == 3 and shop.books.outcomes[-1])
        assert len(shop.words(said)) == 1
        assert shop.books.turns == 3


async def test_a_copy_after_a_restart() -> None:
    async with grounds() as ground, street(ground, "again") as one:
        said = await one.slack.mention("alice", "general", "hello", copies=2)
        await one.settled()
        for end in (one.server.kill, one.server.stop):
            await end()
            await one.up()
            assert set(await tell(one.slack, *(posting.payload for posting in said.postings), retry=1)) == {200}
            await one.settled()
        assert ["message 1 of this" in text for text in words(one.slack, said)] == [True]
        assert (one.books.messages, one.books.turns) == (1, 1)


async def test_a_click_told_of_twice_counts_once(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said = await shop.slack.mention("alice", "general", "refund 20 for ch_1")
        card = await shop.slack.until(lambda: shop.slack.card(said))
        posting = await shop.slack.click(card, "Approve", "alice")
        async with aiohttp.ClientSession() as http:
            headers = {"Content-Type": posting.content_type, **shop.slack.sign(posting.body)}
            async with http.post(shop.slack.events_url, data=posting.body, headers=headers) as answer:
                assert answer.status == 200
        await shop.replies(said, 2)
        await quiet(shop)
        assert shop.books.refunds == ["ch_1"]
        assert len(shop.words(said)) == 2
        assert shop.slack.whispers("alice") == []


# Never a turn

Change = Callable[[Json, FakeSlack], Json]


def _by(event: Json, **fields: Any) -> Json:
    return {name: value for name, value in (event | fields).items() if value is not None}


OWN: dict[str, Change] = {
    "with our bot's id": lambda e, s: _by(e, bot_id=s.workspace.bot_id, user=s.workspace.bot_user, client_msg_id=None),
    "as bot_message, of nobody": lambda e, s: _by(e, subtype="bot_message", bot_id=s.workspace.bot_id, user=None),
    "with our user's id alone": lambda e, s: _by(e, user=s.workspace.bot_user, client_msg_id=None),
    "with our app's id": lambda e, s: _by(e, app_id=s.app_id, client_msg_id=None),
    "an edit of it": lambda e, s: _by(
        {**e, "ts": f"{e['ts'][:-1]}9"}, subtype="message_changed", hidden=True, message=e | {"bot_id": s.workspace.bot_id}
    ),
}
OTHERS: dict[str, Change] = {
    "a bot's": lambda e, s: _by(e, bot_id="B0ROBOT", user=s.user("robo").id, client_msg_id=None),
    "a workflow's": lambda e, _: _by(e, subtype="bot_message", bot_id="B0FLOW", user=None, client_msg_id=None),
    "Slackbot's": lambda e, _: _by(e, user="USLACKBOT", client_msg_id=None),
    "a person's edit": lambda e, _: _by(e, subtype="message_changed", hidden=True, message=e, previous_message=e),
    "an unfurled link": lambda e, _: _by(
        e, subtype="message_changed", hidden=True, message=e | {"attachments": [{"from_url": "https://example.com"}]}
    ),
    "taken away": lambda e, _: _by(e, subtype="message_deleted", hidden=True, deleted_ts=e["ts"]),
    "somebody came": lambda e, _: _by(e, subtype="channel_join"),
}


async def test_what_no_person_wrote_just_now_is_no_message(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        for change in (OWN | OTHERS).values():
            _, payloads = await unheard(shop.slack, "hello")
            for payload in payloads:
                changed = copy.deepcopy(payload)
                changed["event"] = change(changed["event"], shop.slack)
                assert await tell(shop.slack, changed) == [200]
        await quiet(shop)
        assert (shop.books.messages, shop.books.runs) == (1, 1)
        assert [one for one in shop.slack.visible_to("bob", "general") if one.from_bot] == []


async def test_another_bots_mention_and_an_edit_begin_no_turn(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        robot = await shop.slack.mention("robo", "general", "hello")
        said = await shop.slack.mention("alice", "general", "hello")
        await shop.replies(said, 1)
        posting = await shop.slack.edit(said, f"<@{shop.slack.workspace.bot_user}> refund 20 for ch_1")
        assert posting is not None
        assert posting.ok
        await shop.slack.advance(timedelta(minutes=10))
        await once(shop, said)
        assert len(shop.words(robot)) == 1  # its own


# Going on


async def test_the_starter_goes_on_without_a_mention_and_others_do_not(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said = await shop.slack.mention("alice", "general", "hello")
        await shop.replies(said, 1)
        await shop.slack.message("bob", "general", "hello", said)
        await shop.slack.message("alice", "general", "hello", said)
        await shop.replies(said, 2)
        aside = await shop.slack.message("alice", "general", "hello everybody")
        await shop.slack.mention("bob", "general", "hello", said)
        await shop.replies(said, 3)
        await quiet(shop)
        assert [text.partition(" of ")[0].rpartition(" ")[2] for text in shop.words(said)] == ["1", "2", "3"]
        assert "Hello Bob" in shop.words(said)[2]
        assert shop.words(aside) == []
        assert shop.books.messages == 4
        assert Books(tmp_path).runs == 2
