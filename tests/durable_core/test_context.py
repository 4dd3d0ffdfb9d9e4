"""What the author sees: each call of the context, and what it refuses."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError
from datetime import UTC, timedelta
from typing import Any

import pytest

from durable_core.context import StepContext, WorkflowContext, entering_step, step_context
from durable_core.failures import ChildFailed
from durable_core.ids import event_id, new_id
from durable_core.operations import Answer, Hook, OpKind, Option, child_run_id
from durable_core.registry import Workflow, workflow
from tests.durable_core.plays import RUN, Play, add, fetch


@workflow
async def other(ctx: WorkflowContext, n: int, *, flag: bool = False) -> int:
    return n


def take(value: Any) -> Any:
    """Be a step that takes anything."""
    return value


def told(fn: Any, **options: Any) -> Any:
    return Play(Workflow("body", fn), **options).result


class TestDeterminism:
    def test_now_random_and_uuid_are_the_same_in_each_replay(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[str]:
            said = [str(ctx.uuid()), str(ctx.random.random()), ctx.now().isoformat()]
            await ctx.step(fetch, "a")
            return [*said, str(ctx.uuid()), str(ctx.random.randrange(1000)), ctx.run_id]

        play = Play(body).done("step:fetch#0")
        assert play.again().result == Play(body).done("step:fetch#0").result
        assert len(set(play.result)) == 6
        assert play.result[0][14] == "4"
        assert Play(body, run_id="run_other").done("step:fetch#0").result[:2] != play.result[:2]

    def test_times_have_a_zone(self) -> None:
        async def body(ctx: WorkflowContext) -> bool:
            return ctx.now().tzinfo is UTC

        assert told(body)

    def test_uuids_do_not_depend_on_other_random_numbers(self) -> None:
        async def with_random(ctx: WorkflowContext) -> str:
            ctx.random.random()
            return str(ctx.uuid())

        async def without(ctx: WorkflowContext) -> str:
            return str(ctx.uuid())

        assert told(with_random) == told(without)


class TestStep:
    def test_sync_functions_and_methods_are_asked_for_like_others(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> Any:
            return [await ctx.step(add, 1, two=2), await ctx.step("text".upper)]

        play = Play(body)
        assert (play.replay.wanted[0].args, play.replay.wanted[0].kwargs) == ((1,), {"two": 2})
        assert play.done("step:add#0", 3).done("step:upper#0", "TEXT").result == [3, "TEXT"]

    def test_an_argument_that_was_not_awaited_is_refused(self) -> None:
        async def body(ctx: WorkflowContext) -> list[str]:
            said = []
            refused: list[Any] = [fetch("a"), ctx.step(fetch, "a")]
            for place, one in zip([{}, {"two": 2}], refused, strict=True):
                with pytest.raises(TypeError) as caught:
                    ctx.step(add, **{**place, "one" if place else "two": one})
                said.append(str(caught.value))
            return said

        first, second = told(body)
        assert first == "argument 'two' of add is not awaited yet: write `await` before it"
        assert second == "argument 'one' of add is not awaited yet: write `await` before it"

    def test_rule_7_a_step_and_the_body_do_not_share_what_they_change(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            cart: list[Any] = ["apple", {"n": 1}, (1, [2])]
            waiting = ctx.step(take, cart)
            ctx.child(other, cart)
            ctx.progress(cart)
            cart[1]["n"] = 2
            cart[2][1].append(3)
            await waiting
            return cart

        play = Play(body)
        given = play.replay.wanted[0].args[0]
        assert given == ["apple", {"n": 1}, (1, [2])]
        assert play.replay.wanted[1].child is not None
        assert play.replay.wanted[1].child.args[0] == given == play.progress[0]
        given.clear()
        assert play.done("step:take#0").again().result == ["apple", {"n": 2}, (1, [2, 3])]

    def test_what_is_no_plain_container_is_handed_over_as_it_is(self) -> None:
        client = object()

        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.step(take, {"client": client, "seen": {1}})

        (op,) = Play(body).replay.wanted
        assert op.args[0] == {"client": client, "seen": {1}}

    def test_a_called_function_is_refused_with_the_right_form(self) -> None:
        async def body(ctx: WorkflowContext) -> None:
            await ctx.step(add(1, 2))  # type: ignore[call-overload]

        error = Play(Workflow("body", body)).error
        assert "write ctx.step(fn, x), not ctx.step(fn(x))" in str(error)


class TestSleep:
    def test_durations_are_seconds_or_timedeltas_and_nothing_waits_for_nothing(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            await ctx.sleep(0)
            await ctx.sleep(-5)
            await asyncio.gather(ctx.sleep(1.5), ctx.sleep(timedelta(minutes=2)))
            return "over"

        play = Play(body)
        assert play.wanted == ["timer:1500#0", "timer:120000#0"]
        assert play.fire().again().fire().result == "over"

    def test_a_sleep_that_is_cancelled_leaves_no_timer(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            ctx.sleep(5).cancel()
            nap = asyncio.create_task(asyncio.sleep(7))
            await asyncio.sleep(0)
            nap.cancel()
            await ctx.step(fetch, "a")
            return "over"

        assert Play(body).wanted == ["step:fetch#0"]


class TestAsk:
    def test_an_answer_has_no_truth_value(self) -> None:
        with pytest.raises(TypeError, match=r"compare answer.option_id, or look at answer.expired"):
            bool(Answer(option_id="no"))
        with pytest.raises(TypeError):
            assert not Answer()

    def test_an_answer_is_read_from_what_there_is(self) -> None:
        assert Answer.of({}) == Answer()
        assert Answer.of({"expired": True, "unknown": 1}) == Answer(expired=True)
        assert Answer.of({"text": "later", "cancelled": True}).text == "later"

    def test_questions_that_nobody_can_answer_are_refused(self) -> None:
        async def body(ctx: WorkflowContext) -> list[str]:
            said = []
            for options in ([], [Option("a", "A"), Option("a", "B")]):
                with pytest.raises(ValueError) as caught:
                    ctx.ask("?", options)
                said.append(str(caught.value))
            return said

        none, double = told(body)
        assert "needs options, or allow_freeform=True" in none
        assert "the same id" in double
        with pytest.raises(ValueError, match="an id and a label"):
            Option("", "A")

    def test_questions_are_told_apart_by_name_and_count_not_by_text(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            waits = [ctx.ask(f"really {n}?", allow_freeform=True, name=name) for n, name in enumerate(["", "", "last"])]
            await asyncio.wait(waits)

        assert Play(body).wanted == ["ask:#0", "ask:#1", "ask:last#0"]


class TestHooks:
    def test_a_hook_is_iterated_as_often_as_wanted(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            hook = Hook("payment:o-1")
            said = []
            for _ in range(2):
                async for payload in hook:
                    said.append(payload)
                    if payload == "stop":
                        break
            return said

        play = Play(body).signal("payment:o-1", 1).again().signal("payment:o-1", "stop").signal("payment:o-1", 2).again()
        assert play.signal("payment:o-1", "stop").again().result == [1, "stop", 2, "stop"]

    async def test_outside_a_body_a_hook_says_what_it_is_for(self) -> None:
        with pytest.raises(RuntimeError, match="in a workflow's body only"):
            await anext(aiter(Hook("h")))

    def test_names_of_webhooks_are_taken(self) -> None:
        for name in ("", "webhook:#0"):
            with pytest.raises(ValueError):
                Hook(name)


class TestChildren:
    def test_a_childs_id_comes_from_its_parent_and_place_or_key(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            a, b = ctx.child(other, 1, flag=True), ctx.child(other, 2)
            c, d = ctx.child(other, 3, key="k"), ctx.start(other, 4, key="k")
            return [*(await asyncio.gather(a, b, c)), d.run_id, await d.result(), await d.result()]

        play = Play(body)
        children = [op.child for op in play.replay.wanted if op.child is not None]
        assert play.wanted == [f"child:other#{n}" for n in range(4)]
        assert (children[0].args, children[0].kwargs, children[0].workflow) == ((1,), {"flag": True}, other)
        assert [one.detached for one in children] == [False, False, False, True]
        ids = [one.run_id for one in children]
        assert ids[2] == ids[3]
        assert len({RUN, *ids}) == 4
        for n in range(4):
            play.done(f"child:other#{n}", n * 10).again()
        assert play.result == [0, 10, 20, ids[3], 30, 30]

    def test_a_childs_id_is_an_id(self) -> None:
        parent = new_id("ses")
        child = child_run_id(parent, "child:other#0")
        assert child == child_run_id(parent, "child:other#0") != child_run_id(new_id("ses"), "child:other#0")
        assert event_id(child, 1)
        assert child[:14] == parent[:14]
        assert event_id(child_run_id("odd", "x"), 1)

    def test_a_started_child_outlives_those_who_wait_for_it(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> Any:
            handle = ctx.start(other, 1)
            try:
                async with asyncio.timeout(1):
                    await handle.result()
            except TimeoutError:
                await ctx.step(fetch, "a")
            return await handle.result()

        play = Play(body).fire().again()
        assert play.wanted == ["child:other#0", "step:fetch#0"]
        assert play.done("child:other#0", 7).done("step:fetch#0").again().result == 7

    def test_an_awaited_child_is_dropped_by_a_timeout(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            async with asyncio.timeout(1):
                await ctx.child(other, 1)

        play = Play(body).fire().again()
        assert isinstance(play.error, TimeoutError)
        assert play.wanted == []

    def test_a_started_child_that_fails_raises_where_it_is_waited_for(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.start(other, 1).result()

        assert isinstance(Play(body).fails("child:other#0").again().error, ChildFailed)

    def test_what_is_no_workflow_is_no_child(self) -> None:
        async def body(ctx: WorkflowContext) -> None:
            await ctx.child(fetch, "a")  # type: ignore[arg-type]

        assert "a child is a workflow (@workflow)" in str(Play(Workflow("body", body)).error)


class TestStepContext:
    def test_a_step_knows_its_key_and_nothing_else_does(self) -> None:
        facts = StepContext(run_id=RUN, operation_id="step:pay#0", attempt=2, idempotency_key="k")
        with entering_step(facts):
            assert step_context() is facts
        with pytest.raises(RuntimeError, match="within a step only"):
            step_context()

    async def test_a_thread_of_a_step_knows_it_too(self) -> None:
        facts = StepContext(run_id=RUN, operation_id="step:pay#0", attempt=1, idempotency_key="k")
        with entering_step(facts):
            assert await asyncio.to_thread(step_context) is facts

    def test_a_body_knows_no_step_even_where_the_driver_does(self) -> None:
        async def body(ctx: WorkflowContext) -> str:
            with pytest.raises(RuntimeError) as caught:
                step_context()
            return str(caught.value)

        with entering_step(StepContext(run_id=RUN, operation_id="x", attempt=1, idempotency_key="k")):
            assert "a workflow's body has ctx" in told(body)


def test_values_are_frozen() -> None:
    for value, field in ((Option("a", "A"), "label"), (Answer(), "text"), (Hook("h"), "name")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, field, "x")
    assert {one.value for one in OpKind} == {"step", "timer", "ask", "signal", "child", "webhook"}
