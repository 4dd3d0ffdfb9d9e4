"""Votes of people who may not answer any more by the time that others join them, on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bot.access import Allow, Deny, members_only
from bot.answerers import group
from bot.answers import Way
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.principal import Principal
from bot.routes import escalate
from bot.tools import Tool, tool
from channels.events import Place
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.model import AnswerReceipt, AnswerStatus
from durable_core.stores.open import open_store
from tests.bot.session.actors import PLACE, Log
from tests.bot.session.gated import answered, ask, prompts
from tests.bot.session.kit import BOB, FARAH, START, Thread, open_thread, person

CAROL, DAVE = person("carol"), person("dave")
HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def thread(request: pytest.FixtureRequest) -> AsyncIterator[Thread]:
    if request.param == "sqlite":
        made = await open_thread()
    else:
        clock, keys = ManualClock(START), KeyRing.parse(new_key_entry())
        store = open_store(request.getfixturevalue("migrated_url"), keys=keys, clock=clock)
        await store.open()
        made = Thread(store, clock, keys)
    yield made
    await made.check()
    made.unwatch()
    await made.store.close()


def drop(approval: Approval) -> Tool:
    @tool(effect="write", approval=approval, name="drop")
    async def run(ctx: ToolContext[Log]) -> str:
        """Drop it."""
        await ctx.deps.run("drop", ctx)
        return "dropped"

    return run


async def voters(thread: Thread) -> list[str]:
    (prompt,) = await prompts(thread)
    return [vote.principal for vote in prompt.votes]


async def counted(thread: Thread, who: Principal) -> AnswerReceipt:
    receipt = await answered(thread, "approve", who)
    assert (receipt.status, receipt.reason) == (AnswerStatus.COUNTED, None)
    return receipt


async def test_who_has_left_the_group_does_not_count(thread: Thread) -> None:
    members = {BOB.id, FARAH.id, CAROL.id}
    thread.groups = {"finance": lambda who: who.id in members}
    await ask(thread, ("drop", {}), tools=[drop(Approval(by=group("finance"), quorum=2))])
    await counted(thread, BOB)
    members.remove(BOB.id)
    await counted(thread, FARAH)
    assert await voters(thread) == [FARAH.id]
    card = thread.channel.shown[-1].delivery.message.card
    assert card is not None
    assert "1 of 2 approved: Farah" in str(card)
    assert "Bob" not in str(card)
    assert thread.log.names() == []
    members.add(BOB.id)
    await answered(thread, "approve", BOB)  # back again, their yes is a new one
    assert thread.log.names() == ["drop"]
    acts = [(entry.act, entry.principal) for entry in await thread.store.audit()]
    assert acts == [("counted", BOB.id), ("lapsed", BOB.id), ("counted", FARAH.id), ("settled", BOB.id)]


async def test_those_who_were_asked_first_do_not_count_with_those_who_are_asked_next(thread: Thread) -> None:
    def staff(call: ToolCall, who: Principal) -> bool:
        return who.id in {BOB.id, FARAH.id}

    managers = escalate(by=[FARAH.id, CAROL.id, DAVE.id], expires=HOUR)
    await ask(thread, ("drop", {}), tools=[drop(Approval(by=staff, quorum=2, expires=HOUR, on_expiry=managers))])
    await counted(thread, BOB)
    thread.clock.advance(HOUR)
    await thread.work()
    await counted(thread, CAROL)
    assert await voters(thread) == [CAROL.id]
    await answered(thread, "approve", FARAH)
    assert thread.log.names() == ["drop"]


async def test_where_nobody_can_say_it_does_not_count(thread: Thread) -> None:
    broken: set[str] = set()

    def finance(who: Principal) -> bool:
        if who.id in broken:
            raise ConnectionError("the directory is down")
        return True

    thread.groups = {"finance": finance}
    await ask(thread, ("drop", {}), tools=[drop(Approval(by=group("finance"), quorum=2))])
    await counted(thread, BOB)
    broken.add(BOB.id)
    await counted(thread, FARAH)
    assert await voters(thread) == [FARAH.id]


async def test_who_may_not_talk_to_the_bot_any_more_does_not_count(thread: Thread) -> None:
    await ask(thread, ("drop", {}), tools=[drop(Approval(by=lambda _, who: bool(who.id), quorum=2))])
    await counted(thread, BOB)
    thread.access = lambda who, place, action: Deny("no") if who.id == BOB.id else members_only(who, place, action)
    thread.hire("w2")
    await counted(thread, FARAH)
    assert await voters(thread) == [FARAH.id]
    assert (await answered(thread, "approve", CAROL)).status is AnswerStatus.SETTLED


async def test_whoever_approved_again_counts_from_where_they_did_so_last(thread: Thread) -> None:
    async def from_there(place: Place, submission_id: str) -> None:
        way = Way(via="button", source="fake", key=submission_id, submission_id=submission_id)
        receipt = await thread.answers.admit(asked.prompt_id, "approve", principal=BOB, place=place, way=way)
        await thread.work()
        assert (await thread.answers.result(receipt)).status is AnswerStatus.COUNTED

    await ask(thread, ("drop", {}), tools=[drop(Approval(by=lambda _, who: bool(who.id), quorum=3))])
    (asked,) = await prompts(thread)
    await from_there(PLACE, "sub_z")
    thread.access = lambda who, place, _: Deny("not here") if (who.id, place) == (BOB.id, PLACE) else Allow()
    thread.hire("w2")
    await counted(thread, FARAH)
    assert await voters(thread) == [FARAH.id]
    thread.clock.advance(timedelta(seconds=1))
    await from_there(Place("direct"), "sub_a")
    assert (await answered(thread, "approve", CAROL)).status is AnswerStatus.SETTLED


async def test_the_vote_of_somebody_who_still_may_stands(thread: Thread) -> None:
    asked: list[str] = []

    def by(call: ToolCall, who: Principal) -> bool:
        asked.append(who.name)
        return True

    await ask(thread, ("drop", {}), tools=[drop(Approval(by=by, quorum=3))])
    await counted(thread, BOB)
    await counted(thread, FARAH)
    assert (await answered(thread, "approve", CAROL)).status is AnswerStatus.SETTLED
    assert thread.log.names() == ["drop"]
    assert asked == ["Bob", "Farah", "Bob", "Carol", "Bob", "Farah"]
