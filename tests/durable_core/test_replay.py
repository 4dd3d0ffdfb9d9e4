"""Replay: entries are handed over in their order, checked against the code, and come to the same place again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.failures import ChildFailed, NonDeterminism, StepFailed
from durable_core.operations import Entry, EntryKind, Option, Raised
from durable_core.registry import Workflow, step, workflow
from durable_core.replay import Replay
from tests.durable_core.plays import RUN, START_MS, Play, add, fetch


@workflow
async def two_steps(ctx: WorkflowContext) -> int:
    one = await ctx.step(add, 1, 2)
    return int(await ctx.step(add, one, 4))


class TestOutcome:
    def test_a_body_runs_to_its_result(self) -> None:
        play = Play(two_steps)
        (op,) = play.replay.wanted
        assert (op.fn, op.args, op.kwargs, op.name) == (add, (1, 2), {}, "add")
        play.done("step:add#0", 3)
        assert play.replay.wanted[0].args == (3, 4)
        assert play.done("step:add#1", 7).result == 7
        assert play.again().result == 7

    def test_an_exception_is_the_outcome(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.step(fetch, "a")
            raise LookupError("gone")

        play = Play(body).done("step:fetch#0").again()
        assert isinstance(play.error, LookupError)
        assert not isinstance(play.error, asyncio.CancelledError)

    def test_arguments_that_do_not_fit_are_the_runs_failure(self) -> None:
        assert isinstance(Play(two_steps, "one too many").error, TypeError)

    def test_leaving_by_system_exit_is_a_failure_and_nothing_more(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            try:
                await ctx.step(fetch, "a")
            except StepFailed:
                raise SystemExit(3) from None

        assert "SystemExit(3)" in str(Play(body).fails("step:fetch#0").error)

    def test_what_a_body_leaves_open_stays_listed(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            ctx.start(two_steps)
            return "started"

        play = Play(body)
        assert play.result == "started"
        assert play.wanted == ["child:two_steps#0"]


class TestFailedSteps:
    def test_a_failed_step_raises_the_same_live_and_replayed(self) -> None:
        """Rule 7: what is raised comes from the log, live too."""

        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            try:
                await ctx.step(fetch, "a")
            except StepFailed as failed:
                return [failed.step, failed.type_name, failed.message, failed.attempts, failed.code, failed.stored()]
            return []

        play = Play(body).fails("step:fetch#0", "TimeoutError", "5 s", attempts=3)
        live = play.result
        assert live[:5] == ["fetch", "TimeoutError", "5 s", 3, None]
        assert live[5] == {"type": "TimeoutError", "message": "5 s", "attempts": 3, "code": None}
        assert play.again().result == live

    def test_a_failed_attempt_is_in_the_log_and_not_handed_over(self) -> None:
        play = Play(two_steps)
        before = play.replay.now
        play.deliver(EntryKind.FAILED, "step:add#0", {"type": "OSError"}, ok=False, after_ms=500).again()
        assert (play.wanted, play.replay.now) == (["step:add#0"], before)
        play.done("step:add#0", 3).again()
        assert play.wanted == ["step:add#1"]

    def test_a_failed_child_raises_with_its_run(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[str]:
            try:
                await ctx.child(two_steps)
            except ChildFailed as failed:
                return [failed.workflow, failed.run_id, failed.type_name, failed.message]
            return []

        play = Play(body)
        child = play.replay.wanted[0].child
        assert child is not None
        play.fails("child:two_steps#0", "LookupError", "gone").again()
        assert play.result == ["two_steps", child.run_id, "LookupError", "gone"]


class TestValues:
    def test_rule_7_a_value_is_the_bodys_own_copy(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> Any:
            found: Any = await ctx.step(fetch, "a")
            found.append(4)
            await ctx.step(fetch, "b")
            return found

        shared = [1, 2, 3]
        play = Play(body).done("step:fetch#0", shared)
        assert shared == [1, 2, 3]
        assert play.again().done("step:fetch#1").again().result == [1, 2, 3, 4]


class TestIdentity:
    """Rule 2: an operation is its kind, its name and which of these it is."""

    def test_occurrences_count_per_name(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await asyncio.gather(
                ctx.step(fetch, "a"), ctx.step(add, 1, 2), ctx.step(fetch, "b"), ctx.sleep(1), ctx.sleep(2), ctx.sleep(1)
            )

        ids = ["step:fetch#0", "step:add#0", "step:fetch#1", "timer:1000#0", "timer:2000#0", "timer:1000#1"]
        assert Play(body).wanted == ids

    def test_unrelated_code_may_be_added_beside_it(self) -> None:
        @workflow(name="two_steps")
        async def changed(ctx: WorkflowContext) -> int:
            side = asyncio.create_task(asyncio.sleep(60))
            one = await ctx.step(add, 1, 2)
            side.cancel()
            return int(await ctx.step(add, one, 4))

        log = Play(two_steps).done("step:add#0", 3).log
        assert Play(changed, log=log).wanted == ["step:add#1"]

    def test_rule_2_a_completion_that_was_not_asked_for_is_named_with_what_is(self) -> None:
        @workflow(name="two_steps")
        async def changed(ctx: WorkflowContext) -> None:
            await ctx.step(fetch, "a")

        log = Play(two_steps).done("step:add#0", 3).log
        with pytest.raises(NonDeterminism, match=r"entry 0 of the log has step:add#0.*the code asks step:fetch#0") as caught:
            Play(changed, log=log)
        assert (caught.value.position, caught.value.recorded) == (0, "step:add#0")
        assert caught.value.asked == ("step:fetch#0",)

    def test_a_failed_attempt_or_a_question_that_was_not_asked_for_is_found(self) -> None:
        for kind, op in [(EntryKind.FAILED, "step:other#0"), (EntryKind.ASKED, "ask:#0")]:
            with pytest.raises(NonDeterminism, match=op):
                Play(two_steps, log=[Entry(n=0, kind=kind, op=op)])

    def test_rule_2_a_logged_one_that_is_never_asked_is_found_when_the_log_is_fed(self) -> None:
        replay = Play(two_steps).replay
        replay.finish_replay(["step:add#0"])
        with pytest.raises(NonDeterminism, match=r"the log has ask:#0, which the code never asked for; the code asks step:add#0"):
            replay.finish_replay(["step:add#0", "ask:#0"])
        with pytest.raises(NonDeterminism):
            replay.deliver(Entry(n=0, kind=EntryKind.STEP, op="step:add#0", value=1))

    def test_a_log_that_goes_on_after_the_end_of_the_code_is_found(self) -> None:
        @workflow(name="two_steps")
        async def shorter(ctx: WorkflowContext) -> int:
            return int(await ctx.step(add, 1, 2))

        log = Play(two_steps).done("step:add#0", 3).done("step:add#1", 7).log
        with pytest.raises(NonDeterminism, match="after the end of the code"):
            Play(shorter, log=log)

    def test_a_log_that_ends_where_the_code_goes_on_is_found(self) -> None:
        play = Play(two_steps).done("step:add#0", 3)
        with pytest.raises(NonDeterminism, match="entry 1 of the log has end, where the code goes on"):
            play.deliver(EntryKind.END)

    def test_an_end_that_the_code_comes_to_is_in_order(self) -> None:
        play = Play(two_steps).done("step:add#0", 3).done("step:add#1", 7).deliver(EntryKind.END, value=7)
        assert play.again().result == 7

    def test_nothing_is_completed_twice_or_by_another_kind(self) -> None:
        play = Play(two_steps).done("step:add#0", 3)
        with pytest.raises(NonDeterminism, match="which was completed before"):
            play.done("step:add#0", 3)
        with pytest.raises(NonDeterminism, match="which is completed by a timer"):
            Play(two_steps).deliver(EntryKind.TIMER, "step:add#0")

    def test_rule_10_an_entry_is_delivered_once(self) -> None:
        play = Play(two_steps).done("step:add#0", 3)
        assert play.replay.position == 1
        with pytest.raises(ValueError, match="was delivered before"):
            play.replay.deliver(replace(play.log[0]))


class TestDropped:
    @staticmethod
    def racing() -> Workflow:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            try:
                async with asyncio.timeout(1):
                    await ctx.step(fetch, "a")
            except TimeoutError:
                pass
            return str(await ctx.step(fetch, "b")) + f" at {ctx.now().second}"

        return body

    def test_what_the_body_cancelled_is_wanted_no_more(self) -> None:
        play = Play(self.racing()).fire().again()
        assert play.wanted == ["step:fetch#1"]

    def test_a_late_completion_moves_only_the_clock_live_and_replayed(self) -> None:
        play = Play(self.racing()).fire().done("step:fetch#0", "late", after_ms=2000).again()
        assert play.wanted == ["step:fetch#1"]
        assert play.done("step:fetch#1", "B").again().result == "B at 23"

    def test_a_future_that_the_body_completes_itself_takes_no_other_value(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            one = ctx.step(fetch, "a")
            one.set_result("mine")
            return [await one, await ctx.step(fetch, "b")]

        play = Play(body).done("step:fetch#0", "theirs").again().done("step:fetch#1", "B").again()
        assert play.result == ["mine", "B"]


class TestClock:
    def test_the_clock_is_the_logs_and_never_goes_back(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[float]:
            times = [ctx.now().timestamp()]
            for _ in range(2):
                await ctx.step(fetch, "a")
                times.append(ctx.now().timestamp())
            return [one * 1000 - START_MS for one in times]

        play = Play(body)
        play.done("step:fetch#0", after_ms=1500)
        play.done("step:fetch#1", after_ms=-700)
        assert play.result == [0, 1500, 1500]
        assert play.again().result == [0, 1500, 1500]
        assert play.replay.now == START_MS + 1500

    def test_after_a_sleep_its_time_is_over(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> float:
            before = ctx.now()
            await ctx.sleep(timedelta(days=3))
            return (ctx.now() - before).total_seconds()

        play = Play(body)
        play.deliver(EntryKind.TIMER, "timer:259200000#0")
        assert play.again().result == 259_200


class TestCancel:
    def test_a_cancel_reaches_the_body_and_closes_what_it_waited_for(self) -> None:
        play = Play(two_steps).cancel().again()
        assert isinstance(play.outcome, Raised)
        assert play.outcome.cancelled
        assert play.wanted == []

    def test_a_body_may_clean_up_with_durable_operations(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            try:
                await ctx.sleep(60)
            except asyncio.CancelledError:
                await ctx.step(fetch, "undo")
                return "undone"
            return "done"

        play = Play(body).cancel().again()
        assert play.wanted == ["step:fetch#0"]
        assert play.done("step:fetch#0").again().result == "undone"

    def test_a_body_that_swallows_its_cancellation_goes_on_the_same_in_each_replay(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[str]:
            said = []
            for _ in range(3):
                try:
                    said.append(str(await ctx.step(fetch, "a")))
                except asyncio.CancelledError:
                    said.append("no")
            return said

        play = Play(body).cancel().again().done("step:fetch#1", "A").again().cancel().again()
        assert play.result == ["no", "A", "no"]


class TestSignals:
    def test_signals_are_kept_in_order_until_somebody_waits(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            await ctx.step(fetch, "a")
            return [await ctx.wait_for("paid"), await ctx.wait_for("paid"), await ctx.wait_for("paid")]

        play = Play(body).signal("paid", 1).signal("other", 9).signal("paid", 2).again()
        play.done("step:fetch#0").again()
        assert play.wanted == ["signal:paid"]
        assert play.signal("paid", 3).again().result == [1, 2, 3]

    def test_waiters_of_one_hook_are_served_in_turn(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> Any:
            return await asyncio.gather(ctx.wait_for("h"), ctx.wait_for("h"))

        play = Play(body)
        assert play.wanted == ["signal:h"]
        play.signal("h", "first").again()
        assert play.wanted == ["signal:h"]
        assert play.signal("h", "second").again().result == ["first", "second"]
        assert play.wanted == []

    def test_a_hook_of_another_run_is_an_error_in_all_who_wait_and_may_be_asked_for_again(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            both = await asyncio.gather(ctx.wait_for("h"), ctx.wait_for("h"), return_exceptions=True)
            return [*(type(one).__name__ for one in both), await ctx.wait_for("h")]

        play = Play(body).fails("signal:h", "HookTaken").again()
        assert play.wanted == ["signal:h"]
        assert play.signal("h", 1).again().result == ["HookTaken", "HookTaken", 1]

    def test_a_hook_that_nobody_waits_for_can_not_have_been_refused(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.sleep(1)

        with pytest.raises(NonDeterminism, match="signal:h"):
            Play(body).fails("signal:h", "HookTaken")

    def test_a_waiter_that_gave_up_takes_nothing(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            try:
                async with asyncio.timeout(1):
                    await ctx.wait_for("h")
            except TimeoutError:
                await ctx.step(fetch, "a")
            return [await ctx.wait_for("h"), await ctx.wait_for("h")]

        play = Play(body).fire().again()
        assert play.wanted == ["step:fetch#0"]
        assert play.signal("h", 1).done("step:fetch#0").again().signal("h", 2).again().result == [1, 2]


class TestPatches:
    @staticmethod
    def versions() -> tuple[Workflow, Workflow]:
        @workflow(name="job")
        async def old(ctx: WorkflowContext) -> list[Any]:
            await ctx.step(fetch, "a")
            return [await ctx.step(fetch, "b"), await ctx.step(fetch, "c")]

        @workflow(name="job")
        async def new(ctx: WorkflowContext) -> list[Any]:
            await ctx.step(fetch, "a")
            found = [await ctx.step(add, 1, 2) if ctx.patched("sum") else await ctx.step(fetch, "b")]
            return [*found, await ctx.step(fetch, "c"), ctx.patched("sum")]

        return old, new

    def test_a_new_run_takes_the_new_way_and_remembers_it(self) -> None:
        _, new = self.versions()
        play = Play(new).done("step:fetch#0")
        assert play.log[0].marks == ("sum",)
        assert play.wanted == ["step:add#0"]
        play.again().done("step:add#0", 3).again().done("step:fetch#1", "C").again()
        assert play.result == [3, "C", True]
        assert [entry.marks for entry in play.log] == [("sum",), (), ()]

    def test_an_old_run_that_passed_the_place_keeps_the_old_way_for_good(self) -> None:
        old, new = self.versions()
        play = Play(new, log=Play(old).done("step:fetch#0").log)
        assert play.wanted == ["step:fetch#1"]
        play.done("step:fetch#1", "B").again().done("step:fetch#2", "C")
        assert play.result == ["B", "C", False]
        assert play.again().result == ["B", "C", False]
        assert all(not entry.marks for entry in play.log)

    def test_an_old_run_that_comes_to_the_place_later_takes_the_new_way(self) -> None:
        old, new = self.versions()
        play = Play(old)
        play.deliver(EntryKind.FAILED, "step:fetch#0")
        play = Play(new, log=play.log).done("step:fetch#0")
        assert play.again().wanted == ["step:add#0"]

    def test_a_patch_before_the_first_entry_is_in_that_entry(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> bool:
            first = ctx.patched("p")
            await ctx.step(fetch, "a")
            return first

        play = Play(body).done("step:fetch#0")
        assert play.log[0].marks == ("p",)
        assert play.again().result is True
        assert Play(body, log=[replace(play.log[0], marks=())]).result is False


class TestProgress:
    def test_progress_is_shown_once(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[bool]:
            said = [ctx.is_replaying]
            for n in range(3):
                ctx.progress({"page": n})
                await ctx.step(fetch, "a")
                said.append(ctx.is_replaying)
            return said

        play = Play(body).done("step:fetch#0").again().done("step:fetch#1").again()
        assert play.progress == [{"page": 0}, {"page": 1}, {"page": 2}]
        assert play.replay.take_progress() == ()
        assert play.done("step:fetch#2").result == [True, True, True, False]


class TestQuestions:
    def test_an_answer_comes_back_with_all_its_fields(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            answer = await ctx.ask("Deploy?", [Option("go", "Deploy")], expires=timedelta(days=3), by=["alice"])
            return [answer.option_id, answer.text, answer.by, answer.name, answer.expired, answer.cancelled]

        play = Play(body)
        question = play.replay.wanted[0].question
        assert question is not None
        assert (question.text, question.expires, question.by) == ("Deploy?", timedelta(days=3), ["alice"])
        play.deliver(EntryKind.ASKED).again().answer(option_id="go", by="slack:U1", name="Alice", note="extra").again()
        assert play.result == ["go", None, "slack:U1", "Alice", False, False]

    def test_a_webhook_has_a_token_and_is_waited_for(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> list[Any]:
            hook = await ctx.webhook()
            return [hook.token, hook.url, await ctx.wait_for(hook), [one async for one in first(hook)]]

        async def first(hook: Any) -> Any:
            async for one in hook:
                yield one
                return

        play = Play(body)
        assert play.replay.wanted[0].hook is not None
        name = play.replay.wanted[0].hook.name
        play.deliver(EntryKind.WEBHOOK, "webhook:#0", {"token": "t0", "url": None}).again()
        assert play.wanted == [f"signal:{name}"]
        play.signal(name, {"paid": True}).again().signal(name, 2).again()
        assert play.result == ["t0", None, {"paid": True}, [2]]


async def compute_plan(service: str) -> dict[str, str]:
    return {"service": service}


async def roll_out(plan: dict[str, str]) -> str:
    return f"{plan['service']} is out"


@workflow
async def deploy(ctx: WorkflowContext, service: str) -> str:
    plan = await ctx.step(compute_plan, service)
    answer = await ctx.ask(
        f"Deploy {service}?", options=[Option("go", "Deploy"), Option("stop", "Cancel")], expires=timedelta(days=3)
    )
    if answer.option_id != "go":
        return "not deployed" + (", nobody answered" if answer.expired else "")
    await ctx.sleep(timedelta(minutes=10))
    return await ctx.step(roll_out, plan)


class TestDeploy:
    """The example of the guide, dropped at every place."""

    def test_it_is_deployed_after_a_yes_and_ten_minutes(self) -> None:
        play = Play(deploy, "web").again().done("step:compute_plan#0", {"service": "web"}).again()
        assert play.wanted == ["ask:#0"]
        play.answer(option_id="go", by="alice").again()
        assert play.wanted == ["timer:600000#0"]
        play.fire().again()
        assert play.replay.wanted[0].args == ({"service": "web"},)
        assert play.done("step:roll_out#0", "web is out").again().result == "web is out"

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"option_id": "stop"}, "not deployed"),
            ({"expired": True}, "not deployed, nobody answered"),
            ({"cancelled": True}, "not deployed"),
        ],
    )
    def test_it_is_not_without_one(self, fields: dict[str, Any], said: str) -> None:
        play = Play(deploy, "web").done("step:compute_plan#0", {"service": "web"}).again().answer(**fields)
        assert play.again().result == said


def test_a_step_keeps_its_options() -> None:
    @step(name="charge", attempts=2, timeout=5)
    async def pay(amount: int) -> None: ...

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(pay, amount=3)

    (op,) = Play(body).replay.wanted
    assert op.id == "step:charge#0"
    assert op.kwargs == {"amount": 3}
    assert op.options is not None
    assert (op.options.attempts, op.options.timeout) == (2, timedelta(seconds=5))


def test_a_body_starts_once() -> None:
    replay = Replay(two_steps, run_id=RUN, started_at=START_MS)
    assert replay.outcome is None
    replay.start()
    with pytest.raises(RuntimeError, match="started already"):
        replay.start()
