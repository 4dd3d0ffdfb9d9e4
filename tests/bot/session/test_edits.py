"""Edit before approve: permitted fields only, valid, gated again; the edited call runs, is shown, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from bot.answers import FORGOTTEN
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.forget import forget_principal
from bot.history import AssistantItem, Call, ResultStatus
from bot.masks import Secret
from bot.policies import Ruling, auto, deny
from bot.principal import Principal
from bot.session.edits import Edited, NotEdited, edited, read_edit
from bot.tools import tool
from durable_core import codec
from durable_core.model import AnswerReceipt, AnswerStatus, PromptOutcome
from tests.bot.session.actors import Log
from tests.bot.session.gated import Asked, answered, ask, body, results
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread
from tests.bot.session.test_forget import stored
from tests.bot.session.test_interruption import killed_at


def limits(call: ToolCall) -> Ruling:
    return deny("over 1000") if call.arguments["amount"] > 1000 else "ask"


def by(call: ToolCall, who: Principal) -> bool:
    return who.id == BOB.id if call.arguments["amount"] <= 100 else who.id in {FARAH.id, BOB.id}


@tool(approval=Approval(ask="Pay {amount}?", when=limits, by=by, edit=("amount", "note")))
async def pay(
    ctx: ToolContext[Log],
    to: str,
    amount: Annotated[Decimal, Field(gt=0)],
    note: str | None = None,
    pin: Annotated[str, Secret] = "0000",
) -> str:
    """Pay somebody."""
    await ctx.deps.run("pay", ctx)
    ctx.deps.ended.append(f"{to} {amount} {note} {pin} {ctx.approval.edited if ctx.approval else None}")
    return f"paid {amount}"


@tool(approval=Approval(by=by, edit=["amount"]))
async def count(ctx: ToolContext[Log], amount: int = 5) -> dict[str, int]:
    """Count."""
    await ctx.deps.run("count", ctx)
    return {"counted": amount}


ASKED: Asked = ("pay", {"to": "eve", "amount": "500", "pin": "secret-pin"})


async def edit(thread: Thread, edits: dict[str, Any], who: Principal = BOB, option: str = "approve") -> AnswerReceipt:
    await ask(thread, ASKED, tools=(pay, count))
    return await answered(thread, option, who, edits=edits)


async def test_the_edited_call_runs_and_is_shown_recorded_and_told(thread: Thread) -> None:
    await ask(thread, ASKED, tools=(pay, count))
    prompt = await thread.prompt()
    assert body(prompt)["edit"] == [
        {"name": "amount", "label": "amount", "value": '"500"', "multiline": False},
        {"name": "note", "label": "note", "value": "null", "multiline": False},
    ]
    receipt = await answered(thread, "approve", BOB, edits={"amount": "50", "note": "half"}, note="less")
    assert receipt.status is AnswerStatus.SETTLED
    assert thread.log.ended == ["pay", "eve 50 half secret-pin ('amount', 'note')"]
    words = "Bob changed amount from 500 to 50, note from its default to half before approving this call."
    assert results(thread) == [(ResultStatus.COMPLETED, f"paid 50\n\n{words}")]
    settled = await thread.store.prompt(prompt.prompt_id)
    assert settled.note is not None
    note: Any = codec.decode(settled.note)
    assert (note["text"], note["edits"]) == ("less", {"amount": "50", "note": "half"})
    outcome = thread.channel.cards[-1].card.outcome
    assert outcome is not None
    assert outcome.text.startswith("Approved by Bob")
    assert (outcome.result, outcome.changes) == ("paid 50", (("amount", "50"), ("note", "half")))  # not told twice
    asked = [
        item.calls[0].arguments["amount"] for item in await thread.history() if isinstance(item, AssistantItem) and item.calls
    ]
    assert asked == ["500"]  # what the model asked for stays what it was
    assert "secret-pin" not in str([event.data for event in await thread.events()])


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"to": "mallory"}, "to may not be changed here."),
        ({"amount": "50", "to": "mallory"}, "to may not be changed here."),
        ({"pin": "1"}, "pin may not be changed here."),
        ({"nothing": 1}, "nothing may not be changed here."),
        ({"amount": "-1"}, "Not valid: amount: Input should be greater than 0"),
        ({"amount": {"$gt": 0}}, "Not valid: amount"),
        ({"amount": "2000"}, "The policy of pay refuses the changed call: over 1000"),
    ],
)
async def test_what_may_not_be_changed_leaves_the_card(thread: Thread, edits: dict[str, Any], reason: str) -> None:
    receipt = await edit(thread, edits)
    assert receipt.status is AnswerStatus.REFUSED
    assert receipt.reason is not None
    assert receipt.reason.startswith(reason)
    assert thread.log.runs == []
    assert (await answered(thread, "approve", BOB)).status is AnswerStatus.SETTLED
    assert thread.log.ended[-1].startswith("eve 500 ")


async def test_no_model_is_asked_about_what_a_person_changed_and_approved(thread: Thread) -> None:
    judged = Approval(when=auto(criteria=["It is small."]), by=by, edit=["amount"])
    await ask(thread, ASKED, tools=(replace(pay, approval=judged),))
    requests = len(thread.model.requests)
    receipt = await thread.click("approve", BOB, edits={"amount": "50"})
    for interaction in await thread.store.take_interactions("w1", limit=4, lease_ms=60_000):
        await thread.answers.evaluate(interaction)
    assert (await thread.answers.result(receipt)).status is AnswerStatus.SETTLED
    assert len(thread.model.requests) == requests
    await thread.work()
    assert thread.log.ended[-1].startswith("eve 50 ")


@pytest.mark.parametrize(
    ("who", "edits"),
    [
        (FARAH, {"amount": "50"}),  # may approve what was asked, not what she makes of it
        (ALICE, {"amount": "50"}),
    ],
)
async def test_whoever_may_not_approve_the_edited_call_is_refused(thread: Thread, who: Principal, edits: dict[str, Any]) -> None:
    receipt = await edit(thread, edits, who)
    assert (receipt.status, receipt.reason) == (AnswerStatus.REFUSED, "not_allowed")
    await thread.cancel()
    await thread.work()
    assert thread.log.runs == []


async def test_nobody_edits_a_call_into_their_own_reach(thread: Thread) -> None:
    await ask(
        thread,
        ("count", {"amount": 500}),
        tools=(tool(approval=Approval(by=lambda call, _: call.arguments["amount"] < 9, edit=["amount"]))(count.function),),
    )
    receipt = await answered(thread, "approve", BOB, edits={"amount": 5})
    assert (receipt.status, receipt.reason) == (AnswerStatus.REFUSED, "not_allowed")
    await thread.cancel()
    await thread.work()


async def test_a_change_that_can_not_be_kept_is_refused(thread: Thread) -> None:
    receipt = await edit(thread, {"note": "x" * 20_000_000})
    assert (receipt.status, receipt.reason) == (
        AnswerStatus.REFUSED,
        "What was changed can't be kept: it is too large, or no JSON.",
    )
    receipt = await answered(thread, "approve", BOB, edits={"note": float("nan")})
    assert receipt.status is AnswerStatus.REFUSED
    await thread.cancel()
    await thread.work()


async def test_a_denial_changes_nothing_and_equal_values_are_no_edit(thread: Thread) -> None:
    receipt = await edit(thread, {"amount": "500.00"})
    assert receipt.status is AnswerStatus.SETTLED
    assert results(thread)[0] == (ResultStatus.COMPLETED, "paid 500")
    await ask(thread, ASKED)
    prompt = await thread.prompt()
    assert (await answered(thread, "deny", BOB, edits={"amount": "1"})).status is AnswerStatus.SETTLED
    settled = await thread.store.prompt(prompt.prompt_id)
    assert (settled.outcome, settled.note) == (PromptOutcome.DENIED, None)


async def test_a_prompt_without_edit_takes_none(thread: Thread) -> None:
    plain = tool(approval=Approval(by=by))(count.function)
    await ask(thread, ("count", {"amount": 5}), tools=(plain,))
    receipt = await answered(thread, "approve", BOB, edits={"amount": 6})
    assert (receipt.status, receipt.reason) == (AnswerStatus.REFUSED, "amount may not be changed here.")
    await thread.cancel()
    await thread.work()


async def test_a_result_that_is_no_text_keeps_its_form(thread: Thread) -> None:
    await ask(thread, ("count", {}), tools=(count,))
    await answered(thread, "approve", BOB, edits={"amount": 6})
    words = "Bob changed amount from its default to 6 before approving this call."
    assert results(thread) == [(ResultStatus.COMPLETED, {"result": {"counted": 6}, "changed_before_it_ran": words})]


async def test_an_edited_call_that_is_cut_off_is_run_again_as_edited(thread: Thread) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    await thread.click("approve", BOB, edits={"amount": 6})
    (interaction,) = await thread.store.take_interactions(thread.owner, limit=1, lease_ms=1000)
    await thread.answers.evaluate(interaction)
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    prompt = await thread.prompt()
    assert prompt.kind == "rerun"
    assert body(prompt)["action"]["input"] == {"amount": 6}
    assert body(prompt)["edit"] == []
    await answered(thread, "rerun", BOB)
    words = "Whoever let it run first changed amount from 7 to 6 before approving this call."
    assert results(thread)[0] == (ResultStatus.COMPLETED, {"result": {"counted": 6}, "changed_before_it_ran": words})


async def test_an_edit_to_a_tool_that_changed_meanwhile_is_refused(thread: Thread) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    await thread.click("approve", BOB, edits={"amount": 6})

    @tool(name="count", approval=Approval(by=by, edit=["amount"]))
    async def newer(ctx: ToolContext[Log], amount: int = 5, *, twice: bool = True) -> None: ...

    thread.tools = (newer,)
    thread.hire("w2")
    (interaction,) = await thread.store.take_interactions(thread.owner, limit=1, lease_ms=1000)
    await thread.answers.evaluate(interaction)
    decided = await thread.store.interaction_result(interaction.interaction_id)
    assert decided is not None
    assert decided.reason == "The tool has changed since this was asked. Ask again."
    await thread.cancel()
    await thread.work()
    assert thread.log.runs == []


@given(
    st.dictionaries(
        st.sampled_from(["to", "amount", "note", "pin", "other"]), st.none() | st.integers() | st.text(max_size=5), max_size=4
    )
)
def test_only_what_may_be_changed_ever_differs(edits: dict[str, Any]) -> None:
    before = Call("0.0.0", "pay", arguments=dict(ASKED[1]))
    made = edited(pay, before, edits, requester=ALICE)
    if isinstance(made, Edited):
        assert set(edits) <= {"amount", "note"}
        assert set(made.edits) <= set(edits)
        assert made.call.arguments == {**ASKED[1], **made.edits}
        assert pay.validate(made.call.arguments)["amount"] > 0
        assert made.binding == pay.binding(pay.shown(made.call.arguments))
    assert before.arguments == ASKED[1]


async def test_who_is_forgotten_takes_their_words_along_and_not_what_they_changed(thread: Thread) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    await thread.click("approve", BOB, edits={"amount": 6}, note="4242")
    (interaction,) = await thread.store.take_interactions(thread.owner, limit=1, lease_ms=1000)
    await thread.answers.evaluate(interaction)
    await forget_principal(thread.store, BOB.id, by="operator", seconds=0)
    await thread.work()
    assert results(thread)[0][1]["result"] == {"counted": 6}
    assert "4242" not in await stored(thread)


async def test_a_change_that_is_forgotten_before_it_is_looked_at_approves_nothing(thread: Thread) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    receipt = await thread.click("approve", BOB, edits={"amount": 6})
    await forget_principal(thread.store, BOB.id, by="operator", seconds=0)
    await thread.work()
    refused = await thread.answers.result(receipt)
    assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, FORGOTTEN)
    assert thread.log.runs == []
    await thread.cancel()
    await thread.work()


async def test_nor_does_one_that_is_forgotten_while_it_is_looked_at(thread: Thread) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    await thread.click("approve", BOB, edits={"amount": 6})
    decide = thread.store.decide

    async def later(verdict: Any) -> Any:
        await forget_principal(thread.store, BOB.id, by="operator", seconds=0)
        return await decide(verdict)

    object.__setattr__(thread.store, "decide", later)
    await thread.work()
    assert thread.log.runs == []
    assert results(thread)[0][0] is ResultStatus.REJECTED


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("to", "5", "5"),
        ("to", '"quoted"', '"quoted"'),
        ("to", "it's", "it's"),
        ("amount", "20.50", "20.50"),
        ("note", "null", None),
        ("amount", "[1", "[1"),
    ],
)
def test_a_form_field_is_read_as_the_argument_wants_it(name: str, text: str, value: Any) -> None:
    assert read_edit(pay, name, text) == value


@pytest.mark.parametrize(("text", "value"), [("6", 6), ("[1]", [1])])
def test_a_field_that_takes_no_text_is_json(text: str, value: Any) -> None:
    assert read_edit(count, "amount", text) == value


@pytest.mark.parametrize("text", ["NaN", "[" * 5_000, "six", ""])
def test_what_is_no_json_is_refused_by_name(text: str) -> None:
    assert read_edit(count, "amount", text) == NotEdited("Not valid: write amount in the form in which it was shown.")


@pytest.mark.parametrize(
    ("shown", "text", "value"),
    [("5", "6", "6"), (500, "50", 50), (500, "20.50", "20.50"), (None, "null", None), (None, "half", "half"), (True, "5", "5")],
)
def test_where_a_text_would_do_too_what_was_shown_decides(shown: Any, text: str, value: Any) -> None:
    assert read_edit(pay, "amount", text, shown=shown) == value
