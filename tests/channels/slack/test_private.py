"""A private card is a direct message that can be settled later; a private remark is ephemeral where that is possible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from channels import Button, Card, CardOutcome, DeliveryFailed, MessageRef, Outbound
from channels.slack import Slack
from tests.channels.slack.deliveries import CARD, SETTLED, THREAD, delivery, fate
from tests.channels.slack.fake import CHANNEL, ROOT, MiniSlack, dropped, refusal, seen

ASKED = Outbound(card=CARD, private_to="UALICE")
DIRECT = "DUALICE"


def direct(world: MiniSlack) -> list[str]:
    return [seen(message) for message in world.messages[DIRECT]]


async def test_a_private_card_goes_to_its_reader_and_carries_where_it_belongs(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(ASKED))
    assert world.messages[CHANNEL] == []
    (shown,) = world.messages[DIRECT]
    assert "thread_ts" not in shown
    assert ref == MessageRef("slack", THREAD, id=f"{DIRECT}/{shown['ts']}")
    ids = [element["action_id"] for block in shown["blocks"] if block["type"] == "actions" for element in block["elements"]]
    assert ids == [f"moorings:1@{CHANNEL}:{ROOT}"]


async def test_a_private_card_is_settled_where_it_was_shown(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(ASKED))
    for message in (Outbound(card=SETTLED, private_to="UALICE"), Outbound(card=SETTLED)):
        again = await slack.edit(ref, delivery(message, id=f"dlv_{message.private_to}"))
        assert again == ref
        assert len(direct(world)) == 1
        assert "Approved by Bob" in direct(world)[0]
    assert world.messages[CHANNEL] == []


async def test_a_private_card_whose_answer_was_lost_is_found_not_posted_again(world: MiniSlack, slack: Slack) -> None:
    world.after["chat.postMessage"].append(dropped)
    assert isinstance(await fate(slack, delivery(ASKED)), DeliveryFailed)
    assert await slack.find(THREAD, "dlv_1") is None
    ref = await slack.send(delivery(ASKED, attempt=2))
    assert ref.id == f"{DIRECT}/{world.messages[DIRECT][0]['ts']}"
    assert len(direct(world)) == 1


async def test_what_doesnt_fit_a_private_card_is_a_file_behind_it(world: MiniSlack, slack: Slack) -> None:
    card = Card("Run?", fields=(("command", "x" * 20_000),), buttons=(Button("Ok", "v"),))
    ref = await slack.send(delivery(Outbound(card=card, private_to="UALICE")))
    (file,) = world.files
    assert (file["channel"], file["thread_ts"]) == (DIRECT, ref.id.partition("/")[2])
    assert file["content"] == b"x" * 20_000


async def test_who_cant_be_written_to_is_not_written_to_anywhere(world: MiniSlack, slack: Slack) -> None:
    world.before["conversations.open"].append(refusal("user_not_found"))
    lost = await fate(slack, delivery(ASKED))
    assert isinstance(lost, DeliveryFailed)
    assert (lost.code, lost.permanent) == ("user_not_found", True)
    assert dict(world.messages) == {}


@pytest.mark.parametrize("answer", [{"channel": {"id": "C1"}}, {"channel": None}, {}])
async def test_what_is_no_direct_message_is_never_posted_into(
    world: MiniSlack, slack: Slack, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    monkeypatch.setattr(world, "do_conversations_open", lambda _body: answer)
    assert isinstance(await fate(slack, delivery(ASKED)), DeliveryFailed)
    assert dict(world.messages) == {}


async def test_a_remark_for_somebody_who_is_not_in_the_channel_is_a_direct_message(world: MiniSlack, slack: Slack) -> None:
    world.before["chat.postEphemeral"].append(refusal("user_not_in_channel"))
    ref = await slack.send(delivery(Outbound("Only finance may answer this.", notice=True, private_to="UALICE")))
    assert direct(world) == ["Only finance may answer this."]
    assert ref.id.startswith(f"{DIRECT}/")


async def test_a_public_message_never_becomes_a_private_card_by_an_edit(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery())
    with pytest.raises(DeliveryFailed, match="private_edit_of_public"):
        await slack.edit(ref, delivery(replace(ASKED), id="dlv_2"))


async def test_those_a_remark_is_for_are_called(world: MiniSlack, slack: Slack) -> None:
    await slack.send(delivery(Outbound("Still waiting.", notice=True, mentions=("UALICE", "<!channel>", "U B"))))
    (message,) = world.messages[CHANNEL]
    assert message["text"] == "<@UALICE> Still waiting."
    assert seen(message) == "<@UALICE>\nStill waiting."


async def test_a_card_that_only_says_how_it_stands_says_it_once(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(Outbound(card=Card("Paused: waiting for Alice to connect Tracker."))))
    words = "Alice connected Tracker."
    await slack.edit(ref, delivery(Outbound(card=Card(words, outcome=CardOutcome("approved", words, at=0))), id="dlv_2"))
    (message,) = world.messages[CHANNEL]
    assert seen(message).count(words) == 1
    assert "Paused" not in seen(message)
    assert message["text"].count(words) == 1
