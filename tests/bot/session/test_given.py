"""Answers in every form: votes, words, changes, overrides; what each person is told, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from bot.answers import Way
from bot.approvals import Approval
from bot.buttons import all_value, button_value
from bot.context import ToolContext
from bot.errors import Problem
from bot.ingress import Ingress
from bot.prompts import API_PLACE
from bot.session_api import Response, ResponseStatus
from bot.sessions import Sessions
from bot.telling import explain
from bot.tools import tool
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.errors import NotFound
from durable_core.model import AnswerStatus, PromptOutcome
from tests.bot.session.actors import CHANNEL, Log
from tests.bot.session.gated import answered, ask, body, prompts
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread, person

CAROL = person("carol")
THREE = [ALICE.id, BOB.id, CAROL.id, FARAH.id]


@tool(approval=Approval(by=THREE, quorum=3))
async def drop(ctx: ToolContext[Log]) -> str:
    """Drop it."""
    await ctx.deps.run("drop", ctx)
    return "dropped"


@tool(approval=Approval(by=[BOB.id]))
async def by_bob(ctx: ToolContext[Log], n: int) -> str:
    """Do what Bob approves."""
    await ctx.deps.run("by_bob", ctx)
    return "done"


@tool(approval=Approval(by=[FARAH.id, BOB.id]))
async def by_two(ctx: ToolContext[Log], n: int) -> str:
    """Do what Farah or Bob approves."""
    await ctx.deps.run("by_two", ctx)
    return "done"


@tool(approval=Approval(by=lambda _, who: who.id == BOB.id, edit=("amount", "labels", "note")))
async def pay(ctx: ToolContext[Log], amount: int, labels: dict[str, int], note: str | None = None) -> str:
    """Pay."""
    await ctx.deps.run("pay", ctx)
    return "paid"


def ingress(thread: Thread) -> Ingress:
    return Ingress(
        store=thread.store,
        channels={CHANNEL: thread.channel},
        agent_of={CHANNEL: "support"},
        answers=thread.answers,
        deployment="d",
        lifetime_ms=None,
    )


def api(thread: Thread) -> Sessions:
    return Sessions(
        store=thread.store,
        streams=thread.streams,
        prompts=thread.prompts,
        agents=["support"],
        deployment="d",
        lifetime_ms=None,
    )


async def press(thread: Thread, value: str, who: str, key: str = "c1") -> list[str]:
    request = codec.encode({"who": who, "click": value, "key": key})
    taken = await ingress(thread).receive(CHANNEL, WebhookRequest("POST", "/", headers={}, body=request))
    return [click.status for click in taken.clicks]


def whispers(thread: Thread, who: str) -> list[str]:
    return [shown.message.text for shown in thread.channel.shown if shown.message.private_to == who]


# ── votes ──


async def test_each_vote_is_told_and_readers_learn_how_many_there_are(thread: Thread) -> None:
    await ask(thread, ("drop", {}), tools=[drop])
    prompt = await thread.prompt()
    assert await press(thread, button_value(prompt.prompt_id, "approve"), "bob", "b") == ["counted"]
    assert await press(thread, button_value(prompt.prompt_id, "approve"), "bob", "b2") == ["refused"]
    assert await press(thread, button_value(prompt.prompt_id, "approve"), "farah", "f") == ["counted"]
    await thread.work()
    assert whispers(thread, "bob")[1] == "You approved this before, and each person counts once. 1 more person has to approve."
    assert whispers(thread, "farah") == ["Counted: 2 of 3. 1 more person has to approve."]
    assert await press(thread, button_value(prompt.prompt_id, "approve"), "carol", "c") == ["settled"]
    await thread.work()
    told = [event.data for event in await thread.events() if event.type == "approval.candidate"]
    assert [(one["responder"]["id"], one["count"], one["quorum"]) for one in told] == [(BOB.id, 1, 3), (FARAH.id, 2, 3)]
    assert {one["request_id"] for one in told} == {prompt.prompt_id}
    assert thread.log.names() == ["drop"]


# ── several on one card ──


async def test_all_is_answered_as_far_as_somebody_may_and_told_in_one(thread: Thread) -> None:
    await ask(
        thread, ("by_bob", {"n": 1}), ("by_two", {"n": 2}), ("by_bob", {"n": 3}), ("by_two", {"n": 4}), tools=[by_bob, by_two]
    )
    leader, *_ = asked = await prompts(thread)
    assert {one.group for one in asked} == {leader.prompt_id}
    statuses = await press(thread, all_value(leader.prompt_id, "approve"), "farah")
    assert sorted(statuses) == ["refused", "refused", "settled", "settled"]
    assert await press(thread, all_value(leader.prompt_id, "approve"), "farah") == ["refused", "refused"]  # again: the same
    await thread.work()
    assert whispers(thread, "farah") == ["2 of 4 settled. 2: Only fake:bob may answer this."]
    left = await prompts(thread)
    assert [body(one)["action"]["input"]["n"] for one in left] == [1, 3]
    assert await press(thread, all_value(leader.prompt_id, "deny"), "bob", "c2") == ["settled", "settled"]
    await thread.work()
    assert whispers(thread, "bob") == []
    assert sorted(thread.log.names()) == ["by_two", "by_two"]


async def test_a_copy_of_a_shared_card_counts_for_each_of_its_questions(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 1}), ("refund", {"amount": 2}))
    _, second = await prompts(thread)
    assert second.group != second.prompt_id
    assert await press(thread, button_value(second.prompt_id, "deny"), "alice") == ["settled"]
    await thread.cancel()
    await thread.work()


# ── forms ──


@pytest.mark.parametrize(
    ("fields", "edits"),
    [
        ({"edit.amount": "50"}, {"amount": 50}),
        ({"edit.amount": "500", "edit.note": "null", "edit.labels": '{"a":1}'}, {}),
        ({"edit.note": "half"}, {"note": "half"}),
        ({"edit.labels": '{"b": 2}'}, {"labels": {"b": 2}}),
    ],
)
async def test_a_form_changes_what_was_changed_in_it(thread: Thread, fields: dict[str, str], edits: dict[str, Any]) -> None:
    await ask(thread, ("pay", {"amount": 500, "labels": {"a": 1}}), tools=[pay])
    prompt = await thread.prompt()
    receipt = await answered(thread, "approve", BOB, fields=fields)
    assert receipt.status is AnswerStatus.SETTLED
    note: Any = codec.decode((await thread.store.prompt(prompt.prompt_id)).note or codec.encode({}))
    assert note.get("edits", {}) == edits


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"edit.amount": "fifty"}, "Not valid: write amount in the form in which it was shown."),
        ({"edit.amount": ""}, "Not valid: write amount in the form in which it was shown."),
        ({"edit.amount": '"50"'}, "Not valid: amount"),
        ({"edit.labels": "{"}, "Not valid: write labels in the form in which it was shown."),
        ({"edit.other": "1"}, "other may not be changed here."),
    ],
)
async def test_a_form_that_can_not_be_meant_leaves_the_card(thread: Thread, fields: dict[str, str], words: str) -> None:
    await ask(thread, ("pay", {"amount": 500, "labels": {"a": 1}}), tools=[pay])
    receipt = await answered(thread, "approve", BOB, fields=fields)
    assert receipt.status is AnswerStatus.REFUSED
    assert (explain(receipt) or "").startswith(words)
    assert len(thread.model.requests) == 1
    await thread.cancel()
    await thread.work()


async def test_a_form_that_comes_again_after_it_settled_is_the_same_answer(thread: Thread) -> None:
    await ask(thread, ("pay", {"amount": 500, "labels": {"a": 1}}), tools=[pay])
    prompt = await thread.prompt()
    first = await thread.click("approve", BOB, key="k", fields={"edit.amount": "50"})
    await thread.work()
    again = await thread.click("approve", BOB, prompt=prompt, key="k", fields={"edit.amount": "50"})
    assert (again.submission_id, again.deduplicated, again.status) == (first.submission_id, True, AnswerStatus.SETTLED)
    assert thread.log.names() == ["pay"]


async def test_a_note_with_a_denial_reaches_the_model(thread: Thread) -> None:
    await ask(thread, ("refund", {"amount": 1}))
    await answered(thread, "deny", fields={"note": "too dear"})
    assert 'Their note: "too dear"' in str(thread.model.requests[-1].history)


# ── overrides ──


async def test_an_override_settles_whoever_was_asked_and_stands_on_the_card(thread: Thread) -> None:
    await ask(thread, ("drop", {}), tools=[drop])
    prompt = await thread.prompt()
    told = await thread.prompts.override(
        CAROL, prompt.prompt_id, option_id="approve", reason="Everybody is away.", note=None, key=None
    )
    assert told.status is ResponseStatus.SETTLED
    await thread.work()
    assert thread.log.names() == ["drop"]
    outcome = thread.channel.cards[-1].card.outcome
    assert outcome is not None
    assert (outcome.kind, outcome.text, outcome.note) == ("overridden", "Approved by Carol by override", "Everybody is away.")
    (entry,) = await thread.store.audit(prompt_id=prompt.prompt_id)
    assert (entry.act, entry.reason, entry.principal, entry.where) == ("overridden", "Everybody is away.", CAROL.id, "api")
    resolved = [event.data["resolutions"][0] for event in await thread.events() if event.type == "input.resolved"]
    assert [one["override"] for one in resolved] == ["Everybody is away."]


async def test_an_override_changes_nothing_of_what_was_shown(thread: Thread) -> None:
    await ask(thread, ("pay", {"amount": 500, "labels": {"a": 1}}), tools=[pay])
    prompt = await thread.prompt()
    way = Way(via="api", source="api", key="k")
    receipt = await thread.answers.admit(
        prompt.prompt_id, "approve", principal=CAROL, place=API_PLACE, way=way, edits={"amount": 5}, override="I say so."
    )
    assert explain(receipt) == "An override approves what was shown: nothing can be changed with it."
    await thread.cancel()
    await thread.work()


# ── over the API ──


async def test_who_may_answer_does_so_in_anothers_session_and_nobody_else_learns_of_it(thread: Thread) -> None:
    await ask(thread, ("by_bob", {"n": 1}), tools=[by_bob])
    prompt = await thread.prompt()
    response = [Response(prompt.prompt_id, text="Approve")]
    with pytest.raises(NotFound) as unknown:
        await api(thread).respond(CAROL, thread.run_id, responses=response, key=None)
    assert unknown.value.what == "session"
    (seen,) = await api(thread).respond(ALICE, thread.run_id, responses=response, key=None)
    assert (seen.status, seen.reason) == (ResponseStatus.REFUSED, "Only fake:bob may answer this.")
    (settled,) = await api(thread).respond(BOB, thread.run_id, responses=response, key="k")
    assert settled.status is ResponseStatus.SETTLED
    (again,) = await api(thread).respond(BOB, thread.run_id, responses=response, key="k")
    assert (again.submission_id, again.status) == (settled.submission_id, ResponseStatus.SETTLED)
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is PromptOutcome.APPROVED


async def test_changes_and_a_note_over_the_api(thread: Thread) -> None:
    await ask(thread, ("pay", {"amount": 500, "labels": {"a": 1}}), tools=[pay])
    prompt = await thread.prompt()
    response = Response(prompt.prompt_id, option_id="approve", note="less", edits={"amount": 50})
    work = thread.begin()
    (told,) = await api(thread).respond(BOB, thread.run_id, responses=[response], key=None)
    await work
    await thread.work()
    (told,) = await api(thread).respond(BOB, thread.run_id, responses=[response], key="k2")
    assert told.status is ResponseStatus.ALREADY_SETTLED
    note: Any = codec.decode((await thread.store.prompt(prompt.prompt_id)).note or b"")
    assert (note["text"], note["edits"]) == ("less", {"amount": 50})


async def test_open_requests_are_listed_for_whom_they_concern(thread: Thread) -> None:
    await ask(thread, ("by_bob", {"n": 1}), ("by_two", {"n": 2}), tools=[by_bob, by_two])
    first, second = (one.prompt_id for one in await prompts(thread))

    async def listed(who: Any, **query: Any) -> list[str]:
        asked: dict[str, Any] = {"everyone": False, "session_id": None, "mine": False, "after": None, "limit": 10, **query}
        return [row["request_id"] for row in (await thread.prompts.listed(who, **asked))["prompts"]]

    assert set(await listed(ALICE)) == {first, second}  # who asked
    assert await listed(ALICE, mine=True) == []
    assert await listed(FARAH) == await listed(FARAH, mine=True) == [second]
    assert set(await listed(BOB, session_id=thread.run_id)) == {first, second}
    assert await listed(CAROL) == []
    assert set(await listed(CAROL, everyone=True)) == {first, second}
    everyone = await listed(CAROL, everyone=True)
    assert await listed(CAROL, everyone=True, limit=1) == everyone[:1]
    assert await listed(CAROL, everyone=True, after=everyone[0]) == everyone[1:]
    with pytest.raises(Problem):
        await listed(CAROL, everyone=True, after="prm_none")
    await thread.cancel()
    await thread.work()
    assert await listed(CAROL, everyone=True) == []


async def test_the_audit_is_read_by_session_by_request_and_in_pages(thread: Thread) -> None:
    await ask(thread, ("by_bob", {"n": 1}), tools=[by_bob])
    prompt = await thread.prompt()
    await answered(thread, "approve", CAROL)
    await answered(thread, "approve", BOB)
    whole = await thread.prompts.audit(session_id=thread.run_id, request_id=None, after=0, limit=10)
    assert [(entry["act"], entry["principal"]) for entry in whole["entries"]] == [("refused", CAROL.id), ("settled", BOB.id)]
    assert whole["next"] is None
    page = await thread.prompts.audit(session_id=None, request_id=prompt.prompt_id, after=0, limit=1)
    assert (len(page["entries"]), page["next"]) == (1, 1)
    assert (await thread.prompts.audit(session_id="ses_none", request_id=None, after=0, limit=1))["entries"] == []
