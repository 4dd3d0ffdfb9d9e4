"""Conversations on Slack, from the mention to the last word, over real HTTP on both sides.

What lives here: what people see. What does not: the form of a message (tests/channels/slack/), the fake's own tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from bot import Bot
from bot.access import AccessPolicy, members_only
from bot.demo import open_deps, support
from bot.testing import FakeSlack, running
from bot.testing.slack import Said, dropped, rate_limited, server_error
from channels.slack import Slack


def shop(slack: FakeSlack, *, access: AccessPolicy = members_only) -> Bot:
    channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
    return Bot(agents=[support], channels=[channel], deps=lambda settings: open_deps(settings.data), access=access)


@asynccontextmanager
async def open_shop(data: Path | None = None) -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack, running(shop(slack), slack=slack, data=data):
        yield slack


def words(slack: FakeSlack, said: Said) -> list[str]:
    return [message.words for message in slack.replies(said)]


async def test_a_mention_is_answered_in_its_thread() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "hello")
        (reply,) = await slack.until(lambda: slack.replies(said))
        assert "Hello" in reply.words
        assert "Alice" in reply.words
        assert reply.thread == said.ts
        assert all(posting.ok for posting in slack.postings)
        await slack.settled()
        assert len(slack.made("chat.postMessage")) == 1


async def test_the_starter_goes_on_without_a_mention() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "hello")
        await slack.until(lambda: slack.replies(said))
        await slack.message("alice", "general", "hello", said)
        await slack.until(lambda: len(slack.replies(said)) == 2)
        assert "message 2" in words(slack, said)[1]


async def test_a_guest_who_mentioned_it_first_does_not_hold_the_thread() -> None:
    async with open_shop() as slack:
        said = await slack.mention("gus", "general", "hello")
        await slack.until(lambda: slack.whispers("gus"))
        await slack.mention("alice", "general", "hello", said)
        await slack.until(lambda: len(slack.replies(said)) == 1)
        await slack.message("gus", "general", "hello again", said)
        await slack.message("alice", "general", "hello", said)
        await slack.until(lambda: len(slack.replies(said)) == 2)
        await slack.settled()
        assert "message 2" in words(slack, said)[1]
        assert len(slack.whispers("gus")) == 1


async def test_a_refund_is_approved_by_a_click() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "refund 20 for ch_1042")
        card = await slack.until(lambda: slack.card(said))
        assert "Refund 20 for ch_1042?" in card.words.replace("20.00", "20")
        posting = await slack.click(card, "Approve", "alice")
        assert (posting.ok, posting.attempts[0].ms < 3_000) == (True, True)
        await slack.until(lambda: len(slack.replies(said)) == 2 and slack.replies(said)[0].edited)
        settled, reply = slack.replies(said)
        assert "Approved by Alice" in settled.words
        assert settled.buttons == ()
        assert "receipt rf_0001" in reply.words


async def test_another_persons_click_settles_nothing() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "refund 20 for ch_1042")
        card = await slack.until(lambda: slack.card(said))
        await slack.click(card, "Approve", "bob")
        await slack.until(lambda: slack.whispers("bob"))
        assert slack.card(said) is not None
        await slack.click(card, "Deny", "alice")
        await slack.until(lambda: len(slack.replies(said)) == 2 and slack.replies(said)[0].edited)
        assert "Denied by Alice" in words(slack, said)[0]


async def test_two_clicks_at_once_refund_once() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "refund 20 for ch_1042")
        card = await slack.until(lambda: slack.card(said))
        await asyncio.gather(*(slack.click(card, "Approve", "alice") for _ in range(3)))
        await slack.until(lambda: any("receipt" in text for text in words(slack, said)))
        assert sum("receipt rf_0001" in text for text in words(slack, said)) == 1


async def test_a_direct_message_is_answered() -> None:
    async with open_shop() as slack:
        said = await slack.direct("alice", "hello")
        await slack.until(lambda: len(slack.visible_to("alice", said.channel)) == 2)
        asked, reply = slack.visible_to("alice", said.channel)
        assert (asked.from_bot, reply.from_bot) == (False, True)
        assert "Hello Alice" in reply.words
        assert slack.visible_to("bob") == []


async def test_a_guest_is_refused_where_only_they_see_it() -> None:
    async with open_shop() as slack:
        said = await slack.mention("gus", "general", "hello")
        (refusal,) = await slack.until(lambda: slack.whispers("gus"))
        assert "Guests" in refusal.words
        assert slack.replies(said) == []
        assert slack.whispers("alice") == []


async def test_a_stranger_and_a_shared_channel_are_refused() -> None:
    async with open_shop() as slack:
        await slack.mention("otto", "shared", "hello")
        await slack.until(lambda: slack.whispers("otto"))
        said = await slack.mention("alice", "shared", "hello")
        await slack.until(lambda: slack.whispers("alice"))
        assert slack.replies(said) == []


async def test_a_message_told_many_times_is_answered_once() -> None:
    async with open_shop() as slack:
        said = await slack.mention("alice", "general", "hello", copies=3, lose_first=True)
        await slack.until(lambda: slack.replies(said))
        again = await slack.mention("alice", "general", "and now?", said, first="app_mention")
        await slack.until(lambda: "and now?" in words(slack, said)[-1])
        assert again.thread == said.ts
        assert [text.rpartition("\n")[2] for text in words(slack, said)] == [
            "Hello Alice! This is message 1 of this conversation.",
            "That makes 2 messages so far.",
        ]


async def test_a_reply_whose_answer_was_lost_is_not_posted_again() -> None:
    async with open_shop() as slack:
        slack.fail("chat.postMessage", dropped(after_commit=True))
        said = await slack.mention("alice", "general", "hello")
        await slack.until(lambda: slack.made("conversations.replies"))
        second = await slack.mention("alice", "general", "hello", said)
        await slack.until(lambda: len(slack.replies(said)) == 2)
        assert "message 1" in words(slack, said)[0]
        assert "message 2" in words(slack, second)[1]


async def test_a_reply_is_sent_when_slack_recovers() -> None:
    async with open_shop() as slack:
        slack.fail("chat.postMessage", rate_limited(1))
        slack.fail("chat.postMessage", server_error())
        said = await slack.mention("alice", "general", "hello")
        await slack.until(lambda: slack.replies(said))
        assert slack.faults.left() == 0
        assert len(slack.replies(said)) == 1


async def test_a_card_is_answered_after_a_restart(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        async with running(shop(slack), slack=slack, data=tmp_path):
            said = await slack.mention("alice", "general", "refund 20 for ch_1042")
            card = await slack.until(lambda: slack.card(said))
        async with running(shop(slack), slack=slack, data=tmp_path):
            await slack.click(card, "Approve", "alice")
            await slack.until(lambda: any("receipt rf_0001" in text for text in words(slack, said)))


async def test_a_card_expires_on_the_shared_clock() -> None:
    async with FakeSlack() as slack, running(shop(slack), slack=slack, clock=slack.clock):
        said = await slack.mention("alice", "general", "refund 20 for ch_1042")
        await slack.until(lambda: slack.card(said))
        await slack.advance(timedelta(days=4))
        await slack.until(lambda: "Nobody answered in time" in words(slack, said)[0])
        assert slack.card(said) is None
