"""Forgetting a workflow run: it is cancelled, whoever waits for it hears of it, and what it started goes too."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.forget import forget_principal, forget_session, traces
from bot.housekeeping import told_of
from bot.redaction import NOTE_DELETED
from durable_core import codec
from durable_core.context import WorkflowContext
from durable_core.errors import ContentGone
from durable_core.failures import ChildFailed
from durable_core.model import RunStatus
from durable_core.operations import child_run_id
from durable_core.registry import workflow
from durable_core.testing.builders import ALICE, BOB, answer
from tests.durable_core.engine.worlds import World, parked, result, until

SECRET = "my card is 4242"


@workflow
async def sleeper(ctx: WorkflowContext, name: str) -> str:
    await ctx.sleep(3_600)
    return name


@workflow
async def parent(ctx: WorkflowContext, name: str) -> str:
    try:
        return await ctx.child(sleeper, name)
    except ChildFailed as failed:
        return f"without: {failed.type_name}"


@workflow
async def asker(ctx: WorkflowContext) -> str:
    answer = await ctx.ask("Why?", allow_freeform=True)
    await ctx.sleep(3_600)
    return f"{len(answer.text or '')} letters"


@pytest.mark.parametrize("database", ["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_what_somebody_answered_stays_until_a_run_of_others_has_ended(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    """Replayed without it, the run would go another way than it went."""
    world = World(request.getfixturevalue("migrated_url") if database == "postgres" else database, tmp_path)
    store = await world.open_store()

    async def entries() -> str:
        return " ".join(str(codec.decode(entry.output)) for entry in await store.steps(run.run_id))

    async def has_heard() -> bool:
        return SECRET in await entries()

    async with world.engine(asker, store=store) as engine:
        run = await engine.start(asker, started_by=ALICE)
        await parked(run)
        (asked,) = await run.prompts()
        words = {"text": SECRET, "reason": "the operator's"}
        await store.answer(answer(asked.prompt_id, by=BOB, override=True, note=codec.encode(words)))
        await until(has_heard)
        found = await traces(store, BOB)
        assert (found.alone, found.shared) == ((), (run.run_id,))
        done = await forget_principal(store, BOB, by="operator", seconds=0)
        assert (set(done.redacted), done.needed) == ({run.run_id}, (run.run_id,))
        assert f"{run.run_id} goes on and needs what they answered: forget them again once it has ended" in told_of(done, BOB)
        assert SECRET in await entries()
    async with world.engine(asker, store=store) as engine:  # told of it all anew
        world.advance(hours=2)
        assert await result(engine.run(run.run_id)) == f"{len(SECRET)} letters"
    done = await forget_principal(store, BOB, by="operator", seconds=0)
    assert (set(done.redacted), done.needed) == ({run.run_id}, ())
    assert SECRET not in await entries()
    assert NOTE_DELETED in await entries()
    again = await forget_principal(store, BOB, by="operator", seconds=0)
    assert (again.redacted, again.needed) == ({}, ())
    await world.close()


async def test_a_run_goes_with_all_that_it_started(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    async with world.engine(parent, sleeper) as engine:
        run = await engine.start(parent, "secret")
        await parked(run)
        store, child = await world.open_store(), child_run_id(run.run_id, "child:sleeper#0")
        assert await forget_session(store, run.run_id, by="operator", seconds=10)
        assert not await forget_session(store, run.run_id, by="operator", seconds=0)
        for run_id in (run.run_id, child):
            found = await store.run(run_id)
            assert (found.status, found.purged_at is not None) == (RunStatus.ENDED, True)
        with pytest.raises(ContentGone):
            await run.result()
    await world.close()


async def test_who_waits_for_it_hears_of_it(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    async with world.engine(parent, sleeper) as engine:
        run = await engine.start(parent, "secret")
        await parked(run)
        store, child = await world.open_store(), child_run_id(run.run_id, "child:sleeper#0")
        assert await forget_session(store, child, by="operator", seconds=10)
        assert (await result(run)).startswith("without: ")
    await world.close()


async def test_without_a_worker_it_ends_all_the_same(tmp_path: Path) -> None:
    world = World("memory", tmp_path)
    store = await world.open_store()
    async with world.engine(sleeper, store=store, work=False) as engine:
        run = await engine.start(sleeper, "secret")
        assert await forget_session(store, run.run_id, by="operator", seconds=0)
        assert (await store.run(run.run_id)).end_reason == "forgotten"
    await world.close()
