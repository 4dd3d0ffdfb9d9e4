"""Author code that raises what it shouldn't: nothing ends the process, nothing passes for a drain.

What lives here: cancellations and exits that leak out of tools, models and policies. What does not: real drains (test_worker.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bot.access import Action, Allow, Decision
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.history import ResultItem, ResultStatus
from bot.model import ModelReply, ModelRequest, OnText
from bot.principal import Principal
from bot.tools import Tool, tool
from channels.events import Place
from durable_core.model import AnswerStatus, Outcome
from tests.bot.session.actors import TOOLS, Held, calls, says
from tests.bot.session.kit import ALICE, FARAH, Thread
from tests.bot.session.test_worker import settled, worker

LEAKS: list[Callable[[], BaseException]] = [asyncio.CancelledError, lambda: SystemExit(3), KeyboardInterrupt]


def bad_tool(error: BaseException, how: str) -> Tool:
    def plain(ctx: ToolContext) -> str:
        """Raise."""
        raise error

    async def later(ctx: ToolContext) -> str:
        """Raise."""
        raise error

    async def itself(ctx: ToolContext) -> str:
        """Cancel the task it is in, as a scope that leaks does."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "no"

    return tool(effect="write", name="bad")({"plain": plain, "later": later, "itself": itself}[how])


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("how", ["plain", "later", "itself"])
async def test_of_a_tool_it_is_a_failed_result(thread: Thread, leak: Callable[[], BaseException], how: str) -> None:
    thread.tools = (*TOOLS, bad_tool(leak(), how))
    thread.hire("w1")
    thread.model.script = [calls(("bad", {}), ("look", {}))]
    receipt = await thread.say("go")
    assert await thread.work() == 1
    results = [item.status for item in thread.model.requests[1].history if isinstance(item, ResultItem)]
    assert results == [ResultStatus.FAILED, ResultStatus.COMPLETED]
    assert await thread.outcome(receipt) is Outcome.COMPLETED


@pytest.mark.parametrize("leak", LEAKS)
async def test_of_a_model_it_is_a_failed_attempt_that_counts(thread: Thread, leak: Callable[[], BaseException]) -> None:
    thread.model.script = [leak() for _ in range(9)]
    receipt = await thread.say("go")
    for _ in range(9):
        assert await thread.work() <= 1
        thread.later_s(60)
    assert len(thread.model.requests) == 4
    assert (await thread.detail(receipt))["code"] == "model_error"


async def test_a_model_that_cancels_its_own_task_is_one_too(thread: Thread) -> None:
    async def itself(request: ModelRequest, on_text: OnText) -> ModelReply:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return says("no")

    thread.model.script = [itself]
    await thread.say("go")
    assert await thread.work() == 1
    thread.later_s(60)
    await thread.work()
    assert [request.attempt for request in thread.model.requests] == [1, 2]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("plain", [True, False])
async def test_of_an_access_policy_it_is_a_failed_look_up(thread: Thread, leak: Callable[[], BaseException], plain: bool) -> None:
    broken = True

    def policy(principal: Principal, place: Place, action: Action) -> Decision:
        if broken:
            raise leak()
        return Allow()

    async def later(principal: Principal, place: Place, action: Action) -> Decision:
        return policy(principal, place, action)

    thread.access = policy if plain else later
    thread.hire("w1")
    receipt = await thread.say("hi")
    assert await thread.work() == 1
    assert thread.model.requests == []
    broken = False
    thread.later_s(60)
    await thread.work()
    assert await thread.outcome(receipt) is Outcome.COMPLETED


@pytest.mark.parametrize("leak", LEAKS)
async def test_of_approval_functions_it_closes_the_gate(thread: Thread, leak: Callable[[], BaseException]) -> None:
    def fails(call: ToolCall, *_: object) -> bool:
        raise leak()

    def words(call: ToolCall) -> str:
        raise leak()

    @tool(approval=Approval(when=fails, by=fails, ask=words, by_text=words))
    async def gated(ctx: ToolContext) -> str:
        """Never run."""
        raise AssertionError

    thread.tools = (gated,)
    thread.hire("w1")
    thread.model.script = [calls(("gated", {}))]
    await thread.say("go")
    await thread.work()
    (card,) = thread.channel.cards
    assert card.card.question == "Run gated?"
    receipt = await thread.click("approve", FARAH)
    await thread.work()
    refused = await thread.answers.result(receipt)
    assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "not_allowed")
    await thread.cancel()
    await thread.work()


async def test_a_drain_is_none_of_this(thread: Thread) -> None:
    thread.log.holds["put_once"] = hold = Held()
    thread.model.script = [calls(("put_once", {}))]
    first = worker(thread, "w1")
    await first.start()
    receipt = await thread.say("go", ALICE)
    await hold.reached.wait()
    await first.drain(0)
    assert await thread.store.rows("SELECT charged, owner FROM moor_run", {}) == [(0, None)]
    hold.go.set()
    second = worker(thread, "w2")
    await second.start()
    assert await settled(thread, receipt) is Outcome.COMPLETED
    await second.drain(5)
    assert [attempt for _, attempt, *_ in thread.log.runs] == [1, 2]
    await thread.work()
