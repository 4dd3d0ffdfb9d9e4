"""Answers that don't count, and people who may not speak: told in private, once, and nothing else happens.

What lives here: late, forged and refused clicks, guests, look-ups that fail. What does not: who may do what (tests/bot).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.testing.slack import FakeSlack, Said
from bot.testing.slack.faults import Fault, dropped, rate_limited, refused, server_error
from bot.testing.slack.values import Message
from tests.e2e.shop import Shop, made_at, open_shop

CARD = "refund 20 for ch_1"


async def ask(slack: FakeSlack, text: str = CARD) -> tuple[Said, Message]:
    said = await slack.mention("alice", "general", text)
    return said, await slack.until(lambda: slack.card(said))


async def whispered(shop: Shop, user: str, count: int = 1) -> list[str]:
    """Wait until somebody was told so much in private, and until no more comes."""
    await shop.slack.until(lambda: len(shop.slack.whispers(user)) >= count)
    await shop.slack.until(lambda: all(state == "sent" for state, _ in shop.books.owed))
    return [message.words for message in shop.slack.whispers(user)]


@pytest.mark.parametrize(
    ("user", "text", "why"),
    [
        ("bob", CARD, "Only Alice may answer this."),
        ("alice", "refund 140 for ch_1", "Only Finance may answer this."),
        ("gus", CARD, "Guests can't use this bot."),
        ("mia", CARD, "Guests can't use this bot."),
    ],
)
async def test_a_click_of_who_may_not_is_refused_in_private_once(tmp_path: Path, user: str, text: str, why: str) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack, text)
        await shop.slack.click(card, "Approve", user)
        assert await whispered(shop, user) == [why]
        assert shop.slack.card(said) is not None
        assert shop.books.refunds == []
        others = {"alice", "bob", "farah", "gus"} - {user}
        assert [shop.slack.whispers(one) for one in others] == [[]] * len(others)


async def test_late_clicks_are_told_how_it_ended(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack)
        await shop.slack.click(card, "Approve", "alice")
        await shop.replies(said, 2)
        for button, user in (("Approve", "alice"), ("Deny", "bob")):
            await shop.slack.click(card, button, user)
            (told,) = await whispered(shop, user)
            assert "settled before: Approved by Alice" in told
        assert shop.books.refunds == ["ch_1"]
        assert len(shop.words(said)) == 2


async def test_two_people_at_once_settle_it_once(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack)
        for button in ("Approve", "Deny", "Approve", "Deny"):
            assert (await shop.slack.click(card, button, "alice")).ok
        told = await whispered(shop, "alice", 3)
        assert all("settled before: Approved by Alice" in text for text in told)
        await shop.replies(said, 2)
        assert shop.books.refunds == ["ch_1"]


@pytest.mark.parametrize("answered", [False, True])
async def test_a_click_on_a_card_whose_session_ended(tmp_path: Path, answered: bool) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack)
        if answered:
            await shop.slack.click(card, "Deny", "alice")
            await shop.replies(said, 2)
        (run_id,) = shop.books.run_ids
        assert await shop.app.runtime.store.end(run_id, reason="reset", events=[])
        await shop.slack.until(lambda: shop.slack.card(said) is None)
        posting = await shop.slack.click(card, "Approve", "alice")
        assert posting.status == 200
        (told,) = await whispered(shop, "alice")
        ended = "This conversation has ended. Nothing was done with your answer."
        assert told == ("This was settled before: Denied by Alice." if answered else ended)
        assert shop.books.refunds == []


FORGED = ("moor1.prm_00000000000000000000000000.approve", "approve", "x" * 1_900, "\u202eevil", "moor1..", "a.b.c")


async def test_forged_values_do_nothing(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack)
        real = card.buttons[0].value
        for value in (*FORGED, real[:-1], real + "x", real.replace("approve", "approve_all")):
            forged = replace(card, buttons=(replace(card.buttons[0], value=value),))
            posting = await shop.slack.click(forged, "Approve", "alice")
            assert posting.status == 200, value
        await shop.slack.settled()
        assert shop.slack.card(said) is not None
        assert shop.books.refunds == []
        assert [message.words for message in shop.slack.replies(said)] == [card.words]
        assert len(shop.slack.whispers("alice")) <= 4
        await shop.slack.click(card, "Approve", "alice")
        await shop.replies(said, 2)
        assert shop.books.refunds == ["ch_1"]


@pytest.mark.parametrize("user", ["gus", "mia"])
async def test_a_guests_message_is_refused_in_private_without_a_turn(tmp_path: Path, user: str) -> None:
    async with open_shop(tmp_path) as shop:
        said = await shop.slack.mention(user, "general", "hello", copies=2)
        assert await whispered(shop, user) == ["Guests can't use this bot."]
        assert shop.words(said) == []
        assert shop.slack.made("chat.postMessage") == []
        assert shop.books.outcomes == ["failed"]
        assert shop.books.steps == 0


# Who somebody is can't be found out right now

TROUBLE = (server_error(), dropped(), refused("missing_scope"), refused("internal_error"))


@pytest.mark.parametrize("fault", TROUBLE, ids=lambda fault: f"{fault.kind} {fault.error}".strip())
async def test_a_failing_look_up_is_tried_again_not_refused(tmp_path: Path, fault: Fault) -> None:
    async with open_shop(tmp_path) as shop:
        shop.slack.fail("users.info", fault, times=2)
        said = await shop.slack.mention("alice", "general", "hello")
        (reply,) = await shop.replies(said, 1)
        assert "Hello Alice" in reply.words
        assert [call.ok for call in shop.slack.made("users.info")] == [False, False, True]
        assert shop.slack.whispers("alice") == []


async def test_a_failing_look_up_of_who_clicked_is_tried_again(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        said, card = await ask(shop.slack)
        shop.slack.fail("users.info", server_error(), times=2)
        await shop.slack.click(card, "Approve", "bob")
        assert await whispered(shop, "bob") == ["Only Alice may answer this."]
        await shop.slack.click(card, "Approve", "alice")
        await shop.replies(said, 2)
        assert shop.books.refunds == ["ch_1"]


async def test_a_limited_look_up_waits_as_long_as_slack_says_and_nobody_else_is_refused(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        times: list[float] = []
        made_at(shop.slack, "users.info", times, time.monotonic)
        shop.slack.fail("users.info", rate_limited(2))
        said = await shop.slack.mention("alice", "general", "hello")
        other = await shop.slack.mention("bob", "private", "hello")
        await shop.replies(said, 1)
        await shop.replies(other, 1)
        assert times[1] - times[0] >= 2.0
        assert shop.slack.whispers("alice") == shop.slack.whispers("bob") == []


async def test_who_is_nobody_is_refused(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.slack.fail("users.info", refused("user_not_found"))
        said = await shop.slack.mention("alice", "general", "hello")
        assert len(await whispered(shop, "alice")) == 1
        assert shop.words(said) == []
        assert shop.books.outcomes == ["failed"]
        assert shop.books.steps == 0
