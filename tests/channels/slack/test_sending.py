"""One delivery, one message: posted into its thread, and found again when the answer was lost."""

from __future__ import annotations

import logging

import pytest

from channels import BadAddress, DeliveryFailed, MessageRef, Outbound, RateLimited
from channels.slack import Slack
from channels.slack.api import UNCLEAR
from channels.slack.search import EVENT_TYPE
from tests.channels.slack.deliveries import CARD, DM, SETTLED, THREAD, delivery, fate
from tests.channels.slack.fake import BOT, CHANNEL, ROOT, MiniSlack, dropped, refusal
from tests.channels.slack.payloads import SECRET


async def test_a_reply_goes_into_its_thread_quietly_and_with_its_name(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery("**hello** & <!channel>"))
    (body,) = world.bodies("chat.postMessage")
    assert (body["channel"], body["thread_ts"], body["unfurl_links"], body["unfurl_media"]) == (CHANNEL, ROOT, False, False)
    assert body["metadata"] == {"event_type": EVENT_TYPE, "event_payload": {"delivery_id": "dlv_1"}}
    assert body["text"] == "*hello* &amp; &lt;!channel&gt;"
    assert body["blocks"][0]["type"] == "markdown"
    assert "<!channel>" not in body["blocks"][0]["text"]
    assert ref == MessageRef("slack", THREAD, id=world.messages[CHANNEL][0]["ts"])


async def test_a_direct_message_is_answered_without_a_thread(world: MiniSlack, slack: Slack) -> None:
    await slack.send(delivery(address=DM))
    assert "thread_ts" not in world.bodies("chat.postMessage")[0]


@pytest.mark.parametrize(
    "address",
    [
        "slack:v1:-:T1:C1:dm",
        "slack:v1:-:T1:C1:",
        "slack:v1:-:T1:C1",
        "slack:v1::T1:C1:1.1",
        "slack:v1:-:T1:C1:root",
        "slack:v2:-:T1:C1:1.1",
    ],
)
async def test_an_incomplete_address_is_never_sent_to_the_channels_root(world: MiniSlack, slack: Slack, address: str) -> None:
    with pytest.raises(BadAddress):
        await slack.send(delivery(address=address))
    assert world.calls == []


# Once


@pytest.mark.parametrize("address", [THREAD, DM])
async def test_a_message_whose_answer_was_lost_is_found_not_posted_again(world: MiniSlack, slack: Slack, address: str) -> None:
    world.after["chat.postMessage"].append(dropped)
    lost = await fate(slack, delivery(address=address))
    assert isinstance(lost, DeliveryFailed)
    assert (lost.code, lost.permanent) == (UNCLEAR, False)
    ref = await slack.send(delivery(attempt=2, address=address))
    assert isinstance(ref, MessageRef)
    assert len(world.bodies("chat.postMessage")) == 1
    again = Slack(bot_token="xoxb-test", signing_secret=SECRET, api_url=world.url, now=world.now)
    assert await again.find(address, "dlv_1") == ref
    await again.close()


@pytest.mark.parametrize("age", [0, 7_200, 3 * 86_400])
async def test_a_message_is_found_in_a_busy_thread_however_old(world: MiniSlack, slack: Slack, age: int) -> None:
    before = [{"ts": world.ts(), "user": "UALICE", "thread_ts": ROOT, "text": "early"} for _ in range(250)]
    world.messages[CHANNEL] += before
    ref = await slack.send(delivery())
    slack._sent.clear()
    for _ in range(450):
        world.messages[CHANNEL].append({"ts": world.ts(), "user": "UALICE", "thread_ts": ROOT, "text": "more"})
    world.now_ms += age * 1_000
    assert await slack.find(THREAD, "dlv_1") == ref


async def test_the_search_is_bounded_and_reads_the_newest_first(world: MiniSlack, slack: Slack) -> None:
    for _ in range(5_000):
        world.messages[CHANNEL].append({"ts": world.ts(), "user": "UALICE", "thread_ts": ROOT, "text": "more"})
    world.now_ms += 2 * 86_400_000
    ref = await slack.send(delivery())
    slack._sent.clear()
    assert await slack.find(THREAD, "dlv_1") == ref
    assert len(world.bodies("conversations.replies")) == 1
    assert await slack.find(THREAD, "dlv_2") is None
    assert len(world.bodies("conversations.replies")) <= 21


async def test_only_our_own_metadata_counts(world: MiniSlack, slack: Slack) -> None:
    named = {"event_type": EVENT_TYPE, "event_payload": {"delivery_id": "dlv_1"}}
    for more in (
        {"user": "UEVIL", "metadata": named},
        {"user": BOT, "metadata": named | {"event_type": "other"}},
        {"user": BOT, "metadata": 7},
    ):
        world.messages[CHANNEL].append({"ts": world.ts(), "thread_ts": ROOT, "text": "x", **more})
    assert await slack.find(THREAD, "dlv_1") is None


