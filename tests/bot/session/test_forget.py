"""Forgetting: a session goes as a whole; of a person only their words go where others take part, while the talk goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.forget import forget_principal, forget_session, traces
from bot.history import ResultItem, UserItem
from bot.model import ModelReply, ModelRequest, OnText
from bot.redaction import DELETED, SOMEONE
from durable_core import codec
from durable_core.errors import ContentGone, NotFound
from durable_core.model import Outcome
from durable_core.schema import upgrade
from tests.bot.session.actors import Held, Turn, calls, says
from tests.bot.session.kit import ALICE, BOB, FARAH, GUEST, Thread, open_thread
from tests.bot.session.test_approvals import ask

SECRET = "my card is 4242"


@pytest.fixture
async def filed(tmp_path: Path) -> AsyncIterator[Thread]:
    upgrade(f"sqlite:///{tmp_path / 'm.db'}")
    made = await open_thread(str(tmp_path / "m.db"))
    yield made
    made.unwatch()
    await made.store.close()


def seen(request: ModelRequest) -> list[tuple[str, str]]:
    return [(item.author, item.text) for item in request.history if isinstance(item, UserItem)]


async def stored(thread: Thread) -> str:
    """All that the store can still read of a session, as text."""
    names = [f"command:{seq}" for seq in range(1, 20)]
    bodies = list((await thread.store.content(thread.run_id, names)).values())
    bodies += [step.output for step in await thread.store.steps(thread.run_id)]
    bodies += [event.body for event in await thread.store.events(thread.run_id, hidden=True)]
    for step in range(5):
        bodies += [record.body for record in await thread.store.records(thread.run_id, step)]
    return " ".join(str(codec.decode(body)) for body in bodies)


# A session


async def test_an_open_session_ends_and_its_content_is_gone(thread: Thread) -> None:
    await ask(thread)
    await thread.work()
    assert await forget_session(thread.store, thread.run_id, by="operator", seconds=0)
    assert await thread.ended()
    for read in (thread.store.events(thread.run_id), thread.store.steps(thread.run_id)):
        with pytest.raises(ContentGone):
            await read
    assert not await forget_session(thread.store, thread.run_id, by="operator", seconds=0)
    assert await thread.work() == 0, "what it owed is in nobody's way"
    with pytest.raises(NotFound):
        await forget_session(thread.store, "ses_unknown", by="operator", seconds=0)
    gone, thread.run_id = thread.run_id, ""
    await thread.say("again")
    await thread.work()
    assert thread.run_id != gone, "the address is free"


async def test_cards_lose_their_buttons_before_the_key_goes(thread: Thread) -> None:
    await ask(thread)
    await thread.work()
    forgetting = asyncio.create_task(forget_session(thread.store, thread.run_id, by="operator", seconds=10))
    while not await thread.ended():
        await asyncio.sleep(0)
    await thread.work()
    assert await forgetting
    last = thread.channel.shown[-1]
    card = last.delivery.message.card
    assert (last.edits, card and card.buttons, card and card.outcome is not None) == ("m0", (), True)
    thread.run_id = ""


# A person


async def shared(thread: Thread) -> None:
    """Alice began, Bob wrote too, Alice again."""
    for who, text in ((ALICE, SECRET), (BOB, "hello from bob"), (ALICE, "and the pin is 1234")):
        await thread.say(text, who)
        await thread.work()


async def test_their_words_go_from_an_open_session_and_the_model_sees_it(thread: Thread) -> None:
    await shared(thread)
    done = await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert (done.sessions, list(done.redacted)) == ((), [thread.run_id])
    await thread.say("what did alice say?", BOB)
    await thread.work()
    assert seen(thread.model.requests[-1]) == [
        (SOMEONE, DELETED),
        ("Bob", "hello from bob"),
        (SOMEONE, DELETED),
        ("Bob", "what did alice say?"),
    ]
    found = await stored(thread)
    assert "4242" not in found
    assert "1234" not in found
    assert "Alice" not in found
    assert "hello from bob" in found


async def test_readers_see_that_it_is_deleted(thread: Thread) -> None:
    await shared(thread)
    before = [event.id for event in await thread.events()]
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    events = await thread.events()
    assert [event.id for event in events] == before
    received = [(e.data["message"], e.data["author"]["name"]) for e in events if e.type == "message.received"]
    assert received == [(DELETED, SOMEONE), ("hello from bob", "Bob"), (DELETED, SOMEONE)]


async def test_again_finds_nothing_more(thread: Thread) -> None:
    await shared(thread)
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    redactions = (await thread.store.run(thread.run_id)).redactions
    done = await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert (done.sessions, done.redacted) == ((), {})
    assert (await thread.store.run(thread.run_id)).redactions == redactions


async def test_a_session_of_theirs_alone_goes_as_a_whole(thread: Thread) -> None:
    await thread.say(SECRET, ALICE, address="fake:v1:other")
    await thread.work()
    alone = thread.run_id
    await shared(thread)
    found = await traces(thread.store, ALICE.id)
    assert (found.alone, found.shared) == ((alone,), (thread.run_id,))
    done = await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert (done.sessions, list(done.redacted)) == ((alone,), [thread.run_id])
    assert (await thread.store.run(alone)).purged_at is not None


async def test_someone_who_was_turned_away_is_forgotten_too(thread: Thread) -> None:
    await thread.say("hi", ALICE)
    await thread.work()
    refused = await thread.say(SECRET, GUEST)
    await thread.work()
    assert await thread.outcome(refused) is Outcome.FAILED
    assert "4242" in await stored(thread)
    await forget_principal(thread.store, GUEST.id, by="operator", seconds=0)
    assert "4242" not in await stored(thread)


async def test_a_note_goes_where_it_is_quoted_too(thread: Thread) -> None:
    await ask(thread)
    await thread.work()
    await thread.click("deny", note=SECRET)
    await thread.work()
    await thread.say("and?", BOB)
    await thread.work()
    assert SECRET in await stored(thread)
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert SECRET not in await stored(thread)
    results = [item.content for item in await thread.history() if isinstance(item, ResultItem)]
    assert results == ['Alice did not approve this call. It did not run. Their note: "[deleted]"']


async def test_who_only_answered_is_forgotten_by_their_note(thread: Thread) -> None:
    thread.model.script = [calls(("pay", {"amount": 200}))]
    await thread.say("pay", ALICE)
    await thread.work()
    await thread.click("deny", FARAH, note=SECRET)
    await thread.work()
    found = await traces(thread.store, FARAH.id)
    assert (found.alone, found.shared) == ((), (thread.run_id,))
    await forget_principal(thread.store, FARAH.id, by="operator", seconds=0)
    assert SECRET not in await stored(thread)


# While workers run


async def test_a_message_that_waits_is_answered_as_deleted(thread: Thread) -> None:
    await thread.say("hi", BOB)
    await thread.work()
    receipt = await thread.say(SECRET, ALICE)
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    await thread.work()
    assert seen(thread.model.requests[-1]) == [("Bob", "hi"), (SOMEONE, DELETED)]
    assert await thread.outcome(receipt) is Outcome.COMPLETED


async def test_a_step_in_flight_brings_nothing_back(thread: Thread) -> None:
    await thread.say("hi", BOB)
    await thread.work()
    first, steered = Held(), Held()
    thread.model.script = [first.model(says("done", tokens=1), shown="thinking")]
    await thread.say("go on", BOB)
    working = thread.begin()
    await first.reached.wait()
    await thread.say(SECRET, ALICE)  # in the worker's memory from here on, consumed later
    for _ in range(50):
        await asyncio.sleep(0)
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    first.go.set()
    await working
    assert "4242" not in await stored(thread)
    assert (SOMEONE, DELETED) in seen(thread.model.requests[-1])
    assert not steered.reached.is_set()


async def test_a_turn_goes_on_without_the_words_and_repeats_no_tool(thread: Thread) -> None:
    """The step that ran is refused once, and committed from its records."""
    await thread.say(SECRET, ALICE)
    held = Held()
    thread.log.holds["put"] = held
    thread.model.script = [calls(("put", {"what": "cup"}))]
    await thread.say("bob is here", BOB)
    working = thread.begin()
    await held.reached.wait()
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    held.go.set()
    await working
    assert thread.log.names() == ["put"]
    assert "4242" not in await stored(thread)
    assert SECRET not in [text for _, text in seen(thread.model.requests[-1])]


async def test_another_worker_s_warm_history_is_folded_anew(filed: Thread) -> None:
    await shared(filed)
    warm = filed.runner
    filed.hire("w2")
    await forget_principal(filed.store, ALICE.id, by="operator", seconds=0)
    filed.runner = warm
    await filed.say("go on", BOB)
    await filed.work()
    assert "4242" not in str(seen(filed.model.requests[-1]))


async def test_words_that_come_while_it_is_at_work_are_found_by_the_next_pass(thread: Thread) -> None:
    await shared(thread)
    asked: list[Turn] = []

    async def writes_more(request: ModelRequest, on_text: OnText) -> ModelReply:
        await thread.say("my pin is 9999", ALICE)
        return says("ok")

    asked.append(writes_more)
    thread.model.script = asked
    await thread.say("hm", BOB)
    await asyncio.gather(thread.work(), forget_principal(thread.store, ALICE.id, by="operator", seconds=0))
    await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert "9999" not in await stored(thread)
