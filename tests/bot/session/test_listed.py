"""Lists and quorums: named people settle at once, distinct people count, and an edit is judged by a worker all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.answerers import group
from bot.answers import Way
from bot.approvals import Approval
from bot.context import ToolContext
from bot.history import ResultStatus
from bot.routes import escalate
from bot.tools import Tool, tool
from channels.events import Place, Standing
from durable_core.model import AnswerPolicy, AnswerStatus
from tests.bot.session.actors import ADDRESS, CHANNEL, Log
from tests.bot.session.gated import answered, ask, results
from tests.bot.session.kit import ALICE, BOB, FARAH, GUEST, Thread, person
from tests.bot.session.test_lookups import AskedChannel


def counting(**gate: Any) -> Tool:
    async def count(ctx: ToolContext[Log], amount: int = 5) -> str:
        """Count."""
        await ctx.deps.run("count", ctx)
        return f"counted {amount}"

    return tool(approval=Approval(**gate))(count)


LISTED = [BOB.id, FARAH.id, ALICE.id]


async def test_a_list_settles_without_a_worker_and_the_requester_is_not_on_it(thread: Thread) -> None:
    await ask(thread, ("count", {}), tools=(counting(by=LISTED),))
    prompt = await thread.prompt()
    assert (prompt.policy, prompt.answerers) == (AnswerPolicy.LISTED, (BOB.id, FARAH.id))
    assert prompt.asked == "fake:bob or fake:farah"
    for who in (ALICE, GUEST):
        receipt = await thread.click("approve", who)
        assert receipt.status is AnswerStatus.REFUSED
    assert (await thread.click("approve", FARAH)).status is AnswerStatus.SETTLED
    await thread.work()
    assert [approver for *_, approver in thread.log.runs] == [FARAH.id]


async def test_a_listed_requester_counts_with_self_ok(thread: Thread) -> None:
    await ask(thread, ("count", {}), tools=(counting(by=LISTED, self_ok=True),))
    assert (await thread.click("approve", ALICE)).status is AnswerStatus.SETTLED
    await thread.work()


async def test_the_list_of_the_card_holds_not_that_of_a_later_version(thread: Thread) -> None:
    await ask(thread, ("count", {}), tools=(counting(by=LISTED),))
    thread.tools = (counting(by=[ALICE.id, BOB.id], self_ok=True),)
    thread.hire("w2")
    assert (await thread.click("approve", ALICE)).status is AnswerStatus.REFUSED
    assert (await thread.click("approve", FARAH)).status is AnswerStatus.SETTLED
    await thread.work()


@pytest.mark.parametrize("by", [LISTED, lambda _, who: who.id != ALICE.id])
async def test_a_quorum_takes_different_people_and_one_no_ends_it(thread: Thread, by: Any) -> None:
    await ask(thread, ("count", {}), tools=(counting(by=by, quorum=2),))
    first = await answered(thread, "approve", BOB)
    assert first.status is AnswerStatus.COUNTED
    again = await answered(thread, "approve", BOB)
    assert (again.status, again.reason) == (AnswerStatus.REFUSED, "already_voted")
    assert thread.log.runs == []
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.SETTLED
    assert thread.log.names() == ["count"]
    await ask(thread, ("count", {}))
    await answered(thread, "approve", BOB)
    assert (await answered(thread, "deny", BOB)).status is AnswerStatus.SETTLED, "a yes that was a mistake can be taken back"
    assert thread.log.names() == ["count"]
    assert results(thread)[-1][0] is ResultStatus.REJECTED


@pytest.mark.parametrize(("gate", "who", "other"), [({}, ALICE, BOB), ({"by": [BOB.id]}, BOB, ALICE)])
async def test_an_edit_takes_a_worker_even_where_who_may_answer_is_data(
    thread: Thread, gate: dict[str, Any], who: Any, other: Any
) -> None:
    await ask(thread, ("count", {}), tools=(counting(edit=["amount"], **gate),))
    assert (await answered(thread, "approve", other, edits={"amount": 6})).status is AnswerStatus.REFUSED
    receipt = await thread.click("approve", who, edits={"amount": 6})
    assert receipt.status is AnswerStatus.PENDING
    await thread.work()
    assert (await thread.answers.result(receipt)).status is AnswerStatus.SETTLED
    words = f"{who.name} changed amount from its default to 6 before approving this call."
    assert results(thread) == [(ResultStatus.COMPLETED, f"counted 6\n\n{words}")]
    resolved = [event.data["resolutions"][0] for event in await thread.events() if event.type == "input.resolved"]
    assert [(one["outcome"], one["responder"]["id"]) for one in resolved] == [("approved", who.id)]


@pytest.mark.parametrize(
    ("standing", "expected"), [(Standing.MEMBER, AnswerStatus.SETTLED), (Standing.GUEST, AnswerStatus.REFUSED)]
)
async def test_whom_a_list_names_is_looked_up_where_the_platform_has_to_be_asked(
    thread: Thread, standing: Standing, expected: AnswerStatus
) -> None:
    channel = AskedChannel()
    channel.standing = standing
    thread.channel = channel
    ben = person("ben", Standing.UNKNOWN)
    await ask(thread, ("count", {}), tools=(counting(by=[ben.id]),))
    receipt = await thread.answers.admit(
        (await thread.prompt()).prompt_id,
        "approve",
        principal=ben,
        place=Place("channel"),
        way=Way(via="button", source=CHANNEL, key="k", at=(CHANNEL, ADDRESS), tell_at=(CHANNEL, ADDRESS)),
    )
    assert receipt.status is AnswerStatus.PENDING
    await thread.work()
    assert (await thread.answers.result(receipt)).status is expected
    assert "ben" in channel.asked
    await thread.cancel()
    await thread.work()


@pytest.mark.parametrize("by", [[FARAH.id], group("finance"), lambda _, who: who.id == FARAH.id])
async def test_a_request_that_was_handed_on_is_answered_by_those_who_have_it_now(thread: Thread, by: Any) -> None:
    hour = timedelta(hours=1)
    gate = {"expires": hour, "on_expiry": escalate(by=by, by_text="The boss", expires=hour)}
    await ask(thread, ("count", {}), tools=(counting(**gate),))
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.REFUSED
    thread.clock.advance(hour)
    await thread.work()
    prompt = await thread.prompt()
    assert (prompt.level, prompt.asked) == (1, "The boss")
    assert (await answered(thread, "approve", ALICE)).status is AnswerStatus.REFUSED
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.SETTLED
    assert [approver for *_, approver in thread.log.runs] == [FARAH.id]


async def test_nobody_answers_and_nobody_is_left(thread: Thread) -> None:
    hour = timedelta(hours=1)
    await ask(thread, ("count", {}), tools=(counting(expires=hour, on_expiry=[escalate(by=[BOB.id]), escalate(by=[FARAH.id])]),))
    for level in range(3):
        assert (await thread.prompt()).level == level
        thread.clock.advance(hour)
        await thread.work()
    assert results(thread)[0][0] is ResultStatus.EXPIRED
    assert thread.log.runs == []
