"""Starting runs and hearing of them: keys, delays, results, status, events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.errors import CommitUnknown, Conflict, NotFound, RunFailed, Unavailable, Unstorable
from durable_core.model import Abilities, Admission, Claim, ClaimRequest, Committed, DueWork, Receipt, StepCommit
from durable_core.operations import Option
from durable_core.registry import UnknownWorkflow, WorkflowNameTaken, step, workflow
from durable_core.testing.builders import START_MS
from durable_core.worker import WorkerOptions
from tests.durable_core.engine.worlds import World, events_of, parked, result, until


async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(ctx: WorkflowContext, number: int, *, times: int = 1) -> int:
    for _ in range(times):
        number = await ctx.step(double, number)
    return number


@workflow
async def long(ctx: WorkflowContext) -> str:
    await asyncio.sleep(3600)
    return "rested"


@workflow
async def waits(ctx: WorkflowContext) -> Any:
    return await ctx.wait_for("go")


@workflow
async def empty(ctx: WorkflowContext) -> None:
    return None


@workflow
async def breaks(ctx: WorkflowContext) -> None:
    raise LookupError("no such order")


async def test_a_run_returns_what_its_body_returns(world: World) -> None:
    async with world.engine(doubled, empty) as engine:
        run = await engine.start(doubled, 3, times=3)
        assert await result(run) == 24
        assert await result(await engine.start(empty)) is None
        assert (await run.status()).status == "completed"
        types = [event.type for event in await events_of(run)]
        assert types == ["run.started", *["step.completed"] * 3, "run.completed"]
        assert [event.data["value"] for event in await events_of(run, "step.completed")] == [6, 12, 24]


async def test_an_error_of_the_body_fails_the_run(world: World) -> None:
    async with world.engine(breaks) as engine:
        run = await engine.start(breaks)
        with pytest.raises(RunFailed) as failed:
            await result(run)
        assert (failed.value.type_name, failed.value.message, failed.value.code) == ("LookupError", "no such order", "error")
        (last,) = await events_of(run, "run.failed")
        assert last.data["error"]["message"] == "no such order"
        submission = (await engine.store.rows("SELECT outcome FROM moor_admission", {}))[0][0]
        assert submission == "failed"


async def test_the_same_key_is_the_same_run(world: World) -> None:
    async with world.engine(doubled, long, work=False) as engine:
        first = await engine.start(doubled, 1, key="o-1")
        assert (await engine.start(doubled, 1, key="o-1")).run_id == first.run_id
        assert (await engine.start(doubled, 2, key="o-2")).run_id != first.run_id
        assert (await engine.start(long, key="o-1")).run_id != first.run_id
        with pytest.raises(Conflict):
            await engine.start(doubled, 2, key="o-1")


async def test_keyword_arguments_in_another_order_are_the_same(world: World) -> None:
    @workflow
    async def pair(ctx: WorkflowContext, *, a: int, b: int) -> int:
        return a - b

    async with world.engine(pair) as engine:
        first = await engine.start(pair, key="k", a=3, b=1)
        assert (await engine.start(pair, key="k", b=1, a=3)).run_id == first.run_id
        assert await result(first) == 2


async def test_what_can_not_be_called_is_refused_at_once(world: World) -> None:
    async with world.engine(doubled, work=False) as engine:
        with pytest.raises(UnknownWorkflow):
            await engine.start("tripled", 1)
        with pytest.raises(TypeError):
            await engine.start(doubled)
        with pytest.raises(Unstorable):
            await engine.start(doubled, object())
        assert await engine.runs() == []
    with pytest.raises(WorkflowNameTaken):
        async with world.engine(doubled, workflow(name="doubled")(long.fn)):
            pass


async def test_a_delayed_start_is_durable_and_never_early(world: World) -> None:
    async with world.engine(doubled, work=False) as engine:
        soon = await engine.start(doubled, 1, delay=timedelta(hours=1))
        then = await engine.start(doubled, 2, at=datetime.fromtimestamp(START_MS / 1000 + 3600, UTC))
        with pytest.raises(ValueError):
            await engine.start(doubled, 3, at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is refused
        assert [(await run.status()).status for run in (soon, then)] == ["waiting"] * 2
        assert {view.run_id for view in await engine.runs(status="waiting")} == {soon.run_id, then.run_id}
        assert await engine.runs(status="running") == []
    world.advance(seconds=3599)
    async with world.engine(doubled, work=False) as engine:
        assert await engine.run_due() == 0
        world.advance(seconds=1)
        assert [view.status for view in await engine.runs()] == ["running"] * 2
        assert (await engine.run(soon.run_id).status()).status == "running"
        assert await engine.run_due() == 2
        assert await result(engine.run(soon.run_id)) == 2
        assert await result(engine.run(then.run_id)) == 4


async def test_a_result_is_waited_for_in_another_process(disk: World) -> None:
    async with disk.engine(doubled, work=False) as here:
        run = await here.start(doubled, 4)
        waiting = asyncio.create_task(result(run))
        async with disk.engine(doubled):
            assert await waiting == 8


async def test_waiting_has_a_limit_and_knows_its_runs(world: World) -> None:
    async with world.engine(long) as engine:
        run = await engine.start(long)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.01)
        with pytest.raises(NotFound):
            await engine.run("run_none").result()


async def test_runs_are_listed_by_where_they_stand(world: World) -> None:
    async with world.engine(doubled, long, breaks) as engine:
        done = await engine.start(doubled, 1)
        await result(done)
        world.advance(seconds=1)
        waits = await engine.start(long)
        await parked(waits)
        world.advance(seconds=1)
        broken = await engine.start(breaks)
        with pytest.raises(RunFailed):
            await result(broken)
        assert [view.run_id for view in await engine.runs()] == [broken.run_id, waits.run_id, done.run_id]
        for status, run in (("completed", done), ("waiting", waits), ("failed", broken)):
            assert [view.run_id for view in await engine.runs(status=status)] == [run.run_id]
        assert [view.workflow for view in await engine.runs(workflow="long")] == ["long"]


async def test_events_are_read_from_the_tail_and_followed_to_the_end(world: World) -> None:
    async with world.engine(doubled) as engine:
        run = await engine.start(doubled, 1, times=6, delay=timedelta(seconds=5))
        seen: list[Any] = []

        async def follow() -> None:
            seen.extend([event.type async for event in run.events(follow=True)])

        following = asyncio.create_task(follow())
        world.advance(seconds=5)
        await result(run)
        await following
        assert len(seen) == 8
        tail = [event.type async for event in engine.events(run.run_id, start=-2)]
        assert tail == ["step.completed", "run.completed"]


async def test_time_stands_still_for_a_body_that_sleeps(world: World) -> None:
    times: list[datetime] = []

    @workflow
    async def clocked(ctx: WorkflowContext) -> float:
        before = ctx.now()
        await ctx.sleep(timedelta(days=3))
        return (ctx.now() - before).total_seconds()

    async with world.engine(clocked) as engine:
        run = await engine.start(clocked)
        await parked(run)
        assert not times
        world.advance(days=3, seconds=-1)
        await asyncio.sleep(0.05)
        assert (await run.status()).status == "waiting"
        world.advance(seconds=1)
        assert await result(run) == 3 * 24 * 3600


async def test_an_engine_that_is_closed_gives_back_what_it_had(disk: World) -> None:
    began: list[int] = []

    async def slow() -> int:
        began.append(1)
        if len(began) == 1:
            await asyncio.Event().wait()
        return len(began)

    @workflow
    async def waits(ctx: WorkflowContext) -> int:
        return await ctx.step(step(slow, name="slow"))

    async with disk.engine(waits) as engine:
        run = await engine.start(waits)
        await until(lambda: began)
        await engine.close(0)
    async with disk.engine(waits) as engine:
        assert await result(engine.run(run.run_id)) == 2
        charged = await engine.store.rows("SELECT crashes FROM moor_run", {})
        assert charged == [(0,)]


async def test_who_waits_for_a_result_learns_that_the_engine_is_closed(world: World) -> None:
    async with world.engine(long) as engine:
        run = await engine.start(long)
        await parked(run)
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.01)
    with pytest.raises(RuntimeError, match="not running"):
        await waiting


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
async def test_names_that_no_database_keeps_are_refused(world: World, name: str) -> None:
    @workflow
    async def names(ctx: WorkflowContext, what: str) -> Any:
        text = chr(0) if name[1:] else name
        match what:
            case "step":
                return await ctx.step(step(lambda: 1, name=text))
            case "ask":
                return await ctx.ask("?", [Option("a", "A")], name=text)
            case "webhook":
                return await ctx.webhook(text)
            case "child":
                return await ctx.child(empty, key=text)
        return await ctx.wait_for(text)

    async with world.engine(names, empty) as engine:
        for what in ("step", "ask", "webhook", "child", "hook"):
            with pytest.raises(RunFailed, match="Unstorable"):
                await result(await engine.start(names, what))
        run = await engine.start(names, "step")
        for refused in (
            engine.start(empty, key=name),
            engine.start(empty, started_by=name),
            engine.signal(name, 1),
            run.signal("news", 1, key=name),
            run.signal("news", 1, by=name),
            engine.cancel(name),
            run.cancel(by=name),
            engine.answer(name, option_id="a"),
        ):
            with pytest.raises(Unstorable):
                await refused


async def test_what_a_body_shows_before_it_ends_at_once_is_shown(world: World) -> None:
    @workflow
    async def shows(ctx: WorkflowContext) -> int:
        ctx.progress({"half": True})
        return 1

    async with world.engine(shows) as engine:
        run = await engine.start(shows)
        assert await result(run) == 1
        assert [event.data["value"] for event in await events_of(run, "progress")] == [{"half": True}]


# ── begun where they are started ──


def begun_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Claim | None]:
    """Watch what starts take along."""
    begin, found = engine.store.begin, list[Claim | None]()

    async def watched(admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
        receipt, claim = await begin(admission, request)
        found.append(claim)
        return receipt, claim

    monkeypatch.setattr(engine.store, "begin", watched)
    return found


async def test_a_start_is_taken_where_it_comes_in_while_half_of_the_places_are_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, began = asyncio.Event(), list[int]()

    @step(name="pass")
    async def through(number: int) -> int:
        began.append(number)
        await gate.wait()
        return number

    @workflow
    async def gated(ctx: WorkflowContext, number: int) -> int:
        return await ctx.step(through, number)

    async with world.engine(gated, options=WorkerOptions(concurrency=2, poll=0.02, settle=0.001)) as engine:
        begun = begun_of(engine, monkeypatch)
        first, second, third = [await engine.start(gated, n) for n in range(3)]
        assert [claim.run_id for claim in begun if claim is not None] == [first.run_id]
        await until(lambda: sorted(began) == [0, 1])
        gate.set()
        assert [await result(run) for run in (first, second, third)] == [0, 1, 2]
        assert len(begun) == 1


async def test_nothing_begins_beside_a_run_that_is_taken_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()
    store = await world.open_store()
    claim, due = store.claim, store.due

    async def something(owner: str, abilities: Abilities) -> DueWork:
        found = await due(owner, abilities)
        return found if asked.is_set() else replace(found, run_at=found.now)  # due, and not for one who takes others beside it

    async def slow(request: ClaimRequest) -> list[Claim]:
        if request.alone:
            asked.set()
            await answered.wait()
        return await claim(request)

    monkeypatch.setattr(store, "due", something)
    monkeypatch.setattr(store, "claim", slow)
    async with world.engine(doubled, store=store) as engine:
        begun = begun_of(engine, monkeypatch)
        await asked.wait()
        run = await engine.start(doubled, 3)
        assert begun == []
        answered.set()
        assert await result(run) == 6


async def test_a_run_that_may_have_been_taken_waits_for_no_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.engine(doubled) as engine:
        begin = engine.store.begin

        async def lost(admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
            await begin(admission, request)
            raise CommitUnknown("the answer was lost")

        monkeypatch.setattr(engine.store, "begin", lost)
        with pytest.raises(CommitUnknown):
            await engine.start(doubled, 3, key="k")
        monkeypatch.setattr(engine.store, "begin", begin)
        run = await engine.start(doubled, 3, key="k")
        assert await result(run) == 6
        (view,) = await engine.runs()
        assert view.run_id == run.run_id


@pytest.mark.parametrize("by_hook", [True, False])
async def test_a_signalled_run_that_may_have_been_taken_waits_for_no_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, by_hook: bool
) -> None:
    async with world.engine(waits) as engine:
        run = await engine.start(waits)
        await parked(run)
        begin = engine.store.begin

        async def lost(admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
            _, claim = await begin(admission, request)
            assert claim is not None, "a signal takes the run that it wakes"
            raise CommitUnknown("the answer was lost")

        monkeypatch.setattr(engine.store, "begin", lost)
        with pytest.raises(CommitUnknown):
            await (engine.signal("go", 1, key="k") if by_hook else run.signal("go", 1, key="k"))
        assert await result(run) == 1


async def test_a_run_that_may_have_been_taken_is_given_back_once_the_database_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.engine(waits, options=WorkerOptions(poll=0.05)) as engine:
        run = await engine.start(waits)
        await parked(run)
        begin, rows, release = engine.store.begin, engine.store.rows, engine.store.release
        away = 0

        async def lost(admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
            nonlocal away
            _, claim = await begin(admission, request)
            assert claim is not None
            away = 2
            raise CommitUnknown("the answer was lost")

        def failing(call: Any) -> Any:
            async def fail(*args: Any, **options: Any) -> Any:
                nonlocal away
                if away:
                    away -= 1
                    raise Unavailable("the database is away")
                return await call(*args, **options)

            return fail

        monkeypatch.setattr(engine.store, "begin", lost)
        monkeypatch.setattr(engine.store, "rows", failing(rows))
        monkeypatch.setattr(engine.store, "release", failing(release))
        with pytest.raises(CommitUnknown):
            await run.signal("go", 1, key="k")
        assert await result(run) == 1


async def test_a_start_whose_caller_is_gone_is_advanced_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.engine(doubled) as engine:
        begun = begun_of(engine, monkeypatch)
        starting = asyncio.create_task(engine.start(doubled, 3))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: begun)
        assert begun[0] is not None
        assert await result(engine.run(begun[0].run_id)) == 6


async def test_a_start_that_comes_in_while_the_engine_closes_is_left_to_the_next_one(world: World) -> None:
    async with world.engine(doubled) as engine:
        starting = [asyncio.create_task(engine.start(doubled, n)) for n in range(5)]
        await asyncio.sleep(0)
    ids = [(await one).run_id for one in starting]
    async with world.engine(doubled) as engine:
        assert [await result(engine.run(run_id)) for run_id in ids] == [0, 2, 4, 6, 8]
        assert [(await engine.run(run_id).status()).status for run_id in ids] == ["completed"] * 5


async def test_a_run_ends_in_the_commit_of_its_last_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.engine(doubled) as engine:
        commit, seen = engine.store.commit, list[StepCommit]()

        async def watched(one: StepCommit) -> Committed:
            seen.append(one)
            return await commit(one)

        monkeypatch.setattr(engine.store, "commit", watched)
        run = await engine.start(doubled, 3, times=2)
        assert await result(run) == 12
        assert [(one.step.kind, one.end) for one in seen] == [("step", None), ("end", "completed")]
        assert [step.kind for step in await engine.store.steps(run.run_id)] == ["step", "step", "end"]
