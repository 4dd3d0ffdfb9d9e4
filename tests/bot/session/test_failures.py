"""Failures and limits: a model that fails, budgets, a session's deadline.

What lives here: what ends a turn or a session that nobody cancelled. What does not: dead workers (test_interruption.py).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.errors import ModelFailed
from durable_core.model import Outcome
from tests.bot.session.actors import Held
from tests.bot.session.kit import ALICE, GUEST, START, Thread
from tests.bot.session.test_approvals import ask


def flaky(retry_after: float | None = None) -> ModelFailed:
    return ModelFailed("overloaded", "try later", retryable=True, retry_after=retry_after)


async def test_a_model_that_fails_is_asked_again_after_a_wait_that_holds_no_worker(thread: Thread) -> None:
    thread.model.script = [flaky(), flaky(retry_after=30)]
    receipt = await thread.say("hi")
    assert await thread.work() == 1
    assert await thread.work() == 0
    thread.later_s(0.5)
    assert await thread.work() == 1
    thread.later_s(29)
    assert await thread.work() == 0
    thread.later_s(1)
    assert await thread.work() == 1
    assert [request.attempt for request in thread.model.requests] == [1, 2, 3]
    assert {request.sequence for request in thread.model.requests} == {0}
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    started = [event for event in await thread.events() if event.type == "step.started"]
    assert [(event.attempt, event.data.get("previous"), event.data["step_index"]) for event in started] == [
        (1, None, 0),
        (2, "error", 0),
        (3, "error", 0),
    ]
    failed = [event for event in await thread.events() if event.type == "step.failed"]
    assert [event.data["retry_at"] - START for event in failed] == [500, 30_500]


async def test_the_wait_counts_from_the_failure_not_from_the_start_of_the_call(thread: Thread) -> None:
    hold = Held()

    async def slow(request: object, on_text: object) -> object:
        await hold.wait()
        raise flaky(retry_after=10)

    thread.model.script = [slow]  # type: ignore[list-item]
    await thread.say("hi")
    work = thread.begin()
    await hold.reached.wait()
    thread.later_s(60)
    hold.go.set()
    await work
    assert len(thread.model.requests) == 1
    thread.later_s(10)
    await thread.work()
    assert len(thread.model.requests) == 2


async def test_after_four_charged_attempts_the_turn_fails_and_the_next_message_is_taken(thread: Thread) -> None:
    thread.model.script = [flaky() for _ in range(4)]
    receipt = await thread.say("hi")
    for _ in range(6):
        await thread.work()
        thread.later_s(60)
    assert len(thread.model.requests) == 4
    assert await thread.outcome(receipt) is Outcome.FAILED
    detail = await thread.detail(receipt)
    assert detail["code"] == "overloaded"
    assert detail["error_id"] in thread.channel.texts[-1]
    assert (await thread.types())[-3:] == ["step.failed", "turn.failed", "session.waiting"]
    after = await thread.say("again")
    await thread.work()
    assert await thread.outcome(after) is Outcome.COMPLETED


async def test_what_no_retry_mends_fails_at_once(thread: Thread) -> None:
    thread.model.script = [ModelFailed("content_filter", "no", retryable=False)]
    receipt = await thread.say("hi")
    await thread.work()
    assert (len(thread.model.requests), await thread.outcome(receipt)) == (1, Outcome.FAILED)


async def test_a_correction_during_the_wait_is_tried_at_once(thread: Thread) -> None:
    thread.model.script = [flaky(retry_after=600)]
    await thread.say("hi")
    await thread.work()
    await thread.say("hello?")
    await thread.work()
    assert len(thread.model.requests) == 2
    assert thread.channel.texts == ["answer 2"]


async def test_a_guest_who_talks_into_the_wait_buys_no_more_attempts(thread: Thread) -> None:
    thread.model.script = [flaky(retry_after=600) for _ in range(9)]
    receipt = await thread.say("hi")
    for _ in range(6):
        await thread.work()
        await thread.say("pssst", GUEST)
        await thread.work()
        thread.later_s(600)
    assert len(thread.model.requests) == 4
    assert await thread.outcome(receipt) is Outcome.FAILED


async def test_an_error_of_the_models_own_code_is_retried_as_one(thread: Thread) -> None:
    thread.model.script = [ZeroDivisionError("bug")]
    await thread.say("hi")
    await thread.work()
    thread.later_s(1)
    await thread.work()
    assert thread.channel.texts == ["answer 2"]


async def test_an_idle_session_ends_at_its_deadline_and_frees_its_address(thread: Thread) -> None:
    thread.lifetime_ms = 60_000
    await thread.say("hi")
    await thread.work()
    ended = thread.run_id
    thread.later_s(59)
    assert await thread.work() == 0
    thread.later_s(1)
    assert await thread.work() == 1
    assert await thread.ended()
    assert (await thread.types())[-1] == "session.completed"
    await thread.say("hello again")
    await thread.work()
    assert thread.run_id != ended
    assert thread.channel.texts == ["answer 1", "answer 2"]


async def test_a_deadline_lets_a_held_turn_settle_and_does_not_spin_meanwhile(thread: Thread) -> None:
    thread.lifetime_ms = 60_000
    await ask(thread)
    thread.clock.advance(timedelta(hours=1))
    assert await thread.work() <= 1
    assert await thread.work() == 0
    assert not await thread.ended()
    await thread.click("approve", ALICE)
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert thread.channel.texts[-1] == "answer 2"
    assert await thread.ended()


@pytest.mark.parametrize("wait", [600])
async def test_a_deadline_in_a_retry_wait_does_not_spin(thread: Thread, wait: float) -> None:
    thread.lifetime_ms = 60_000
    thread.model.script = [flaky(retry_after=wait)]
    await thread.say("hi")
    await thread.work()
    thread.later_s(120)
    assert await thread.work() <= 1
    assert await thread.work() == 0
    thread.later_s(wait)
    await thread.work()
    assert thread.channel.texts == ["answer 2"]
    assert await thread.ended()


async def test_a_message_that_came_in_time_is_answered_though_no_worker_was_there(thread: Thread) -> None:
    thread.lifetime_ms = 60_000
    receipt = await thread.say("hi")
    thread.later_s(3600)
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert thread.channel.texts == ["answer 1"]
    assert await thread.ended()
