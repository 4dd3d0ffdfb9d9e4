"""S41–S42: what is promised beside the work itself.

What lives here: prolonging from another thread while this one, the loop's, stands still; asking whether the store can be written.
What does not: renewing on the loop (`claims`).
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from durable_core.errors import Unavailable
from durable_core.model import AnswerPolicy, Claim, Holdings, Interaction, Lane
from durable_core.store import Store
from durable_core.testing.acts import accept, asked, asleep, claim_one, interaction_one, lane_one, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import BOB, LEASE, answer, event, ms

PATIENCE = 30.0
"""Seconds until a prolonging that doesn't come back is taken for hung."""


def prolonged(store: Store, *held: Claim | Lane | Interaction, owner: str = "w1") -> None:
    """Prolong these from another thread, while this one stands still."""
    holdings = Holdings(
        runs=tuple((one.run_id, one.epoch) for one in held if isinstance(one, Claim)),
        lanes=tuple((one.channel, one.address, one.epoch) for one in held if isinstance(one, Lane)),
        interactions=tuple((one.prompt.run_id, one.interaction_id, one.epoch) for one in held if isinstance(one, Interaction)),
    )
    faults: list[BaseException] = []

    def beside() -> None:
        try:
            store.prolong(owner, holdings, lease_ms=LEASE, lane_lease_ms=LEASE, patience=PATIENCE)
        except BaseException as error:  # noqa: BLE001 - raised below
            faults.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join(2 * PATIENCE)
    assert not thread.is_alive(), "it waits for the loop, which stands still"
    if faults:
        raise faults[0]


class Beside(StoreBench):
    """Beside the loop: S41 and S42."""

    async def test_s41_all_that_is_held_is_kept_while_the_loop_stands_still(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, release=False)
        await store.answer(answer(prompt_id, by=BOB))
        held = (claim, await lane_one(store), await interaction_one(store))
        for _ in range(3):
            clock.advance(ms(LEASE - 1))
            prolonged(store, *held)
        clock.advance(ms(LEASE - 1))
        due = await store.due("w2")
        assert (due.run_at, due.lane_at) == (None, None)
        assert await store.reap("nobody") == 0
        assert await asleep(store)
        assert await store.claim_lanes("w3", limit=10, lease_ms=LEASE) == []
        assert await store.take_interactions("w3", limit=10, lease_ms=LEASE) == []
        await store.append(claim.run_id, claim.epoch, (event(),))
        clock.advance(ms(2))
        due = await store.due("w2")
        assert due.run_at is not None
        assert due.lane_at is not None
        assert (await claim_one(store, "w2")).interrupted
        assert (await lane_one(store, "w2")).epoch > held[1].epoch
        assert (await interaction_one(store, "w2")).epoch > held[2].epoch

    async def test_s41_what_another_has_taken_over_is_not_prolonged(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, release=False)
        await store.answer(answer(prompt_id, by=BOB))
        stale = (claim, await lane_one(store), await interaction_one(store))
        clock.advance(ms(LEASE + 1))
        await store.reap("nobody")
        await claim_one(store, "w2")
        await lane_one(store, "w2")
        await interaction_one(store, "w2")
        clock.advance(ms(LEASE // 2))
        prolonged(store, *stale)
        prolonged(store, *stale, owner="w2")
        clock.advance(ms(LEASE // 2 + 1))
        assert (await claim_one(store, "w3", alone=True)).interrupted, "a stale epoch prolonged the claim of another"
        await lane_one(store, "w3")
        await interaction_one(store, "w3")

    async def test_s41_what_was_given_back_stays_so(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, release=False)
        await store.answer(answer(prompt_id, by=BOB))
        lane, interaction = await lane_one(store), await interaction_one(store)
        await store.release(claim.run_id, claim.epoch, timer_at=None, seen=1, unused=False)
        await store.release_lane(lane, "w1")
        soon = clock.now_ms + 1
        await store.postpone(interaction, until=soon)
        prolonged(store, claim, lane, interaction)
        clock.advance(ms(1))
        assert (await store.due("w2")).interaction_at == soon
        assert await store.reap("w1") == 0
        await accept(store, claim.run_id, "more")
        assert (await claim_one(store, "w2")).charged == 0
        assert (await lane_one(store, "w2")).epoch == lane.epoch + 1
        assert (await interaction_one(store, "w2")).epoch == interaction.epoch + 1

    async def test_s41_it_needs_nothing_to_be_held(self, store: Store) -> None:
        prolonged(store)

    # ── S42 ──
    async def test_s42_asking_whether_it_can_be_written_leaves_nothing_behind(self, store: Store) -> None:
        claim = await start(store)
        before = await store.events(claim.run_id, hidden=True)
        told: list[object] = []
        stop = store.watch(told.append)
        await store.probe()
        await asyncio.gather(*(store.probe() for _ in range(5)), store.append(claim.run_id, claim.epoch, (event(),)))
        await store.probe()
        stop()
        assert len(await store.events(claim.run_id, hidden=True)) == len(before) + 1
        assert set(map(repr, told)) <= {repr((claim.run_id,)), "None"}
        assert (await store.refresh(claim.run_id, claim.epoch)).epoch == claim.epoch

    async def test_s42_a_store_that_is_closed_can_not_be_written(self, store: Store) -> None:
        await store.probe()
        await store.close()
        with pytest.raises(Unavailable):
            await store.probe()
