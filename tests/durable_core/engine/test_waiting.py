"""Waiting: signals before and after, questions and their ends, timers in their order, webhooks, races between them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.errors import Conflict, NotFound, PromptTaken, RunFailed, SessionEnded
from durable_core.failures import HookTaken
from durable_core.model import AnswerStatus
from durable_core.operations import Hook, Option
from durable_core.registry import step, workflow
from tests.durable_core.engine.breaking import Failing
from tests.durable_core.engine.worlds import World, events_of, parked, result, until

TILL = "payment:till"
GO = [Option("go", "Go"), Option("stop", "Stop")]


@workflow
async def pays(ctx: WorkflowContext, order: str) -> Any:
    return await ctx.wait_for(f"payment:{order}")


async def test_a_signal_by_its_hook_reaches_who_waits_there(world: World) -> None:
    async with world.engine(pays) as engine:
        with pytest.raises(NotFound, match="hook"):
            await engine.signal("payment:o-1", {"paid": 1})
        run = await engine.start(pays, "o-1")
        await parked(run)
        assert await engine.signal("payment:o-1", {"paid": 2}, key="evt_1") == run.run_id
        assert await result(run) == {"paid": 2}
        assert await engine.signal("payment:o-1", {"paid": 2}, key="evt_1") == run.run_id
        with pytest.raises(Conflict):
            await engine.signal("payment:o-1", {"paid": 3}, key="evt_1")
        with pytest.raises(NotFound):
            await engine.signal("payment:o-1", {"paid": 2})
        with pytest.raises(SessionEnded):
            await run.signal("payment:o-1")
        (event,) = await events_of(run, "signal.received")
        assert event.data["value"] == {"paid": 2}


async def test_signals_that_came_before_are_kept_in_order(world: World) -> None:
    @workflow
    async def collects(ctx: WorkflowContext) -> list[Any]:
        await ctx.sleep(60)
        found = [await ctx.wait_for("a"), await ctx.wait_for("b")]
        async for payload in Hook("a"):
            found.append(payload)
            if payload == "last":
                break
        return found

    async with world.engine(collects) as engine:
        run = await engine.start(collects)
        await parked(run)
        for name, value in (("a", 1), ("a", 2), ("b", 3), ("a", "last")):
            await run.signal(name, value)
        await parked(run)
    async with world.engine(collects) as engine:
        world.advance(seconds=60)
        assert await result(engine.run(run.run_id)) == [1, 3, 2, "last"]


async def test_a_hook_belongs_to_one_open_run(world: World) -> None:
    async with world.engine(pays) as engine:
        first = await engine.start(pays, "o-1")
        await parked(first)
        with pytest.raises(RunFailed, match="payment:o-1") as failed:
            await result(await engine.start(pays, "o-1"))
        assert failed.value.code == "hook_taken"
        await engine.signal("payment:o-1", "mine")
        assert await result(first) == "mine"
        again = await engine.start(pays, "o-1")
        await parked(again)
        await engine.signal("payment:o-1", "next")
        assert await result(again) == "next"


async def test_a_body_is_told_that_a_hook_is_taken_the_same_live_and_replayed(world: World) -> None:
    @workflow
    async def patient(ctx: WorkflowContext, before: bool) -> list[Any]:
        told: list[Any] = [await ctx.step(step(lambda: 1, name="one"))] if before else []
        for _ in range(3):
            waiting = [asyncio.ensure_future(ctx.wait_for("payment:till")) for _ in range(2)]
            done = await asyncio.gather(*waiting, return_exceptions=True)
            told += [one.hook if isinstance(one, HookTaken) else one for one in done]
            await ctx.sleep(60)
        return told

    async with world.engine(patient, pays, work=False) as engine:
        owner = await engine.start(pays, "till")
        await engine.run_due()
        runs = [await engine.start(patient, before) for before in (False, True)]
        await engine.run_due()
    for _ in range(2):
        async with world.engine(patient, pays, work=False) as engine:  # a cold body each time
            world.advance(seconds=60)
            await engine.run_due()
    async with world.engine(patient, pays, work=False) as engine:
        await engine.signal("payment:till", "paid")
        await engine.run_due()
        assert await result(engine.run(owner.run_id)) == "paid"
        world.advance(seconds=60)
        await engine.run_due()
        assert await result(engine.run(runs[0].run_id)) == [TILL] * 6
        assert await result(engine.run(runs[1].run_id)) == [1, *[TILL] * 6]


async def test_a_hook_that_was_taken_is_asked_for_again(world: World) -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        told: list[Any] = []
        while len(told) < 3:
            try:
                told.append(await ctx.wait_for("payment:till"))
            except HookTaken as taken:
                told.append(taken.hook)
                await ctx.sleep(60)
        return told

    async with world.engine(patient, pays, work=False) as engine:
        owner = await engine.start(pays, "till")
        await engine.run_due()
        run = await engine.start(patient)
        await engine.run_due()
        await engine.signal("payment:till", "first")
        await engine.run_due()
        assert await result(owner) == "first"
        world.advance(seconds=60)
        await engine.run_due()
        assert len(await events_of(run, "signal.awaited")) == 1
        for value in ("second", "third"):
            assert await engine.signal("payment:till", value) == run.run_id
        await engine.run_due()
        assert await result(run) == [TILL, "second", "third"]


@workflow
async def asks(ctx: WorkflowContext, by: Any = None) -> list[Any]:
    answer = await ctx.ask("Deploy?", GO, allow_freeform=True, expires=timedelta(days=3), by=by)
    return [answer.option_id, answer.text, answer.by, answer.expired]


async def test_a_question_is_answered_once(world: World) -> None:
    async with world.engine(asks) as engine:
        run = await engine.start(asks)
        await parked(run)
        (asked,) = await engine.prompts(run.run_id)
        assert asked.body["text"] == "Deploy?"
        for wrong in ({"option_id": "never"}, {}):
            with pytest.raises(ValueError):
                await engine.answer(asked.prompt_id, **wrong)
        receipt = await engine.answer(asked.prompt_id, option_id="go", text="fine", by="alice")
        assert receipt.status is AnswerStatus.SETTLED
        assert await result(run) == ["go", "fine", "alice", False]
        late = await engine.answer(asked.prompt_id, option_id="stop", by="bob")
        assert late.status is not AnswerStatus.SETTLED
        (requested,) = await events_of(run, "input.requested")
        assert requested.data["request"]["options"][0]["label"] == "Go"
        (resolved,) = await events_of(run, "input.resolved")
        assert (resolved.data["outcome"], resolved.data["by"]) == ("answered", "alice")
        assert await engine.prompts(run.run_id) == []


async def test_a_question_may_name_who_answers(world: World) -> None:
    async with world.engine(asks) as engine:
        run = await engine.start(asks, ["alice", "carol"], started_by="dave")
        await parked(run)
        (asked,) = await run.prompts()
        refused = await engine.answer(asked.prompt_id, option_id="go", by="bob")
        assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "not_yours")
        await engine.answer(asked.prompt_id, option_id="stop", by="carol")
        assert await result(run) == ["stop", None, "carol", False]
        for by, named in (("alice", True), ({"group": "finance"}, False)):
            other = await engine.start(asks, by)
            await parked(other)
            (asked,) = await other.prompts()
            receipt = await engine.answer(asked.prompt_id, option_id="go", by="alice")
            assert (receipt.status is AnswerStatus.SETTLED) is named


async def test_a_question_expires_and_no_answer_comes_after(world: World) -> None:
    async with world.engine(asks) as engine:
        run = await engine.start(asks)
        await parked(run)
        (asked,) = await run.prompts()
        world.advance(days=3)
        late = await engine.answer(asked.prompt_id, option_id="go", by="alice")
        assert late.status is not AnswerStatus.SETTLED
        assert await result(run) == [None, None, None, True]
        assert (await events_of(run, "input.resolved"))[0].data["outcome"] == "expired"


async def test_a_question_that_was_answered_behind_its_worker_is_looked_at_anew(world: World) -> None:
    """Its worker says that it expired; the commit says that somebody was faster; the body is built anew."""
    store = await world.open_store()
    async with world.engine(asks, store=store, work=False) as engine:
        run = await engine.start(asks)
        await engine.run_due()
        (asked,) = await run.prompts()
    failing = Failing(store, "commit", PromptTaken(asked.prompt_id))
    async with world.engine(asks, store=failing.as_store, work=False) as engine:
        world.advance(days=3)
        await engine.run_due()
        assert failing.raised
        assert await result(engine.run(run.run_id)) == [None, None, None, True]


async def test_an_answer_just_before_the_end_counts(world: World) -> None:
    async with world.engine(asks, work=False) as engine:
        run = await engine.start(asks)
        await engine.run_due()
        (asked,) = await run.prompts()
        world.advance(days=3, seconds=-1)
        await engine.answer(asked.prompt_id, option_id="go", by="alice")
        world.advance(seconds=1)
        await engine.run_due()
        assert await result(run) == ["go", None, "alice", False]


async def test_a_question_that_lost_its_race_is_withdrawn(world: World) -> None:
    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(60):
                return str((await ctx.ask("Quick?", GO)).option_id)
        except TimeoutError:
            await ctx.sleep(60)
            return "too slow"

    async with world.engine(impatient) as engine:
        run = await engine.start(impatient)
        await parked(run)
        (asked,) = await run.prompts()
        world.advance(seconds=60)
        await until(lambda: withdrawn(engine, run.run_id))
        late = await engine.answer(asked.prompt_id, option_id="go", by="alice")
        assert late.status is AnswerStatus.ALREADY_SETTLED
        world.advance(seconds=60)
        assert await result(run) == "too slow"


async def withdrawn(engine: Any, run_id: str) -> bool:
    return not await engine.prompts(run_id)


async def test_an_answer_to_a_question_that_is_being_withdrawn_changes_nothing(world: World) -> None:
    @workflow
    async def races(ctx: WorkflowContext) -> str:
        ask = asyncio.ensure_future(ctx.ask("Quick?", GO))
        signal = asyncio.ensure_future(ctx.wait_for("now"))
        done, rest = await asyncio.wait([ask, signal], return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await ctx.sleep(5)
        return "asked" if ask in done else "told"

    async with world.engine(races, work=False) as engine:
        run = await engine.start(races)
        await engine.run_due()
        (asked,) = await run.prompts()
        await run.signal("now", 1)
        await engine.answer(asked.prompt_id, option_id="go", by="alice")
        await engine.run_due()
        world.advance(seconds=5)
        await engine.run_due()
        assert await result(run) == "told"
        outcomes = await engine.store.rows("SELECT count(*) FROM moor_command WHERE taken_step IS NULL", {})
        assert outcomes == [(0,)]


async def test_timers_fire_in_their_order_and_each_once(world: World) -> None:
    @workflow
    async def clocks(ctx: WorkflowContext) -> list[Any]:
        order: list[Any] = []

        async def wake(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append([name, int(ctx.now().timestamp() - began)])

        began = ctx.now().timestamp()
        await asyncio.gather(wake("c", 3), wake("a", 1), wake("b", 2), wake("z", 0))
        return order

    async with world.engine(clocks) as engine:
        run = await engine.start(clocks)
        await parked(run)
        world.advance(seconds=10)
        assert [name for name, _ in await result(run)] == ["z", "a", "b", "c"]
        assert len(await events_of(run, "timer.fired")) == 3


async def test_a_timer_fires_while_a_step_runs(world: World) -> None:
    began, let_go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await let_go.wait()
        return "slow"

    seen: list[str] = []

    @workflow
    async def both(ctx: WorkflowContext) -> list[str]:
        async def ring() -> str:
            await asyncio.sleep(30)
            seen.append("ring")
            return "ring"

        return list(await asyncio.gather(ctx.step(step(slow, name="slow")), ring()))

    async with world.engine(both) as engine:
        run = await engine.start(both)
        await began.wait()
        world.advance(seconds=30)
        await until(lambda: seen)
        let_go.set()
        assert await result(run) == ["slow", "ring"]


async def test_a_webhook_has_one_secret_address_of_its_own(world: World) -> None:
    @workflow
    async def calls_back(ctx: WorkflowContext) -> list[Any]:
        hook = await ctx.webhook("paid")
        other = await ctx.webhook("shipped")
        await ctx.step(publish, hook.token, hook.url, other.token)
        return [await ctx.wait_for(other), await ctx.wait_for(hook)]

    public: list[Any] = []

    publish = step(lambda *args: public.append(args), name="publish")
    async with world.engine(calls_back, public_url="https://x.example/") as engine:
        run = await engine.start(calls_back)
        await parked(run)
        ((token, url, other),) = public
        assert url == f"https://x.example/hooks/{token}"
        assert len(token) >= 32
        assert token != other
    async with world.engine(calls_back) as engine:
        assert await engine.signal(token, "paid") == run.run_id
        assert await engine.signal(other, "shipped") == run.run_id
        assert await result(engine.run(run.run_id)) == ["shipped", "paid"]
        assert all(token not in str(event.data) for event in await events_of(engine.run(run.run_id), "webhook.opened"))


async def test_progress_is_shown_once(world: World) -> None:
    @workflow
    async def shows(ctx: WorkflowContext) -> None:
        ctx.progress({"at": 1})
        await ctx.sleep(1)
        ctx.progress({"at": 2})
        await ctx.sleep(1)
        ctx.progress({"at": 3})

    async with world.engine(shows) as engine:
        run = await engine.start(shows)
        await parked(run)
    for _ in range(2):
        world.advance(seconds=1)
        async with world.engine(shows, work=False) as engine:
            await engine.run_due()
    async with world.engine(shows) as engine:
        await result(engine.run(run.run_id))
        shown = [event.data["value"]["at"] for event in await events_of(engine.run(run.run_id), "progress")]
        assert shown == [1, 2, 3]
