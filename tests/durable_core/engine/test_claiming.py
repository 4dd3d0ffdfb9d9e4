"""Claimed keys in steps: who goes ahead, what the others hear, what a dead process leaves."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_core import ClaimState, DatabaseClock, Engine, KeyClaim, KeyRing, open_store
from durable_core.claiming import Claimer, StoreCall
from durable_core.context import StepContext, WorkflowContext, step_context
from durable_core.errors import CommitUnknown, LeaseLost, TooLarge, Unavailable, Unstorable
from durable_core.failures import StepFailed
from durable_core.model import ClaimRequest, Incarnation
from durable_core.registry import step, workflow
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.builders import START_MS, message
from tests.durable_core.conformance.sqlite import KEYS, file_store
from tests.durable_core.engine.billing import billing
from tests.durable_core.engine.breaking import Failing
from tests.durable_core.engine.worlds import FAST, World, result

SOON = RetryPolicy(first=timedelta(0), cap=timedelta(0))
ROOT = Path(__file__).resolve().parents[3]


@step(attempts=1)
async def once(key: str) -> list[Any]:
    claim = await step_context().claim(key)
    if claim.state == "claimed":
        claim = await claim.done({"paid": 20})
    return [claim.state.value, claim.value]


@step(attempts=1)
def once_plainly(key: str) -> list[Any]:
    claim = step_context().claim(key).wait()
    if claim.state == "claimed":
        claim = claim.done({"paid": 20}).wait()
    return [claim.state.value, claim.value, threading.current_thread() is threading.main_thread()]


async def test_of_steps_side_by_side_one_has_the_effect(world: World) -> None:
    effects: list[str] = []

    @step(attempts=1)
    async def pay() -> str:
        ctx = step_context()
        claim = await ctx.claim("pay")
        if claim.state == "claimed":
            effects.append(ctx.operation_id)
        return claim.state.value if claim.is_own else f"{claim.state.value}: {claim.operation_id} of {claim.run_id}"

    @workflow
    async def many(ctx: WorkflowContext) -> list[str]:
        return list(await asyncio.gather(*(ctx.step(pay) for _ in range(5))))

    async with world.engine(many) as engine:
        runs = [await engine.start(many) for _ in range(4)]
        said = {run.run_id: await result(run) for run in runs}
    assert len(effects) == 1
    (owner,) = [run_id for run_id, one in said.items() if "claimed" in one]
    every = [one for many in said.values() for one in many]
    assert every.count("claimed") == 1
    assert set(every) == {"claimed", f"pending: {effects[0]} of {owner}"}


@pytest.mark.parametrize("plain", [False, True])
async def test_what_is_done_is_known_to_every_run(world: World, plain: bool) -> None:
    body = once_plainly if plain else once

    @workflow
    async def pays(ctx: WorkflowContext) -> list[Any]:
        return [await ctx.step(body, "k") for _ in range(2)]

    async with world.engine(pays) as engine:
        first, second = [await result(await engine.start(pays)) for _ in range(2)]
    assert first == second == [["done", {"paid": 20}, *([False] if plain else [])]] * 2


async def test_a_run_that_slept_claims_under_its_new_lease(world: World) -> None:
    @workflow
    async def sleepy(ctx: WorkflowContext) -> list[Any]:
        before = await ctx.step(once, "before")
        await ctx.sleep(3_600)
        return [before, await ctx.step(once, "after")]

    async with world.engine(sleepy) as engine:
        run = await engine.start(sleepy)
        while (await run.status()).status != "waiting":
            await asyncio.sleep(0.01)
        world.advance(hours=1)
        assert await result(run) == [["done", {"paid": 20}]] * 2


async def test_a_released_key_is_tried_again(world: World) -> None:
    attempts: list[ClaimState] = []

    @step(backoff=SOON)
    async def refused_once() -> str:
        claim = await step_context().claim("k")
        attempts.append(claim.state)
        if step_context().attempt == 1:
            await claim.release()
            raise ConnectionRefusedError
        return claim.state.value

    @workflow
    async def tries(ctx: WorkflowContext) -> str:
        return await ctx.step(refused_once)

    async with world.engine(tries) as engine:
        assert await result(await engine.start(tries)) == "claimed"
    assert attempts == ["claimed", "claimed"]


async def test_an_attempt_that_raised_leaves_it_pending_for_the_next(world: World) -> None:
    @step(backoff=SOON)
    async def raises_once() -> list[Any]:
        claim = await step_context().claim("k")
        if claim.state == "claimed":
            raise ConnectionResetError
        return [claim.state.value, claim.is_own, claim.attempt, claim.since.timestamp() * 1000]

    @workflow
    async def tries(ctx: WorkflowContext) -> list[Any]:
        return await ctx.step(raises_once)

    async with world.engine(tries) as engine:
        assert await result(await engine.start(tries)) == ["pending", True, 1, START_MS]


@pytest.mark.parametrize("database", ["file", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_killed_between_claim_and_done_the_next_process_sees_whose_it_is(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await file_store(DatabaseClock(), tmp_path)
    postgres = database == "postgres"
    url = request.getfixturevalue("migrated_url") if postgres else f"sqlite:///{tmp_path / 'moorings.db'}"
    ledger = tmp_path / "ledger"
    command = (sys.executable, "-m", "tests.durable_core.engine.billing", url, str(ledger))
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    assert await child.wait() == -signal.SIGKILL
    assert ledger.read_text() == "billed"
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    async with Engine(store, workflows=[billing]) as engine:
        found = await result(await engine.start(billing, str(ledger), key="one"))
        assert found == {
            "state": "pending",
            "is_own": True,
            "began": 1,
            "attempt": 2,
            "after": "done",
            "value": "billed",
        }
    await store.close()


async def claimer(store: Store, loop: asyncio.AbstractEventLoop | None = None) -> Claimer:
    await store.admit(message())
    (held,) = await store.claim(ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1))
    return Claimer(
        store=store, run_id=held.run_id, epoch=held.epoch, operation_id="o", attempt=1, loop=loop or asyncio.get_running_loop()
    )


async def test_a_claim_waits_for_the_disk_before_it_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await world.open_store()
    one = await claimer(store)
    if isinstance(store, SqliteStore):
        await store.enrol(Incarnation(owner="soft", deployment="d"))
        assert not store._writer._syncs
        claim = await one.claim("k")
        assert store._writer._syncs
        await store.enrol(Incarnation(owner="soft", deployment="d"))
        await claim.done(1)
        assert store._writer._syncs
    else:
        begun: list[bool] = []
        transaction = store._database.transaction  # type: ignore[attr-defined]

        async def noted(*args: Any, soft: bool = False, **options: Any) -> Any:
            begun.append(soft)
            return await transaction(*args, soft=soft, **options)

        monkeypatch.setattr(store._database, "transaction", noted)  # type: ignore[attr-defined]
        await (await one.claim("k")).done(1)
        assert begun == [False, False]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Unavailable("away"), CommitUnknown("who knows")])
async def test_a_database_that_was_away_makes_no_claim_of_ones_own_pending(world: World, error: Exception, after: bool) -> None:
    store = await world.open_store()
    failing = Failing(store, "claim_key", error, after=after)
    one = replace(await claimer(store), store=failing.as_store)
    claim = await one.claim("k")
    assert failing.raised
    assert (claim.state, (await one.claim("k")).state) == (ClaimState.CLAIMED, ClaimState.PENDING)


async def test_who_lost_the_run_is_told_so_each_time(world: World) -> None:
    store = await world.open_store()
    lost = await claimer(store)
    claim = await lost.claim("k")
    await store.release(lost.run_id, lost.epoch, timer_at=None, seen=0, unused=False)
    for call in (lost.claim("other"), claim.done(1), claim.release()):
        with pytest.raises(LeaseLost):
            await call


async def test_a_call_can_be_awaited_on_another_loop_and_waited_for_in_a_thread(world: World) -> None:
    one = await claimer(await world.open_store())

    async def elsewhere() -> KeyClaim:
        return await one.claim("k")

    claim = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert (await asyncio.to_thread(lambda: claim.done(7).wait())).value == 7
    await asyncio.to_thread(lambda: claim.release().wait())
    assert (await one.claim("k")).value == 7


async def test_waiting_on_the_loop_says_what_to_write(world: World) -> None:
    one = await claimer(await world.open_store())
    with pytest.raises(RuntimeError, match="write `await` in a coroutine"):
        one.claim("k").wait()
    assert (await one.claim("k")).state is ClaimState.CLAIMED


async def test_what_nobody_waits_for_is_warned_about(world: World) -> None:
    one = await claimer(await world.open_store())
    with pytest.warns(RuntimeWarning, match="never awaited"):
        forgotten(one.claim("k"))
    assert (await one.claim("k")).state is ClaimState.CLAIMED


def forgotten(call: StoreCall[Any]) -> None:
    del call


async def test_a_claim_has_no_truth_value(world: World) -> None:
    claim = await (await claimer(await world.open_store())).claim("k")
    with pytest.raises(TypeError, match=r"compare claim\.state"):
        bool(claim)


@pytest.mark.parametrize(
    ("key", "error"), [("", ValueError), ("k" * 201, ValueError), ("a\0b", Unstorable), ("a\ud800", Unstorable)]
)
async def test_what_is_no_key_is_refused_by_name(world: World, key: str, error: type[Exception]) -> None:
    one = await claimer(await world.open_store())
    with pytest.raises(error, match="the key of a claim"):
        one.claim(key)
    assert (await one.claim("ü" * 200)).state is ClaimState.CLAIMED


async def test_a_value_that_cannot_be_kept_is_refused_and_leaves_it_pending(world: World) -> None:
    one = await claimer(await world.open_store())
    claim = await one.claim("k")
    for value, error in ((object(), Unstorable), ("x" * (16 * 1024 * 1024 + 1), TooLarge)):
        with pytest.raises(error):
            claim.done(value)
    assert (await one.claim("k")).state is ClaimState.PENDING
    assert (await claim.done()).value is None
    assert not (await one.claim("k")).value_gone


def test_outside_an_engine_there_is_nothing_to_claim_in() -> None:
    with pytest.raises(RuntimeError, match="under no engine"):
        StepContext(run_id="r", operation_id="o", attempt=1, idempotency_key="k").claim("k")


async def test_an_error_of_a_claim_fails_the_step_like_any_other(world: World) -> None:
    @step(attempts=1)
    async def asks() -> None:
        await step_context().claim("")

    @workflow
    async def wrong(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(asks)
        except StepFailed as failed:
            return str(failed)
        return ""

    async with world.engine(wrong, options=FAST) as engine:
        assert "1 to 200 characters" in await result(await engine.start(wrong))
