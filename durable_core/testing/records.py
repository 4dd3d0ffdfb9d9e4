"""S15: what records within a step promise.

What lives here: write once, survive the claim, end with the step. What does not: what a record costs (S9 in `claims`).
"""

from __future__ import annotations

import asyncio

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import RecordKind
from durable_core.store import Store
from durable_core.testing.acts import accept, claim_one, reply, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import MINUTE, body, cancel, event, ms, step_commit


class Records(StoreBench):
    """Records: S15."""

    async def test_s15_a_record_is_written_once(self, store: Store) -> None:
        claim = await start(store)
        await reply(store, claim, text="first", events=(event("first"),))
        await reply(store, claim, text="second", events=(event("second"),))
        assert [(r.key, r.body) for r in await store.records(claim.run_id, 0)] == [("reply", body("first"))]
        assert [e.body for e in await store.events(claim.run_id)] == [body("first")]

    async def test_s15_racing_writers_of_one_key_leave_one_record(self, store: Store) -> None:
        claim = await start(store)
        await asyncio.gather(*(reply(store, claim, text=str(n), events=(event(str(n)),)) for n in range(10)))
        (kept,) = await store.records(claim.run_id, 0)
        assert [e.body for e in await store.events(claim.run_id)] == [kept.body]

    async def test_s15_a_record_outlives_its_claim_unchanged(self, store: Store) -> None:
        claim = await start(store)
        await reply(store, claim, text="paid")
        await store.reap("w1")
        again = await claim_one(store, "w2")
        await reply(store, again, text="paid twice")
        (kept,) = (await store.refresh(again.run_id, again.epoch)).records
        assert (kept.body, kept.attempt) == (body("paid"), 1)

    async def test_s15_records_of_one_step_are_told_apart_by_key(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        for key, kind in (("reply", RecordKind.REPLY), ("0.0.0:started", RecordKind.STARTED), ("0.0.0", RecordKind.RESULT)):
            await store.record(claim.run_id, claim.epoch, step_n=0, key=key, kind=kind, input_hash=key, body=body(key))
            clock.advance(ms(1))
        kept = {r.key: (r.kind, r.input_hash, r.body) for r in await store.records(claim.run_id, 0)}
        assert kept == {
            "reply": (RecordKind.REPLY, "reply", body("reply")),
            "0.0.0:started": (RecordKind.STARTED, "0.0.0:started", body("0.0.0:started")),
            "0.0.0": (RecordKind.RESULT, "0.0.0", body("0.0.0")),
        }

    async def test_s15_the_next_step_starts_without_records(self, store: Store) -> None:
        claim = await start(store)
        await reply(store, claim, text="step 0")
        await store.commit(step_commit(claim))
        assert (await store.refresh(claim.run_id, claim.epoch)).records == ()
        with pytest.raises(LeaseLost):
            await reply(store, claim, text="late", step_n=0, key="late")
        await reply(store, claim, text="step 1", step_n=1)
        assert [r.body for r in (await store.refresh(claim.run_id, claim.epoch)).records] == [body("step 1")]

    async def test_s15_records_survive_a_charge_and_a_release(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        await reply(store, claim)
        await store.charge(claim.run_id, claim.epoch, error="e", retry_at=clock.now_ms, seen=1)
        claim = await claim_one(store)
        assert len(claim.records) == 1
        await store.release(claim.run_id, claim.epoch, timer_at=None, seen=0, unused=False)
        assert len((await claim_one(store)).records) == 1

    async def test_s15_recording_tells_of_input_and_cancel(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim, turn_id="turn_0"))
        await accept(store, claim.run_id, "steer")
        clock.advance(ms(MINUTE // 4))
        await store.admit(cancel(claim.run_id, turn_id="turn_0"))
        signals = await store.record(
            claim.run_id, claim.epoch, step_n=1, key="k", kind=RecordKind.STARTED, input_hash="", body=body("b")
        )
        assert (signals.inbox_seq, signals.cancel_pending) == (3, True)
