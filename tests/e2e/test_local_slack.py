"""The demo in a Slack that nobody here wrote: what we think Slack sends and takes, somebody else thinks too."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.e2e.local_slack import ALICE, BOB, BOT, GENERAL, PATIENCE, LocalSlack, local_slack

T = TypeVar("T")


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlack]:
    with local_slack(tmp_path_factory.mktemp("harbour")) as running:
        yield running


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """Ask again until there is something; the emulator tells of nothing by itself."""
    deadline = time.monotonic() + PATIENCE
    while not (found := await look()):
        assert time.monotonic() < deadline, "it did not become so"
        await asyncio.sleep(0.05)
    return found


def words(message: dict[str, Any]) -> str:
    """Return all that the blocks of a message show."""

    def shown(part: object) -> list[str]:
        if isinstance(part, dict):
            return [
                text
                for name, value in part.items()
                for text in ([value] if name == "text" and isinstance(value, str) else shown(value))
            ]
        return [text for one in part for text in shown(one)] if isinstance(part, list) else []

    return "\n".join(shown(message["blocks"]))


def labels(message: dict[str, Any]) -> list[str]:
    elements = [element for block in message["blocks"] for element in block.get("elements", ())]
    return [element["text"]["text"] for element in elements if element.get("type") == "button"]


async def settled(slack: LocalSlack, thread: str, count: int) -> list[dict[str, Any]]:
    """Wait for so many messages of the bot in a thread."""

    async def enough() -> list[dict[str, Any]]:
        found = await slack.replies(thread)
        return found if len(found) >= count else []

    return await until(enough)


async def test_a_mention_is_told_twice_and_answered_once_in_its_thread(harbour: LocalSlack) -> None:
    thread = await harbour.says(ALICE, f"<@{BOT}> hello")
    [reply] = await settled(harbour, thread, 1)
    assert reply["text"] == "Hello alice! This is message 1 of this conversation."
    told = [entry["detail"]["event"] for entry in await harbour.log("to_bot", "events_api")]
    assert [event["type"] for event in told if event["ts"] == thread] == ["message", "app_mention"]
    # The conversation goes on without a mention, and counts on: the first turn was one.
    await harbour.says(ALICE, "hello", thread=thread)
    *_, second = await settled(harbour, thread, 2)
    assert second["text"] == "Hello alice! This is message 2 of this conversation."
    assert [call["thread_ts"] for call in await harbour.calls("chat.postMessage")] == [thread, thread]


async def test_what_is_not_for_the_bot_gets_no_answer(harbour: LocalSlack) -> None:
    aside = await harbour.says(ALICE, "hello everybody")
    thread = await harbour.says(ALICE, f"<@{BOT}> hello")
    await settled(harbour, thread, 1)
    await harbour.says(BOB, "hello from Bob", thread=thread)
    mentioned = await harbour.says(BOB, f"<@{BOT}> hello", thread=thread)
    *_, last = await settled(harbour, thread, 2)
    assert last["text"] == "Hello bob! This is message 2 of this conversation."
    assert mentioned
    assert await harbour.replies(aside) == []


async def test_a_refund_waits_for_its_requester_and_runs_once(harbour: LocalSlack) -> None:
    thread = await harbour.says(ALICE, f"<@{BOT}> refund 20 for ch_1")
    [card] = await settled(harbour, thread, 1)
    assert labels(card) == ["Approve", "Deny", "Deny with a note"]
    assert "Refund 20 for ch_1?" in words(card)
    assert "alice may answer" in words(card)
    assert "number" not in card["text"]

    await harbour.clicks(BOB, card, "Approve")
    refused = await until(lambda: private_to(harbour, BOB, thread))
    assert refused[0]["text"] == "Only alice may answer this."
    assert labels((await harbour.replies(thread))[0]) == ["Approve", "Deny", "Deny with a note"]

    await harbour.clicks(ALICE, card, "Approve")
    shown, reply = await settled(harbour, thread, 2)
    assert reply["text"].startswith("Refunded 20 for ch_1, receipt rf_")
    shown = await until(lambda: without_buttons(harbour, thread))
    assert shown["ts"] == card["ts"]
    assert "Approved by alice" in words(shown)

    # Whoever still sees the old card presses once more.
    await harbour.clicks(ALICE, card, "Approve")
    [late] = await until(lambda: private_to(harbour, ALICE, thread))
    assert "alice" in late["text"]
    assert len(await harbour.replies(thread)) == 2


async def test_a_denied_refund_does_not_run(harbour: LocalSlack) -> None:
    thread = await harbour.says(BOB, f"<@{BOT}> refund 30 for ch_3")
    [card] = await settled(harbour, thread, 1)
    await harbour.clicks(BOB, card, "Deny")
    *_, reply = await settled(harbour, thread, 2)
    assert "Refunded" not in reply["text"]
    assert "Denied by bob" in words(await until(lambda: without_buttons(harbour, thread)))


async def test_a_direct_message_is_one_conversation_without_mentions(harbour: LocalSlack) -> None:
    direct = await harbour.opens(ALICE)

    async def answers() -> list[dict[str, Any]]:
        return [one for one in await harbour.messages(direct) if one["user"] == BOT]

    await harbour.says(ALICE, "hello", channel=direct)
    [first] = await until(answers)
    assert first["text"] == "Hello alice! This is message 1 of this conversation."
    assert "thread_ts" not in first
    await harbour.says(ALICE, "refund 5 for ch_9", channel=direct)
    card = (await until(lambda: longer(answers, 2)))[1]
    await harbour.clicks(ALICE, card, "Approve")
    *_, reply = await until(lambda: longer(answers, 3))
    assert reply["text"].startswith("Refunded 5 for ch_9")


async def test_a_reply_that_is_too_long_comes_as_a_file_and_its_beginning(harbour: LocalSlack) -> None:
    told = "and so on " * 4_100
    thread = await harbour.says(ALICE, f"<@{BOT}> {told}")
    reply, file = await settled(harbour, thread, 2)
    assert [shared["name"] for shared in file["files"]] == ["reply.md"]
    assert file["files"][0]["size"] > len(told)
    assert words(reply).startswith("You said: and so on")
    assert "The file below has all of it." in words(reply)


async def test_the_emulator_took_every_call(harbour: LocalSlack) -> None:
    entries = (await harbour.control("log"))["log"]
    assert [entry for entry in entries if entry["direction"] == "internal"] == []
    answers = Counter(entry["summary"] for entry in entries if (entry["direction"], entry["kind"]) == ("from_bot", "events_api"))
    assert set(answers) == {"HTTP 200"}
    called = {entry["summary"] for entry in entries if (entry["direction"], entry["kind"]) == ("from_bot", "web_api")}
    assert called >= {"chat.postMessage", "chat.update", "chat.postEphemeral", "users.info", "conversations.info"}
    in_channel = [call for call in await harbour.calls("chat.postMessage") if call["channel"] == GENERAL]
    assert all(call["thread_ts"] for call in in_channel)


async def private_to(slack: LocalSlack, user: str, thread: str) -> list[dict[str, Any]]:
    return [one for one in await slack.messages() if one.get("ephemeral_to") == user and one.get("thread_ts") == thread]


async def without_buttons(slack: LocalSlack, thread: str) -> dict[str, Any]:
    """Return the card once it has no buttons any more, and until then nothing."""
    card, *_ = await slack.replies(thread)
    return {} if labels(card) else card


async def longer(look: Callable[[], Awaitable[list[dict[str, Any]]]], count: int) -> list[dict[str, Any]]:
    found = await look()
    return found if len(found) >= count else []


async def test_a_form_opens_for_who_clicked_and_its_note_is_on_the_card(harbour: LocalSlack) -> None:
    thread = await harbour.says(ALICE, f"<@{BOT}> refund 20 for ch_1")
    [card] = await settled(harbour, thread, 1)
    await harbour.clicks(ALICE, card, "Deny with a note")
    [opened] = await until(lambda: harbour.calls("views.open"))
    assert opened["trigger_id"]
    await harbour.submits(ALICE, {"note": "Not this month"})
    shown = await until(lambda: without_buttons(harbour, thread))
    assert "Denied by alice" in words(shown)
    assert "Not this month" in words(shown)
