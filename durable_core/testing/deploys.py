"""S33–S36: what a store promises while versions change: moves, who could read what, dead letters, runs of an earlier start.

What lives here: the promises that deploys and their operators need. What does not: which values which version reads.
"""

from __future__ import annotations

from dataclasses import replace

from durable_core.model import Abilities, Buried, Incarnation, Move, Sent
from durable_core.store import Store
from durable_core.testing.acts import accept, asleep, claim_one, claims, lane_one, owing, parked, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import MINUTE, SECOND, message, ms, post, step_commit, to_address

GONE = "SELECT min_readable, current, code, gone_at FROM moor_worker WHERE owner = :owner"
QUARTER = 15 * MINUTE


class Deploys(StoreBench):
    """What changes with a version, and what must not."""

    async def test_s33_a_move_is_part_of_a_commit(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store, lifetime_ms=MINUTE)
        await store.commit(step_commit(claim))
        kept = await store.run(claim.run_id)
        assert (kept.deployment, kept.deadline_at) == ("d1", claim.deadline_at)
        clock.advance(ms(SECOND))
        again = await store.refresh(claim.run_id, claim.epoch)
        await store.commit(step_commit(again, move=Move(deployment="d2", lifetime_ms=5 * MINUTE)))
        moved = await store.run(claim.run_id)
        assert (moved.deployment, moved.deadline_at) == ("d2", clock.now_ms + 5 * MINUTE)
        first, second = await store.steps(claim.run_id)
        assert (first.deployment, second.deployment) == ("d1", "d2")

    async def test_s33_a_moved_run_sleeps_until_its_new_deadline(self, store: Store, clock: WindableClock) -> None:
        run_id = await parked(store, lifetime_ms=MINUTE)
        await accept(store, run_id, "more")
        claim = await claim_one(store)
        move = Move(deployment="d2", lifetime_ms=3 * MINUTE)
        await store.commit(step_commit(claim, move=move, release=True))
        clock.advance(ms(2 * MINUTE))
        assert await asleep(store)
        clock.advance(ms(MINUTE))
        again = await claim_one(store)
        assert again.run_id == run_id
        await store.commit(step_commit(again, move=Move(deployment="d3", lifetime_ms=None)))
        assert (await store.run(run_id)).deadline_at is None

    async def test_s34_whoever_has_gone_is_remembered_for_a_while(self, store: Store, clock: WindableClock) -> None:
        able = Abilities(min_readable=2, current=3, code="c3")
        await store.enrol(Incarnation(owner="newer", deployment="d9", abilities=able))
        assert await store.rows(GONE, {"owner": "newer"}) == [(2, 3, "c3", None)]
        clock.advance(ms(MINUTE))
        await store.withdraw("newer")
        left = clock.now_ms
        assert await store.rows(GONE, {"owner": "newer"}) == [(2, 3, "c3", left)]
        assert "newer" not in (await store.due("w1")).owners
        clock.advance(ms(MINUTE))
        await store.withdraw("newer")
        assert await store.rows(GONE, {"owner": "newer"}) == [(2, 3, "c3", left)]
        await store.enrol(Incarnation(owner="newer", deployment="d9", abilities=able))
        assert await store.rows(GONE, {"owner": "newer"}) == [(2, 3, "c3", None)]
        await store.withdraw("newer")
        clock.advance(ms(QUARTER + 1))
        await store.enrol(Incarnation(owner="another", deployment="d9"))
        assert await store.rows(GONE, {"owner": "newer"}) == []

    async def test_s35_a_dead_letter_is_owed_again_behind_the_rest(self, store: Store) -> None:
        dead, second, third = post(text="dead"), post(text="second"), post(text="third")
        run_id = await owing(store, dead, second)
        lane = await lane_one(store)
        await store.finish(lane, "w1", Buried(delivery_id=dead.delivery_id, error="too long", release=False))
        await store.finish(lane, "w1", Sent(delivery_id=second.delivery_id, ref="r", release=True))
        assert not await store.replay("dlv_nobody")
        assert not await store.replay(second.delivery_id)
        await accept(store, run_id, "more")
        await store.commit(step_commit(await claim_one(store), outbox=(third,), release=True))
        assert await store.replay(dead.delivery_id)
        assert not await store.replay(dead.delivery_id)
        lane = await lane_one(store)
        assert [item.delivery_id for item in lane.items] == [third.delivery_id, dead.delivery_id]
        again = lane.items[1]
        assert (again.body, again.attempts, again.last_error) == (dead.body, 1, "too long")
        for item in lane.items:
            sent = Sent(delivery_id=item.delivery_id, ref="r", release=item is again)
            await store.finish(lane, "w1", sent)
        assert await store.claim_lanes("w1", limit=1, lease_ms=MINUTE) == []

    async def test_s35_a_replayed_letter_wakes_a_lane_that_was_empty(self, store: Store) -> None:
        dead = post(text="dead")
        await owing(store, dead)
        lane = await lane_one(store)
        await store.finish(lane, "w1", Buried(delivery_id=dead.delivery_id, error="gone", release=True))
        assert await store.replay(dead.delivery_id)
        assert [item.delivery_id for item in (await lane_one(store)).items] == [dead.delivery_id]

    async def test_s36_runs_of_an_earlier_start_are_left_alone(self, store: Store, clock: WindableClock) -> None:
        idle = await parked(store, address="idle")
        old = await store.admit(message(to_address("old")))
        clock.advance(ms(MINUTE))
        here = replace(Abilities(), since=clock.now_ms)
        assert (await store.due("w1", here)).run_at is None
        assert await claims(store, abilities=here) == []
        new = await store.admit(message(to_address("new")))
        await store.admit(message(to_address("idle")))
        assert {claim.run_id for claim in await claims(store, abilities=here)} == {new.run_id, idle}
        assert [claim.run_id for claim in await claims(store)] == [old.run_id]