async def test_a_search_that_was_just_in_vain_is_not_made_twice(world: MiniSlack, slack: Slack) -> None:
    assert await slack.find(THREAD, "dlv_1") is None
    looked = len(world.bodies("conversations.replies"))
    await slack.send(delivery(attempt=2))
    assert len(world.bodies("conversations.replies")) == looked


async def test_what_was_only_held_back_is_not_looked_for(world: MiniSlack, slack: Slack) -> None:
    limit = refusal("ratelimited", status=429, headers={"Retry-After": "1"})
    world.before["chat.postMessage"] += [limit, limit]
    for attempt in (1, 2):
        assert isinstance(await fate(slack, delivery(attempt=attempt)), RateLimited)
        world.now_ms += 1_000
    await slack.send(delivery(attempt=3))
    assert world.bodies("conversations.replies") == []


@pytest.mark.parametrize("lost_at", [1, 2])
async def test_what_another_attempt_may_have_posted_is_looked_for(world: MiniSlack, slack: Slack, lost_at: int) -> None:
    other = Slack(bot_token="xoxb-test", signing_secret=SECRET, api_url=world.url, now=world.now)
    limit = refusal("ratelimited", status=429, headers={"Retry-After": "1"})
    for attempt in (1, 2):
        (world.after if attempt == lost_at else world.before)["chat.postMessage"].append(dropped if attempt == lost_at else limit)
        await fate(other if attempt == lost_at else slack, delivery(attempt=attempt))
        world.now_ms += 1_000
    await slack.send(delivery(attempt=3))
    await other.close()
    assert len(world.messages[CHANNEL]) == 1


async def test_without_the_scope_to_look_a_message_is_sent_rather_than_lost(
    world: MiniSlack, slack: Slack, caplog: pytest.LogCaptureFixture
) -> None:
    world.before["conversations.replies"].append(refusal("missing_scope", needed="channels:history"))
    with caplog.at_level(logging.WARNING):
        await slack.send(delivery(attempt=2))
    assert "may be shown twice" in caplog.text


async def test_a_search_that_fails_sends_nothing(world: MiniSlack, slack: Slack) -> None:
    world.before["conversations.replies"].append(refusal("internal_error", status=500))
    assert isinstance(await fate(slack, delivery(attempt=2)), DeliveryFailed)
    assert world.bodies("chat.postMessage") == []


# Edits


async def test_a_card_is_settled_in_place(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(Outbound(card=CARD)))
    assert await slack.edit(ref, delivery(Outbound(card=SETTLED), id="dlv_2")) == ref
    (body,) = world.bodies("chat.update")
    assert (body["channel"], body["ts"]) == (CHANNEL, ref.id)
    assert "metadata" not in body  # what it carries stays: it is found by its first name
    assert "actions" not in [block["type"] for block in body["blocks"]]
    assert world.shown(CHANNEL, "UALICE")[0].count("Approved by Bob") == 1
    slack._sent.clear()
    assert await slack.find(THREAD, "dlv_1") == ref


async def test_a_card_is_settled_days_later_by_another_process(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(Outbound(card=CARD)))
    world.now_ms += 3 * 86_400_000
    later = Slack(bot_token="xoxb-test", signing_secret=SECRET, api_url=world.url, now=world.now)
    await later.edit(ref, delivery(Outbound(card=SETTLED), id="dlv_2"))
    await later.close()
    assert "Approved by Bob" in world.shown(CHANNEL, "UALICE")[0]


async def test_a_message_that_is_gone_cant_be_edited_for_good(slack: Slack) -> None:
    with pytest.raises(DeliveryFailed) as failed:
        await slack.edit(MessageRef("slack", THREAD, id="1.1"), delivery())
    assert (failed.value.code, failed.value.permanent) == ("message_not_found", True)


async def test_a_long_edit_still_shows(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery("short"))
    await slack.edit(ref, delivery("long " * 2_000, id="dlv_2"))
    assert world.shown(CHANNEL, "UALICE")[0].count("long") == 2_000


# Private


async def test_a_private_message_is_for_one_reader_in_the_thread(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(Outbound("psst", notice=True, private_to="UALICE")))
    (body,) = world.bodies("chat.postEphemeral")
    assert (body["user"], body["thread_ts"]) == ("UALICE", ROOT)
    assert world.shown(CHANNEL, "UBOB") == []
    await slack.edit(ref, delivery(Outbound("psst again", private_to="UALICE"), id="dlv_2"))
    assert len(world.bodies("chat.postEphemeral")) == 2


async def test_a_private_message_never_becomes_a_public_file_or_edit(world: MiniSlack, slack: Slack) -> None:
    await slack.send(delivery(Outbound("secret " * 10_000, private_to="UALICE")))
    assert world.files == []
    public = await slack.send(delivery("open", id="dlv_2"))
    with pytest.raises(DeliveryFailed) as failed:
        await slack.edit(public, delivery(Outbound("secret", private_to="UALICE"), id="dlv_3"))
    assert failed.value.permanent
    assert not any("secret" in shown for shown in world.shown(CHANNEL, "UBOB"))
