"""One conversation under changing code: formats, hand-off, rollback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.history import UserItem
from bot.redaction import words_of
from durable_core import codec
from durable_core.failpoints import arm
from durable_core.model import Outcome, Phase
from tests.bot.session.actors import Held, calls, die, says
from tests.bot.session.kit import ALICE, FARAH, Thread, open_thread
from tests.bot.session.versions import NEXT, PRESENT, enrol, new_code, next_format

DAY = 86_400_000


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    opened = await open_thread()
    yield opened
    await opened.store.close()


async def parked(thread: Thread) -> None:
    """Have a session of the present format that waits for an approval."""
    new_code(thread, "v1")
    thread.model.script = [calls(("refund", {"amount": 20}))]
    await thread.say("refund 20")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).phase is Phase.WAITING


async def test_a_session_parked_under_an_older_format_goes_on_under_a_newer(thread: Thread) -> None:
    await parked(thread)
    with next_format():
        new_code(thread, "v2")
        await thread.click("approve")
        await thread.work()
        assert thread.log.names() == ["refund"]
        first = thread.model.requests[-1].history[0]
        assert isinstance(first, UserItem)
        assert first.text == "REFUND 20", "the item was brought up"
        run = await thread.store.run(thread.run_id)
        assert (run.spec_version, run.phase) == (NEXT, Phase.IDLE)
        steps = await thread.store.steps(thread.run_id)
        assert [step.spec_version for step in steps] == [PRESENT, PRESENT, NEXT, NEXT]
        assert [codec.written_by(step.output) for step in steps] == [PRESENT, PRESENT, NEXT, NEXT]
        output: Any = codec.decode(steps[-1].output)
        assert output["state"]["messages"] == 10, "what was brought up is written on"


async def test_each_attempt_says_which_deployment_makes_it(thread: Thread) -> None:
    await parked(thread)
    new_code(thread, "v2")
    await thread.click("approve")
    await thread.work()
    started = [event.data for event in await thread.events() if event.type == "step.started"]
    assert [(data["step_index"], data["deployment"]) for data in started] == [(0, "v1"), (1, "v2"), (2, "v2")]


async def test_an_input_that_older_code_took_in_is_brought_up(thread: Thread) -> None:
    new_code(thread, "v1")
    await thread.say("hello")
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        (message, _) = await thread.history()
        assert isinstance(message, UserItem)
        assert message.text == "hello!"


async def test_a_card_of_an_older_format_is_drawn_by_newer_code(thread: Thread) -> None:
    await parked(thread)
    with next_format():
        new_code(thread, "v2")
        await thread.click("deny")
        await thread.work()
    assert thread.channel.cards[-1].card.question == "Refund 20? (asked by an older version)"


async def test_what_an_older_attempt_recorded_is_taken_up_by_newer_code(thread: Thread) -> None:
    new_code(thread, "v1")
    thread.model.script = [calls(("look", {}), ("put_once", {}))]
    await thread.say("put")
    with arm("tool.after_effect", die, on=2):
        await thread.killed("w2")
    assert thread.log.names() == ["look", "put_once"]
    with next_format():
        new_code(thread, "v2")
        thread.model.script = [says("done")]
        await thread.work()
        assert thread.log.names() == ["look", "put_once", "put_once"], "the paid reply and the finished call were read"
        await thread.check()


async def test_after_a_rollback_what_newer_code_wrote_is_left_alone(thread: Thread) -> None:
    await parked(thread)
    with next_format():
        new_code(thread, "v2")
        await thread.say("never mind, just talk")
        thread.model.script = [calls(("refund", {"amount": 21}))]
        await thread.work()
        asked = await thread.prompt()
    new_code(thread, "v1")
    receipt = await thread.say("are you there?")
    assert await thread.work() == 0
    run = await thread.store.run(thread.run_id)
    assert (run.spec_version, run.phase, run.stranded) == (NEXT, Phase.WAITING, None)
    assert await thread.outcome(receipt) is None, "it waits, nothing is lost"
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        assert await thread.outcome(receipt) is Outcome.COMPLETED
        assert (await thread.store.prompt(asked.prompt_id)).outcome is not None


async def test_an_input_that_newer_code_took_in_is_left_to_it(thread: Thread) -> None:
    new_code(thread, "v1")
    await thread.say("hello")
    await thread.work()
    with next_format():
        receipt = await thread.say("in a newer format")
    new_code(thread, "v1")
    assert await thread.work() == 1
    run = await thread.store.run(thread.run_id)
    assert run.stranded is not None
    assert f"format {NEXT}" in run.stranded
    assert await thread.work() == 0, "it is not offered to this code again"
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        assert await thread.outcome(receipt) is Outcome.COMPLETED
        assert (await thread.store.run(thread.run_id)).stranded is None


async def test_a_turn_that_runs_finishes_its_step_before_newer_code_takes_over(thread: Thread) -> None:
    new_code(thread, "v1")
    thread.log.holds["put"] = hold = Held()
    thread.model.script = [calls(("put", {"what": "a"}))]
    await thread.say("put a")
    work = thread.begin()
    await hold.reached.wait()
    with next_format():
        receipt = await thread.say("and b")
    hold.go.set()
    await work
    assert thread.log.ended == ["put"], "the tool was not stopped in the middle"
    assert (await thread.store.run(thread.run_id)).stranded is not None
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        assert await thread.outcome(receipt) is Outcome.COMPLETED
        await thread.check()
    assert thread.log.names() == ["put"]


async def test_what_newer_code_owes_is_not_sent_by_older(thread: Thread) -> None:
    with next_format():
        new_code(thread, "v2")
        await enrol(thread)
        await thread.say("hello")
        held = await thread.claim()
        assert held is not None
        await thread.runner.advance(held)
    new_code(thread, "v1")
    await thread.work()
    assert thread.channel.shown == []
    thread.later_s(6)
    with next_format():
        new_code(thread, "v2")
        await thread.work()
    assert thread.channel.texts == ["answer 1"]


async def test_what_nobody_can_send_any_more_holds_nothing_up(thread: Thread) -> None:
    with next_format():
        new_code(thread, "v2")
        await thread.say("hello")
        held = await thread.claim()
        assert held is not None
        await thread.runner.advance(held)
    new_code(thread, "v1")
    thread.later_s(11 * 60)
    await thread.work()
    (row,) = await thread.store.rows("SELECT state, last_error FROM moor_outbox", {})
    assert row == ("dead", "unreadable")


async def test_an_answer_that_a_worker_has_to_decide_waits_for_code_that_reads_it(thread: Thread) -> None:
    with next_format():
        new_code(thread, "v2")
        thread.model.script = [calls(("pay", {"amount": 5}))]
        await thread.say("pay 5")
        await thread.work()
        receipt = await thread.click("approve", FARAH)
    new_code(thread, "v1")
    await thread.work()
    assert await thread.store.interaction_result(receipt.submission_id) is None
    thread.later_s(6)
    with next_format():
        new_code(thread, "v2")
        await thread.work()
        assert thread.settled(await thread.answers.result(receipt))
    assert thread.log.names() == ["pay"]


# Hand-off


async def test_an_idle_session_moves_to_the_deployment_that_takes_its_next_message(thread: Thread) -> None:
    thread.lifetime_ms = DAY
    new_code(thread, "v1", lifetime_ms=DAY)
    await thread.say("hello")
    await thread.work()
    before = await thread.store.run(thread.run_id)
    assert before.deployment == "v1", "the worker that took its first message"
    thread.later_s(3_600)
    new_code(thread, "v2", lifetime_ms=2 * DAY)
    assert (await thread.store.run(thread.run_id)).deployment == "v1", "nothing moves by itself"
    await thread.say("again")
    await thread.work()
    moved = await thread.store.run(thread.run_id)
    assert (moved.run_id, moved.deployment, moved.deadline_at) == (before.run_id, "v2", await thread.store.now() + 2 * DAY)
    steps = await thread.store.steps(thread.run_id)
    assert [step.deployment for step in steps] == ["v1", "v1", "v2", "v2"]
    assert thread.channel.texts == ["answer 1", "answer 2"]
    found = await thread.store.run_at("fake", "fake:v1:thread")
    assert found is not None
    assert found.run_id == moved.run_id
    assert (await thread.types()).count("session.started") == 1
    await thread.check()


async def test_the_same_deployment_restarts_no_timer(thread: Thread) -> None:
    thread.lifetime_ms = DAY
    new_code(thread, "d", lifetime_ms=2 * DAY)
    await thread.say("hello")
    await thread.work()
    first = await thread.store.run(thread.run_id)
    thread.later_s(3_600)
    await thread.say("again")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).deadline_at == first.deadline_at


async def test_a_turn_that_waits_moves_with_the_next_turn_only(thread: Thread) -> None:
    await parked(thread)
    new_code(thread, "v2")
    await thread.click("approve")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).deployment == "v1"
    await thread.say("thanks")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).deployment == "v2"


async def test_a_session_without_an_end_gets_one_and_loses_it(thread: Thread) -> None:
    new_code(thread, "v1")
    await thread.say("hello")
    await thread.work()
    new_code(thread, "v2", lifetime_ms=DAY)
    await thread.say("again")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).deadline_at is not None
    new_code(thread, "v3")
    await thread.say("and again")
    await thread.work()
    assert (await thread.store.run(thread.run_id)).deadline_at is None


async def test_what_is_taken_out_of_older_words_stays_in_their_format(thread: Thread) -> None:
    await parked(thread)
    with next_format():
        new_code(thread, "v2")
        bodies = await words_of(thread.store, thread.run_id, ALICE.id)
        assert {name.partition(":")[0] for name in bodies} == {"command", "event", "step"}
        assert {codec.written_by(body) for body in bodies.values()} == {PRESENT}
