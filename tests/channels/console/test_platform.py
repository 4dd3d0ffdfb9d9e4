"""The console's platform: threads, messages, clicks and events."""

from __future__ import annotations

import asyncio
import json

import pytest

from channels import Button, Card, CardOutcome, Outbound
from channels.console import ConsolePlatform, ConsoleRefused
from channels.console.platform import MAX_PERSON_TEXT
from channels.strict import Json


def text(words: str) -> Json:
    return Outbound(words).to_json()


def card(*values: str, settled: bool = False) -> Json:
    outcome = CardOutcome("approved", "Approved by Alice", at=1) if settled else None
    return Outbound(card=Card("Sure?", buttons=tuple(Button(v, v) for v in values), outcome=outcome)).to_json()


async def test_a_persons_message_is_shown_and_owed_to_the_bot(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    posted = await platform.post_person(thread.id, "alice", text="hello", client_id="1")
    assert await platform.messages(thread.id) == [posted.message]
    assert (posted.message.author, posted.message.text, posted.message.seq) == ("alice", "hello", 1)
    assert await platform.undelivered() == [posted.event]
    body = json.loads(posted.event.body)
    assert body["author"] == {"id": "alice", "name": "Alice", "standing": "member", "roles": []}
    assert body["thread"] == {"id": thread.id, "title": "hello", "channel": "#general", "shared_outside": False}
    await platform.delivered(posted.event.id)
    await platform.delivered(posted.event.id)
    await platform.delivered("evt_unknown")
    assert await platform.undelivered() == []


async def test_a_client_id_counts_once(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    first = await platform.post_person(thread.id, "alice", text="hello", client_id="1")
    await platform.delivered(first.event.id)
    again = await platform.post_person(thread.id, "alice", text="hello", client_id="1")
    assert again.message == first.message
    assert (again.event.id, again.event.body, again.event.delivered) == (first.event.id, first.event.body, True)
    assert len(await platform.messages(thread.id)) == 1
    with pytest.raises(ConsoleRefused, match="client_id_reused"):
        await platform.post_person(thread.id, "alice", text="other words", client_id="1")
    await platform.post_person(thread.id, "bob", text="hello", client_id="1")  # another person's ids are their own
    assert len(await platform.messages(thread.id)) == 2


async def test_one_client_id_posted_at_once_counts_once(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    posts = [platform.post_person(thread.id, "alice", text="hello", client_id="1") for _ in range(20)]
    assert len({posted.message.id for posted in await asyncio.gather(*posts)}) == 1
    assert len(await platform.undelivered()) == 1


async def test_the_first_message_names_the_thread(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    assert thread.title == ""
    await platform.private_note(thread.id, "guest", text="not for all")
    await platform.post_person(thread.id, "alice", text="a  long\nfirst " + "word " * 40, client_id="1")
    await platform.post_person(thread.id, "alice", text="second", client_id="2")
    title = (await platform.thread(thread.id)).title
    assert title == ("a long first " + "word " * 40)[:60].rstrip()
    named = await platform.create_thread("Refunds", channel="@alice", shared_outside=True)
    await platform.post_person(named.id, "alice", text="hello", client_id="3")
    found = await platform.thread(named.id)
    assert (found.title, found.channel, found.shared_outside) == ("Refunds", "@alice", True)


async def test_every_change_moves_the_version_and_the_thread_to_the_top(platform: ConsolePlatform) -> None:
    seen = [await platform.version()]
    first = await platform.create_thread("First")
    seen.append(await platform.version())
    second = await platform.create_thread("Second")
    seen.append(await platform.version())
    message = await platform.post_bot("d1", first.id, outbound_json=text("hi"))
    seen.append(await platform.version())
    await platform.edit_bot("d2", message, thread_id=first.id, outbound_json=text("ho"))
    seen.append(await platform.version())
    assert seen == sorted(set(seen))
    assert [thread.id for thread in await platform.threads()] == [first.id, second.id]


async def test_only_what_changed_since_is_returned(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    first = await platform.post_bot("d1", thread.id, outbound_json=text("one"))
    await platform.post_bot("d2", thread.id, outbound_json=text("two"))
    since = await platform.version()
    assert await platform.messages(thread.id, since_version=since) == []
    await platform.edit_bot("d3", first, thread_id=thread.id, outbound_json=text("one, edited"))
    (changed,) = await platform.messages(thread.id, since_version=since)
    assert (changed.id, changed.text, changed.edited_at) == (first, "one, edited", 1_800_000_000_000)


async def test_a_delivery_is_shown_once_and_found(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    other = await platform.create_thread()
    assert await platform.find("d1") is None
    posts = [platform.post_bot("d1", thread.id, outbound_json=text("hi")) for _ in range(10)]
    (message_id,) = set(await asyncio.gather(*posts))
    found = await platform.find("d1")
    assert found is not None
    assert (found.id, found.author) == (message_id, "bot")
    with pytest.raises(ConsoleRefused, match="delivery_id_reused"):
        await platform.post_bot("d1", other.id, outbound_json=text("hi"))


async def test_an_edit_replaces_all_of_a_message(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    message = await platform.post_bot("d1", thread.id, outbound_json=card("yes"))
    await platform.edit_bot("d2", message, thread_id=thread.id, outbound_json=text("done"))
    (shown,) = await platform.messages(thread.id)
    assert (shown.text, shown.card) == ("done", None)
    version = await platform.version()
    await platform.edit_bot("d2", message, thread_id=thread.id, outbound_json=text("done"))
    assert await platform.version() == version
    found = await platform.find("d2")
    assert found is not None
    assert found.id == message


async def test_what_cant_be_edited_is_refused(platform: ConsolePlatform) -> None:
    thread, other = await platform.create_thread(), await platform.create_thread()
    posted = await platform.post_person(thread.id, "alice", text="mine", client_id="1")
    message = await platform.post_bot("d1", thread.id, outbound_json=text("hi"))
    for message_id, thread_id, code in (
        (posted.message.id, thread.id, "not_the_bots"),
        (message, other.id, "unknown_message"),
        ("msg_none", thread.id, "unknown_message"),
    ):
        with pytest.raises(ConsoleRefused, match=code):
            await platform.edit_bot("d2", message_id, thread_id=thread_id, outbound_json=text("changed"))


async def test_private_words_never_become_public(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    public = await platform.post_bot("d1", thread.id, outbound_json=text("for all"))
    private = await platform.private_note(thread.id, "bob", text="for Bob")
    secret = Outbound("secret", private_to="bob").to_json()
    with pytest.raises(ConsoleRefused, match="would_be_public"):
        await platform.edit_bot("d2", public, thread_id=thread.id, outbound_json=secret)
    await platform.edit_bot("d3", private, thread_id=thread.id, outbound_json=text("still for Bob"))
    assert [m.text for m in await platform.messages(thread.id, viewer="alice")] == ["for all"]
    assert [m.text for m in await platform.messages(thread.id, viewer="bob")] == ["for all", "still for Bob"]
    assert [m.private_to for m in await platform.messages(thread.id)] == [None, "bob"]


async def test_a_click_is_owed_to_the_bot_once(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    message = await platform.post_bot("d1", thread.id, outbound_json=card("yes", "no"))
    clicks = [platform.click(thread.id, message, author_id="farah", value="yes", client_id="1") for _ in range(10)]
    assert len({event.id for event in await asyncio.gather(*clicks)}) == 1
    (event,) = await platform.undelivered()
    body = json.loads(event.body)
    assert (body["type"], body["value"], body["message"], body["author"]["roles"]) == ("click", "yes", message, ["finance"])
    with pytest.raises(ConsoleRefused, match="client_id_reused"):
        await platform.click(thread.id, message, author_id="farah", value="no", client_id="1")


async def test_a_stale_click_reaches_the_bot_and_an_invented_one_does_not(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    message = await platform.post_bot("d1", thread.id, outbound_json=card("yes", "no"))
    await platform.edit_bot("d2", message, thread_id=thread.id, outbound_json=card(settled=True))
    assert (await platform.click(thread.id, message, author_id="bob", value="no", client_id="1")).id
    with pytest.raises(ConsoleRefused, match="unknown_button"):
        await platform.click(thread.id, message, author_id="bob", value="maybe", client_id="2")


async def test_a_click_where_nothing_is_shown_is_refused(platform: ConsolePlatform) -> None:
    thread, other = await platform.create_thread(), await platform.create_thread()
    message = await platform.post_bot("d1", thread.id, outbound_json=card("yes"))
    private = Outbound(card=Card("Sure?", buttons=(Button("Yes", "yes"),)), private_to="alice").to_json()
    hidden = await platform.post_bot("d2", thread.id, outbound_json=private)
    for thread_id, message_id, author, code in (
        (other.id, message, "alice", "unknown_message"),
        (thread.id, "msg_none", "alice", "unknown_message"),
        (thread.id, hidden, "bob", "unknown_message"),
        ("none", message, "alice", "unknown_thread"),
        (thread.id, message, "mallory", "unknown_author"),
    ):
        with pytest.raises(ConsoleRefused, match=code):
            await platform.click(thread_id, message_id, author_id=author, value="yes", client_id="1")
    assert (await platform.click(thread.id, hidden, author_id="alice", value="yes", client_id="1")).id
    assert len(await platform.undelivered()) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [("", "empty"), (" \n", "empty"), ("x" * (MAX_PERSON_TEXT + 1), "too_long"), ("half \ud800", "not_text")],
)
async def test_what_is_no_message_is_refused(platform: ConsolePlatform, words: str, code: str) -> None:
    thread = await platform.create_thread()
    with pytest.raises(ConsoleRefused, match=code):
        await platform.post_person(thread.id, "alice", text=words, client_id="1")
    assert await platform.undelivered() == []


@pytest.mark.parametrize(
    ("outbound", "code"),
    [
        ({}, "bad_message"),
        ({"text": 1}, "bad_message"),
        (Outbound("").to_json(), "empty"),
        (Outbound("half \ud800").to_json(), "not_text"),
        (Outbound(card=Card("half \ud800")).to_json(), "not_text"),
        (Outbound("hi", private_to="mallory").to_json(), "unknown_author"),
        (
            Outbound("hi").to_json() | {"card": {"question": "?", "detail": "", "fields": [], "evidence": [], "buttons": [1]}},
            "bad_",
        ),
    ],
)
async def test_a_bots_message_that_cant_be_shown_is_refused(platform: ConsolePlatform, outbound: Json, code: str) -> None:
    thread = await platform.create_thread()
    with pytest.raises(ConsoleRefused, match=code):
        await platform.post_bot("d1", thread.id, outbound_json=outbound)


async def test_unknown_threads_are_refused(platform: ConsolePlatform) -> None:
    for call in (
        platform.thread("none"),
        platform.messages("none"),
        platform.post_person("none", "alice", text="hi", client_id="1"),
        platform.post_bot("d1", "none", outbound_json=text("hi")),
        platform.private_note("none", "alice", text="hi"),
    ):
        with pytest.raises(ConsoleRefused, match="unknown_thread"):
            await call
