"""Who advances runs: warm and cold, until idle, beside others, in other processes, frozen and thawed; and what can't go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_core import codec, versions
from durable_core.context import WorkflowContext
from durable_core.engine.engine import Engine
from durable_core.errors import NoKeys, RunCancelled, RunFailed, SchemaOutdated, Stranded
from durable_core.registry import step, workflow
from durable_core.schema import memory_script
from tests.durable_core.engine.worlds import FAST, World, events_of, result, until

ran: list[str] = []


async def mark(name: str) -> str:
    ran.append(name)
    return name


@workflow
async def naps(ctx: WorkflowContext, times: int) -> list[str]:
    done = []
    for number in range(times):
        done.append(await ctx.step(mark, f"{ctx.run_id}:{number}"))
        await ctx.sleep(60)
    return done


# ── warm and cold ──


async def test_a_warm_body_goes_on_and_a_cold_one_is_replayed(world: World) -> None:
    bodies: list[bool] = []

    @workflow
    async def counted(ctx: WorkflowContext) -> int:
        bodies.append(ctx.is_replaying)
        for _ in range(3):
            await ctx.step(mark, "x")
            await ctx.sleep(60)
        return len(bodies)

    async with world.engine(counted, work=False) as engine:
        run = await engine.start(counted)
        await engine.run_due()
        world.advance(seconds=60)
        await engine.run_due()
        assert bodies == [False]
        async with world.engine(counted, work=False) as other:
            world.advance(seconds=60)
            await other.run_due()
        assert bodies == [False, True]
        world.advance(seconds=60)
        await engine.run_due()
        assert bodies == [False, True, True]
        assert await result(run) == 3


async def test_runs_beyond_the_cache_are_replayed(world: World) -> None:
    ran.clear()
    async with world.engine(naps, work=False) as engine:
        assert engine._runner is not None
        engine._runner.warm._limit = 2
        runs = [await engine.start(naps, 2) for _ in range(6)]
        await engine.run_due()
        for _ in range(2):
            world.advance(seconds=60)
            await engine.run_due()
        for run in runs:
            assert await result(run) == [f"{run.run_id}:0", f"{run.run_id}:1"]
    assert len(ran) == len(set(ran)) == 12


# ── until idle ──


async def test_run_due_is_limited_and_says_how_much(world: World) -> None:
    engine = Engine(await world.open_store(), workflows=[naps], clock=world.clock, options=FAST, work=False)
    async with engine:
        for _ in range(5):
            await engine.start(naps, 1)
    assert await engine.run_due(limit=2) == 2
    assert await engine.run_due() == 3
    assert await engine.run_due() == 0
    world.advance(seconds=60)
    assert await engine.run_due(until_idle=False) == 5
    async with engine:
        assert {view.status for view in await engine.runs()} == {"completed"}
    engine.works = True
    with pytest.raises(RuntimeError):
        await engine.run_due()


async def test_run_due_beside_a_worker_does_nothing_twice(disk: World) -> None:
    ran.clear()
    async with disk.engine(naps) as working, disk.engine(naps, work=False) as beside, disk.engine(naps, work=False) as third:
        runs = [await working.start(naps, 3) for _ in range(20)]
        open_ = {run.run_id for run in runs}
        async with asyncio.timeout(60):
            while open_:
                await asyncio.gather(beside.run_due(), third.run_due(limit=3))
                disk.advance(seconds=20)
                open_ = {view.run_id for view in await working.runs() if view.ended_at is None}
        for run in runs:
            assert await result(run) == [f"{run.run_id}:{number}" for number in range(3)]
    assert len(ran) == len(set(ran)) == 60


# ── code that can't go on ──


async def test_a_run_whose_code_changed_is_set_aside_for_other_code(world: World) -> None:
    @workflow(name="order")
    async def first(ctx: WorkflowContext) -> str:
        await ctx.step(mark, "first")
        await ctx.sleep(60)
        return "first"

    @workflow(name="order")
    async def changed(ctx: WorkflowContext) -> str:
        await ctx.step(step(mark, name="another"), "second")
        await ctx.sleep(60)
        return "second"

    async with world.engine(first, work=False) as engine:
        run = await engine.start(first)
        await engine.run_due()
    world.advance(seconds=60)
    async with world.engine(changed, work=False) as engine:
        await engine.run_due()
        view = await engine.run(run.run_id).status()
        assert view.status == "stranded"
        assert "step:mark#0" in str(view.reason)
        said = [event for event in await engine.store.events(run.run_id, hidden=True) if event.type == "run.stranded"]
        assert [codec.decode(event.body) for event in said] == [{"reason": view.reason, "n": 1}]
        assert await engine.run_due() == 0
        assert [one.run_id for one in await engine.runs(status="stranded")] == [run.run_id]
        await engine.store.unstrand(run.run_id)
    async with world.engine(first) as engine:
        assert await result(engine.run(run.run_id)) == "first"


async def test_a_cancel_ends_a_run_that_is_set_aside(world: World) -> None:
    @workflow(name="order")
    async def first(ctx: WorkflowContext) -> None:
        await ctx.step(mark, "first")
        await ctx.sleep(60)

    @workflow(name="order")
    async def changed(ctx: WorkflowContext) -> None:
        await ctx.step(step(mark, name="another"), "second")

    async with world.engine(first, work=False) as engine:
        run = await engine.start(first)
        await engine.run_due()
    world.advance(seconds=60)
    async with world.engine(changed, work=False) as engine:
        await engine.run_due()
        assert (await engine.run(run.run_id).status()).status == "stranded"
        assert await engine.cancel(run.run_id)
        await engine.run_due()
        assert (await engine.run(run.run_id).status()).status == "cancelled"
        with pytest.raises(RunCancelled):
            await result(engine.run(run.run_id))


async def test_what_only_run_due_works_on_is_deleted_in_time_too(world: World) -> None:
    async with world.engine(naps, work=False, keep=timedelta(minutes=5)) as engine:
        run = await engine.start(naps, 0)
        await engine.run_due()
        world.advance(minutes=5)
        await engine.run_due()
        assert (await engine.store.run(run.run_id)).purged_at is not None


async def test_what_a_newer_version_wrote_waits_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def waits(ctx: WorkflowContext) -> Any:
        return await ctx.wait_for("news")

    present, newer = versions.CURRENT_SPEC, versions.CURRENT_SPEC + 1
    async with world.engine(waits, work=False) as engine:
        run = await engine.start(waits)
        await engine.run_due()
        monkeypatch.setattr(versions, "CURRENT_SPEC", newer)
        await run.signal("news", {"n": 1})
        monkeypatch.setattr(versions, "CURRENT_SPEC", present)
        await engine.run_due()
        view = await run.status()
        assert (view.status, view.ended_at) == ("stranded", None)
        assert f"format {newer}" in str(view.reason)
        monkeypatch.setattr(versions, "CURRENT_SPEC", newer)
        await engine.store.unstrand(run.run_id)
        await engine.run_due()
        assert await result(run) == {"n": 1}
        monkeypatch.setattr(versions, "CURRENT_SPEC", present)
        with pytest.raises(Stranded):
            await result(run)


@pytest.mark.parametrize(("what", "code"), [("io", "not_durable"), ("block", "body_blocked"), ("child", "not_durable")])
async def test_a_body_that_can_not_be_replayed_fails_its_run(world: World, what: str, code: str) -> None:
    import time

    outer = asyncio.get_running_loop().create_future()

    @workflow
    async def bad(ctx: WorkflowContext) -> None:
        await ctx.step(mark, "before")
        if what == "io":
            await asyncio.open_connection("localhost", 1)
        elif what == "block":
            time.sleep(2.2)  # noqa: ASYNC251 - what is to be noticed
        else:
            await outer

    async with world.engine(bad) as engine:
        run = await engine.start(bad)
        with pytest.raises(RunFailed, match=r"ctx\.step") as failed:
            await result(run)
        assert failed.value.code == code
        outer.cancel()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
async def test_a_body_that_raises_an_exit_fails_its_run_and_the_worker_goes_on(world: World, error: BaseException) -> None:
    @workflow
    async def leaves(ctx: WorkflowContext) -> None:
        await ctx.step(mark, "before")
        raise error

    async with world.engine(leaves, naps) as engine:
        run = await engine.start(leaves)
        with pytest.raises(RunFailed, match="a workflow ends by returning or raising") as failed:
            await result(run)
        assert failed.value.code == "error"
        assert await result(await engine.start(naps, 0)) == []


# ── opening ──


async def test_an_engine_makes_its_file_and_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORINGS_ENCRYPTION_KEYS", raising=False)
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    async with Engine(url, workflows=[naps]) as engine:
        run = await engine.start(naps, 0)
        assert await result(run) == []
    key = tmp_path / "orders.db.key"
    assert key.stat().st_mode & 0o777 == 0o600
    async with Engine(url, workflows=[naps], work=False) as engine:
        assert await result(engine.run(run.run_id)) == []
    async with Engine("sqlite:///:memory:", workflows=[naps]) as engine:
        assert await result(await engine.start(naps, 0)) == []
    with pytest.raises(SchemaOutdated):
        async with Engine(f"sqlite:///{tmp_path / 'other.db'}", workflows=[], migrate=False):
            pass
    with pytest.raises(NoKeys):
        async with Engine("postgresql://nobody@localhost/none", workflows=[]):
            pass
    assert memory_script()


async def test_engines_that_start_at_once_share_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORINGS_ENCRYPTION_KEYS", raising=False)
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    engines = [Engine(url, workflows=[naps], work=False) for _ in range(4)]
    await asyncio.gather(*(engine.__aenter__() for engine in engines))
    run = await engines[0].start(naps, 0)
    await engines[1].run_due()
    assert await result(engines[2].run(run.run_id)) == []
    for engine in engines:
        await engine.close()


# ── other processes ──


APP = """
import asyncio, os, time
from datetime import timedelta
from durable_core import Engine, WorkerOptions, step, workflow

