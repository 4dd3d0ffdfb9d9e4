"""Sessions that this version can't go on with: every way to one of them, and what becomes of it.

What lives here: stranded and dormant sessions by address, by id, over their stream and their time-out. What does not: formats.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bot.approvals import Approval
from bot.buttons import button_value
from bot.context import ToolContext
from bot.errors import Problem
from bot.history import NoteItem, Trust
from bot.ingress import Ingress, Taken
from bot.leftovers import Dormant, Leftovers
from bot.server.errors import known
from bot.session_api import ControlStatus, Response
from bot.sessions import Sessions
from bot.tools import tool
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.errors import NotFound, Stranded
from durable_core.model import Outcome, RunStatus
from tests.bot.session.actors import CHANNEL, TOOLS, Log, calls, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread, open_thread
from tests.bot.session.versions import NEXT, enrol, former_format, new_code, next_format

DAY = 86_400_000
QUIET = 11 * 60


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    opened = await open_thread()
    yield opened
    await opened.store.close()


async def rolled_back(thread: Thread, *, transcripts: bool = False) -> str:
    """Have a session that newer code wrote, and go on with older; its id."""
    with next_format():
        new_code(thread, "v2", lifetime_ms=thread.lifetime_ms)
        thread.model.script = [says("Hello, Alice."), calls(("refund", {"amount": 20}), text="I'll ask.")]
        await thread.say("hello")
        await thread.work()
        await thread.say("refund 20")
        await thread.work()
    new_code(thread, "v1", transcripts=transcripts)
    return thread.run_id


def ingress(thread: Thread) -> Ingress:
    return Ingress(
        store=thread.store,
        channels={CHANNEL: thread.channel},
        agent_of={CHANNEL: "support"},
        answers=thread.answers,
        deployment="v1",
        lifetime_ms=None,
        leftovers=thread.leftovers,
    )


def sessions(thread: Thread) -> Sessions:
    return Sessions(
        store=thread.store,
        streams=thread.streams,
        prompts=thread.prompts,
        agents=["support"],
        deployment="v1",
        lifetime_ms=None,
        leftovers=thread.leftovers,
    )


async def hear(thread: Thread, **event: str) -> Taken:
    body = codec.encode({"who": "alice", "key": str(len(event)) + str(event), **event})
    return await ingress(thread).receive(CHANNEL, WebhookRequest("POST", "/", headers={}, body=body))


# By address


async def test_a_message_ends_it_and_opens_one_fresh_session(thread: Thread) -> None:
    old = await rolled_back(thread)
    waiting = await thread.say("is anybody there?")
    thread.later_s(QUIET)
    calls_before = len(thread.model.requests)
    taken = await hear(thread, text="hello?")
    (receipt,) = taken.receipts
    assert receipt.created
    assert receipt.run_id != old
    ended = await thread.store.run(old)
    assert (ended.status, ended.end_reason) == (RunStatus.ENDED, "stranded")
    assert await thread.outcome(waiting) is Outcome.ABORTED
    assert await thread.store.open_prompts(old) == []
    assert len(thread.model.requests) == calls_before, "no author's code ran"
    again = await hear(thread, text="hello again?")
    assert again.receipts[0].run_id == receipt.run_id, "one fresh session"
    thread.run_id = receipt.run_id
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    started = (await thread.events())[0]
    assert (started.type, started.data) == ("session.started", {"predecessor": old})
    header: Any = codec.decode((await thread.store.run(receipt.run_id)).header)
    assert header["predecessor"] == {"session_id": old, "spec_version": NEXT, "deployment": "v2"}


async def test_until_it_is_stranded_a_message_only_waits(thread: Thread) -> None:
    old = await rolled_back(thread)
    thread.later_s(9 * 60)
    taken = await hear(thread, text="hello?")
    assert [receipt.run_id for receipt in taken.receipts] == [old]
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        assert await thread.outcome(taken.receipts[0]) is Outcome.COMPLETED


async def test_older_code_never_ends_what_newer_code_runs(thread: Thread) -> None:
    old = await rolled_back(thread)
    with next_format():
        new_code(thread, "v2")
        await enrol(thread)
    new_code(thread, "v1")
    for _ in range(20):
        thread.later_s(60)
        await thread.store.renew("worker of v2", [], lease_ms=60_000)
    taken = await hear(thread, text="hello?")
    assert [receipt.run_id for receipt in taken.receipts] == [old]
    assert await thread.leftovers.expire() == 0
    assert (await thread.store.run(old)).status is RunStatus.OPEN


async def test_a_click_alone_is_refused(thread: Thread) -> None:
    await rolled_back(thread)
    prompt = await thread.prompt()
    thread.later_s(QUIET)
    taken = await hear(thread, click=button_value(prompt.prompt_id, "approve"))
    (click,) = taken.clicks
    assert click.receipt is not None
    assert (click.status, click.receipt.reason) == ("refused", "session_stranded")
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is None
    assert (await thread.store.run(thread.run_id)).status is RunStatus.OPEN


async def test_a_click_while_newer_code_runs_is_left_to_that(thread: Thread) -> None:
    await rolled_back(thread)
    prompt = await thread.prompt()
    taken = await hear(thread, click=button_value(prompt.prompt_id, "approve"))
    assert taken.clicks[0].status == "refused"
    assert "newer version" in (taken.clicks[0].reason or "")
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is None


async def test_a_request_of_two_people_is_not_settled_by_one_in_code_of_the_format_before(thread: Thread) -> None:
    @tool(effect="write", name="wire", approval=Approval(by=[BOB.id, FARAH.id], quorum=2))
    async def wire(ctx: ToolContext[Log]) -> str:
        """Wire money."""
        await ctx.deps.run("wire", ctx)
        return "wired"

    thread.tools = (*TOOLS, wire)
    new_code(thread, "v2")
    thread.model.script = [calls(("wire", {}))]
    await thread.say("wire it")
    await thread.work()
    asked = await thread.prompt()
    value = button_value(asked.prompt_id, "approve")
    with former_format():
        new_code(thread, "v1")
        (at_once,) = (await hear(thread, who="bob", click=value, key="at once")).clicks
        assert (at_once.status, "newer version" in (at_once.reason or "")) == ("refused", True)
        thread.later_s(QUIET)
        (later,) = (await hear(thread, who="bob", click=value, key="later")).clicks
        assert (later.status, later.receipt and later.receipt.reason) == ("refused", "session_stranded")
        assert await thread.work() == 0
    untouched = await thread.prompt()
    assert (untouched.outcome, untouched.votes) == (None, ())
    assert thread.log.names() == []
    new_code(thread, "v2")
    for who in ("bob", "farah"):
        await hear(thread, who=who, click=value, key=f"{who} at last")
    await thread.work()
    assert thread.log.names() == ["wire"]


async def test_the_successor_is_given_what_was_said_if_the_bot_wants_so(thread: Thread) -> None:
    old = await rolled_back(thread, transcripts=True)
    thread.later_s(QUIET)
    await hear(thread, text="hello?")
    await thread.work()
    note = thread.model.requests[-1].history[0]
    assert isinstance(note, NoteItem)
    assert (note.trust, note.origin) == (Trust.UNTRUSTED, f"session:{old}")
    assert "Alice: hello\nassistant: Hello, Alice.\nAlice: refund 20\nassistant: I'll ask." in note.text
    await hear(thread, text="and on")
    await thread.work()
    assert sum(isinstance(item, NoteItem) for item in thread.model.requests[-1].history) == 1


async def test_without_the_setting_nothing_is_given(thread: Thread) -> None:
    await rolled_back(thread)
    thread.later_s(QUIET)
    await hear(thread, text="hello?")
    await thread.work()
    assert not any(isinstance(item, NoteItem) for item in thread.model.requests[-1].history)


async def test_only_the_newest_forty_messages_are_given(thread: Thread) -> None:
    with next_format():
        new_code(thread, "v2")
        for number in range(25):
            await thread.say(f"message {number}")
            await thread.work()
    new_code(thread, "v1", transcripts=True)
    thread.later_s(QUIET)
    await hear(thread, text="hello?")
    await thread.work()
    note = thread.model.requests[-1].history[0]
    assert isinstance(note, NoteItem)
    assert note.text.count("\n") == 40
    assert "message 4\n" not in note.text
    assert "message 5\n" in note.text


async def test_a_predecessor_that_was_forgotten_gives_nothing(thread: Thread) -> None:
    old = await rolled_back(thread, transcripts=True)
    thread.later_s(QUIET)
    taken = await hear(thread, text="hello?")
    await thread.store.forget(old)
    await thread.work()
    assert await thread.outcome(taken.receipts[0]) is Outcome.COMPLETED


# By id


async def test_by_id_it_is_refused_with_the_version_that_wrote_it(thread: Thread) -> None:
    old = await rolled_back(thread)
    prompt = await thread.prompt()
    thread.later_s(QUIET)
    api = sessions(thread)
    answer = [Response(prompt.prompt_id, option_id="approve")]
    with pytest.raises(Stranded) as refused:
        await api.message(ALICE, old, message="hello?", turn_policy=None, key=None)
    for act in (
        api.respond(ALICE, old, responses=answer, key=None),
        api.cancel(ALICE, old, turn_id=None, key=None),
        api.events(ALICE, old, start=0, follow=True),
    ):
        with pytest.raises(Stranded):
            await act
    problem = known(refused.value)
    assert problem is not None
    assert (problem.status, problem.code) == (409, "session_stranded")
    assert f"version v2 (format {NEXT})" in problem.message
    assert (await thread.store.run(old)).status is RunStatus.OPEN
    assert await thread.store.rows("SELECT count(*) FROM moor_admission WHERE outcome IS NULL", {}) == [(1,)]


async def test_it_can_be_read_and_reset(thread: Thread) -> None:
    old = await rolled_back(thread)
    thread.later_s(QUIET)
    api = sessions(thread)
    events = [event["type"] async for event in await api.events(ALICE, old, start=0, follow=False)]
    assert events[-1] == "turn.waiting"
    view = await api.view(ALICE, old)
    assert (view["status"], len(view["open_prompts"])) == ("waiting", 1)
    assert await api.reset(ALICE, old, reason="gone wrong", key=None) is ControlStatus.RESET
    assert (await thread.types())[-3:] == ["input.resolved", "turn.cancelled", "session.completed"]


async def test_who_is_not_in_it_learns_nothing(thread: Thread) -> None:
    old = await rolled_back(thread)
    thread.later_s(QUIET)
    with pytest.raises(NotFound):
        await sessions(thread).message(replace(ALICE, id="fake:eve"), old, message="x", turn_policy=None, key=None)


async def test_an_answer_while_newer_code_runs_may_be_sent_again(thread: Thread) -> None:
    old = await rolled_back(thread)
    prompt = await thread.prompt()
    with pytest.raises(Problem) as refused:
        await sessions(thread).respond(ALICE, old, responses=[Response(prompt.prompt_id, option_id="approve")], key=None)
    assert (refused.value.status, refused.value.retryable) == (503, True)


async def test_until_it_is_stranded_a_message_by_id_only_waits(thread: Thread) -> None:
    old = await rolled_back(thread)
    accepted = await sessions(thread).message(ALICE, old, message="hello?", turn_policy=None, key=None)
    assert (await thread.store.submission(accepted.submission_id)).outcome is None


# Its time-out


async def test_its_time_ends_though_nobody_can_run_it(thread: Thread) -> None:
    thread.lifetime_ms = DAY
    old = await rolled_back(thread)
    thread.later_s(QUIET)
    assert await thread.leftovers.expire() == 0
    thread.later_s(DAY / 1000)
    assert await thread.leftovers.expire() == 1
    run = await thread.store.run(old)
    assert (run.status, run.end_reason) == (RunStatus.ENDED, "expired")
    assert (await thread.types())[-1] == "session.completed"
    assert await thread.store.run_at(CHANNEL, "fake:v1:thread") is None
    assert await thread.leftovers.expire() == 0


async def test_what_this_code_reads_ends_by_its_worker(thread: Thread) -> None:
    thread.lifetime_ms = DAY
    new_code(thread, "v1", lifetime_ms=DAY)
    await thread.say("hello")
    await thread.work()
    thread.later_s(2 * DAY / 1000)
    assert await thread.leftovers.expire() == 0
    await thread.work()
    assert await thread.ended()


# Of an earlier start


def dormant(thread: Thread, *, before: int) -> None:
    """Go on as the worker of a dev that was started then."""
    thread.abilities = replace(thread.abilities, since=before)
    thread.hire("w of the next start")
    thread.leftovers = Leftovers(store=thread.store, strandings=thread.leftovers.strandings, dormant_before=before)
    thread.answers = replace(thread.answers, leftovers=thread.leftovers)


async def test_what_an_earlier_start_left_unfinished_is_left_alone(thread: Thread) -> None:
    thread.model.script = [calls(("refund", {"amount": 20}))]
    await thread.say("refund 20")
    await thread.work()
    prompt, run_id = await thread.prompt(), thread.run_id
    thread.later_s(1)
    dormant(thread, before=await thread.store.now())
    taken = await hear(thread, text="hello?")
    assert (taken.response.status, taken.receipts) == (409, ())
    assert "--resume" in taken.refused
    click = (await hear(thread, click=button_value(prompt.prompt_id, "approve"))).clicks[0]
    assert (click.status, click.receipt and click.receipt.reason) == ("refused", "session_dormant")
    with pytest.raises(Dormant) as refused:
        await sessions(thread).message(ALICE, run_id, message="x", turn_policy=None, key=None)
    assert (refused.value.status, refused.value.code) == (409, "session_dormant")
    thread.later_s(4 * DAY / 1000)
    assert await thread.work() == 0, "not even its request expires"
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is None
    dormant(thread, before=0)
    await thread.work()
    assert (await thread.store.prompt(prompt.prompt_id)).outcome is not None, "with --resume it goes on"


async def test_a_message_that_no_worker_took_is_not_taken_after_the_next_start(thread: Thread) -> None:
    receipt = await thread.say("hello")
    thread.later_s(1)
    dormant(thread, before=await thread.store.now())
    assert await thread.work() == 0
    assert await thread.outcome(receipt) is None
    assert (await hear(thread, text="again")).response.status == 409
    assert await sessions(thread).reset(ALICE, thread.run_id, reason=None, key=None) is ControlStatus.RESET
    assert (await hear(thread, text="once more")).receipts[0].created


async def test_an_idle_session_of_an_earlier_start_goes_on(thread: Thread) -> None:
    await thread.say("hello")
    await thread.work()
    thread.later_s(1)
    dormant(thread, before=await thread.store.now())
    thread.later_s(1)
    (receipt,) = (await hear(thread, text="again")).receipts
    assert receipt.run_id == thread.run_id
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    # what this start left in the middle is no earlier start's
    thread.model.script = [calls(("refund", {"amount": 20}))]
    await hear(thread, text="refund")
    await thread.work()
    assert (await hear(thread, text="never mind")).response.status == 200
