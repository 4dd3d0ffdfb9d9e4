"""Egress: what people see, in order and once, whatever the platform does.

What lives here: the fate of sends and edits. What does not: lanes and their rows, which the store's suite covers.
"""

from __future__ import annotations

import pytest

from channels.errors import DeliveryFailed, RateLimited
from durable_core.failpoints import arm
from tests.bot.session.actors import calls, die, says
from tests.bot.session.kit import Thread
from tests.bot.session.test_approvals import ask


async def test_a_rate_limit_blocks_the_whole_lane_until_its_time(thread: Thread) -> None:
    thread.channel.failures = [RateLimited(30)]
    await thread.say("one")
    await thread.work()
    await thread.say("two")
    await thread.work()
    assert (thread.channel.texts, len(thread.channel.attempts)) == ([], 1)
    thread.later_s(29)
    await thread.work()
    assert len(thread.channel.attempts) == 1
    thread.later_s(1)
    await thread.work()
    assert thread.channel.texts == ["answer 1", "answer 2"]
    assert thread.channel.attempts[0] == thread.channel.attempts[1]
    assert [shown.delivery.attempt for shown in thread.channel.shown] == [1, 1]


@pytest.mark.parametrize(
    "failure", [DeliveryFailed("busy", permanent=False), TimeoutError(), OSError("reset"), ValueError("bug")]
)
async def test_what_may_pass_is_sent_again(thread: Thread, failure: Exception) -> None:
    thread.channel.failures = [failure]
    await thread.say("hi")
    await thread.work()
    assert thread.channel.texts == []
    thread.later_s(2)
    await thread.work()
    assert thread.channel.texts == ["answer 1"]


async def test_what_never_will_is_buried_and_the_lane_goes_on(thread: Thread) -> None:
    thread.channel.failures = [DeliveryFailed("is_archived", permanent=True)]
    await thread.say("one")
    await thread.work()
    await thread.say("two")
    await thread.work()
    assert thread.channel.texts == ["answer 2"]
    rows = await thread.store.rows("SELECT state, last_error FROM moor_outbox ORDER BY lane_seq", {})
    assert rows == [("dead", "is_archived"), ("sent", None)]


async def test_after_so_many_tries_it_is_given_up_and_the_lane_goes_on(thread: Thread) -> None:
    thread.channel.failures = [DeliveryFailed("busy", permanent=False) for _ in range(5)]
    await thread.say("one")
    for _ in range(7):
        await thread.work()
        thread.later_s(60)
    await thread.say("two")
    await thread.work()
    assert (thread.channel.texts, len(thread.channel.attempts)) == (["answer 2"], 6)


async def test_a_post_whose_answer_got_lost_is_found_not_posted_again(thread: Thread) -> None:
    thread.channel.lost = [TimeoutError()]
    await thread.say("hi")
    await thread.work()
    thread.later_s(2)
    await thread.work()
    assert thread.channel.texts == ["answer 1"]


async def test_a_sender_that_died_after_the_post_leaves_one_message(thread: Thread) -> None:
    await thread.say("hi")
    with arm("send.after", die, on=1):
        await thread.killed("w2")
    await thread.work()
    assert len({shown.delivery.id for shown in thread.channel.shown}) == 1


async def test_a_card_that_is_posted_late_is_drawn_as_settled(thread: Thread) -> None:
    thread.channel.failures = [RateLimited(30)]
    await ask(thread)
    prompt = await thread.prompt()
    await thread.click("approve", prompt=prompt)
    await thread.work()
    assert thread.channel.cards == []
    thread.later_s(30)
    await thread.work()
    assert all(shown.card.buttons == () for shown in thread.channel.cards)
    assert {shown.ref for shown in thread.channel.cards} == {"m0"}
    assert thread.channel.cards[-1].card.outcome is not None
    assert thread.channel.cards[-1].card.outcome.text == "Approved by Alice"
    assert thread.channel.texts == ["answer 2"]


async def test_a_card_that_could_not_be_posted_is_told_of_once_settled(thread: Thread) -> None:
    thread.channel.failures = [DeliveryFailed("blocked", permanent=True)]
    await ask(thread)
    await thread.click("deny", prompt=await thread.prompt())
    await thread.work()
    (shown,) = thread.channel.cards
    assert (shown.edits, shown.card.buttons) == (None, ())


async def test_a_reply_with_a_card_comes_before_it_and_once(thread: Thread) -> None:
    await ask(thread, text="One moment.")
    thread.model.script = [says("Done.")]
    await thread.click("approve")
    await thread.work()
    shown = [shown.message.text or "card" for shown in thread.channel.shown if shown.edits is None]
    assert shown == ["One moment.", "card", "Done."]


async def test_long_text_with_calls_that_need_nobody_is_not_posted_twice(thread: Thread) -> None:
    thread.model.script = [calls(("look", {}), text="Looking."), says("Seen.")]
    await thread.say("look")
    await thread.work()
    assert thread.channel.texts.count("Seen.") == 1
    assert thread.channel.texts.count("Looking.") <= 1