def note(text):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{os.getpid()} {text}\\n")
    return text

async def slow(text):
    note(text)
    await asyncio.sleep(float(os.environ.get("SLOW", "0")))
    note(f"{text} ended")
    return text

@workflow
async def job(ctx, name):
    first = await ctx.step(note, f"{name} one")
    return [first, await ctx.step(slow, f"{name} two"), await ctx.step(note, f"{name} three")]

engine = Engine(f"sqlite:///{os.environ['DB']}", workflows=[job], options=WorkerOptions(lease=1.0, poll=0.05))
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "app.py").write_text(APP)
    root = str(Path(__file__).resolve().parents[3])
    own = {"PYTHONPATH": root, "DB": str(folder / "app.db"), "NOTES": str(folder / "notes"), **more}
    return {**{name: value for name, value in os.environ.items() if not name.startswith("MOORINGS_")}, **own}


async def start_work(folder: Path, *arguments: str, **more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bot",
        "work",
        "app:engine",
        *arguments,
        cwd=folder,
        env=environment(folder, **more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def notes(folder: Path) -> list[str]:
    file = folder / "notes"
    return [line.partition(" ")[2] for line in file.read_text().splitlines()] if file.exists() else []


@workflow
async def job(ctx: WorkflowContext, name: str) -> Any:
    raise NotImplementedError


def outside(folder: Path) -> Engine:
    return Engine(f"sqlite:///{folder / 'app.db'}", workflows=[job], work=False)


async def test_moorings_work_until_idle_leaves_when_nothing_is_due(tmp_path: Path) -> None:
    async with outside(tmp_path) as engine:
        runs = [await engine.start(job, name) for name in ("a", "b")]
        later = await engine.start(job, "later", delay=timedelta(hours=1))
        process = await start_work(tmp_path, "--until-idle")
        said, errors = await process.communicate()
        assert process.returncode == 0, errors
        assert said.decode().strip() == "Advanced 2 runs."
        assert await result(runs[0]) == ["a one", "a two", "a three"]
        assert (await later.status()).status == "waiting"
    process = await start_work(tmp_path, "--limit", "3")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"--until-idle" in errors


async def test_a_killed_process_repeats_no_recorded_step(tmp_path: Path) -> None:
    async with outside(tmp_path) as engine:
        run = await engine.start(job, "k")
        first = await start_work(tmp_path, SLOW="60")
        await until(lambda: "k two" in notes(tmp_path))
        first.kill()
        await first.communicate()
        second = await start_work(tmp_path)
        assert await result(run) == ["k one", "k two", "k three"]
        second.send_signal(signal.SIGTERM)
        await second.communicate()
        assert second.returncode == 0
    assert notes(tmp_path) == ["k one", "k two", "k two", "k two ended", "k three"]


async def test_a_frozen_worker_changes_nothing_when_it_thaws(tmp_path: Path) -> None:
    async with outside(tmp_path) as engine:
        run = await engine.start(job, "f")
        frozen = await start_work(tmp_path, SLOW="0.5")
        await until(lambda: "f two" in notes(tmp_path))
        frozen.send_signal(signal.SIGSTOP)
        other = await start_work(tmp_path)
        assert await result(run) == ["f one", "f two", "f three"]
        before = [event.id for event in await events_of(run)]
        frozen.send_signal(signal.SIGCONT)
        await until(lambda: notes(tmp_path).count("f two ended") == 2)
        again = await engine.start(job, "g")
        assert await result(again) == ["g one", "g two", "g three"]
        assert [event.id for event in await events_of(run)] == before
        for process in (frozen, other):
            process.send_signal(signal.SIGTERM)
        for process in (frozen, other):
            _, errors = await process.communicate()
            assert process.returncode == 0, errors
    assert notes(tmp_path).count("f three") == 1
