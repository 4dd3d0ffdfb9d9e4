"""S19–S20: what the outbox promises.

What lives here: lanes, order, postponing, burying, references. What does not: which edits a settled prompt owes (`prompts`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import Buried, Lane, Postponed, Sent
from durable_core.store import Store
from durable_core.testing.acts import accept, claim_one, lane_one, owing, send_all, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ADDRESS, LEASE, MINUTE, body, ms, post, step_commit


def ids(lane: Lane) -> list[str]:
    """Return a lane's delivery ids in order."""
    return [item.delivery_id for item in lane.items]


async def no_lane(store: Store, owner: str = "w3") -> bool:
    """Whether nothing can be sent."""
    return await store.claim_lanes(owner, limit=10, lease_ms=LEASE) == []


class Outbox(StoreBench):
    """Outbox: S19 and S20."""

    # ── S19 ──
    async def test_s19_a_wait_that_was_asked_for_is_no_attempt(self, store: Store, clock: WindableClock) -> None:
        await owing(store, post(text="one"))
        lane = await lane_one(store)
        head = lane.items[0].delivery_id
        later = await store.now() + MINUTE
        await store.finish(lane, "w1", Postponed(delivery_id=head, until=later, error="slow down", counted=False))
        assert await store.claim_lanes("w1", limit=10, lease_ms=LEASE) == []
        clock.advance(ms(MINUTE))
        again = await lane_one(store)
        assert (again.items[0].delivery_id, again.items[0].attempts) == (head, 0)

    async def test_s19_a_lane_is_in_the_order_of_commits(self, store: Store) -> None:
        first, second, third = post(text="1"), post(text="2"), post(text="3")
        run_id = await owing(store, first, second)
        await accept(store, run_id, "more")
        claim = await claim_one(store)
        await store.commit(step_commit(claim, outbox=(third,), release=True))
        lane = await lane_one(store)
        assert (lane.channel, lane.address) == (first.channel, ADDRESS)
        assert ids(lane) == [first.delivery_id, second.delivery_id, third.delivery_id]
        head = lane.items[0]
        assert (head.run_id, head.run_name, head.body, head.attempts) == (run_id, "support", body("1"), 0)
        assert (head.prompt_id, head.edit_of, head.edit_ref, head.last_error) == (None, None, None, None)

    async def test_s19_one_sender_has_a_lane(self, store: Store) -> None:
        await owing(store, post(), post())
        taken = await asyncio.gather(*(store.claim_lanes(o, limit=5, lease_ms=LEASE) for o in ("w1", "w2", "w3") * 4))
        assert sum(len(t) for t in taken) == 1

    async def test_s19_a_new_item_does_not_open_a_lane_that_is_held(self, store: Store) -> None:
        run_id = await owing(store, post())
        lane = await lane_one(store)
        await accept(store, run_id, "more")
        late = post(text="late")
        await store.commit(step_commit(await claim_one(store), outbox=(late,), release=True))
        assert await no_lane(store)
        await store.finish(lane, "w1", Sent(delivery_id=lane.items[0].delivery_id, ref="r", release=True))
        assert ids(await lane_one(store, "w2")) == [late.delivery_id], "it came in while the lane was held, and was forgotten"

    async def test_s19_a_sent_item_is_not_sent_again(self, store: Store) -> None:
        first, second = post(), post()
        await owing(store, first, second)
        lane = await lane_one(store, items=1)
        assert ids(lane) == [first.delivery_id]
        await store.finish(lane, "w1", Sent(delivery_id=first.delivery_id, ref="r", release=True))
        lane = await lane_one(store, "w2")
        assert ids(lane) == [second.delivery_id]
        await store.finish(lane, "w2", Sent(delivery_id=second.delivery_id, ref=None, release=True))
        assert await no_lane(store)
        assert (await store.due("w1")).lane_at is None

    async def test_s19_a_kept_lane_goes_on_in_order(self, store: Store) -> None:
        posts = [post(text=str(n)) for n in range(25)]
        await owing(store, *posts)
        assert await send_all(store) == [p.delivery_id for p in posts]
        assert await no_lane(store)

    async def test_s19_retry_after_blocks_the_whole_lane(self, store: Store, clock: WindableClock) -> None:
        first, second = post(), post()
        run_id = await owing(store, first, second)
        lane = await lane_one(store)
        until = clock.now_ms + MINUTE
        await store.finish(lane, "w1", Postponed(delivery_id=first.delivery_id, until=until, error="429"))
        await accept(store, run_id, "more")
        third = post(text="third")
        await store.commit(step_commit(await claim_one(store), outbox=(third,), release=True))
        assert await no_lane(store), "a new item must not jump the platform's wait"
        assert (await store.due("w1")).lane_at == until
        clock.advance(ms(MINUTE))
        lane = await lane_one(store, "w2")
        assert ids(lane) == [first.delivery_id, second.delivery_id, third.delivery_id]
        assert (lane.items[0].attempts, lane.items[0].last_error) == (1, "429")

    async def test_s19_one_lane_waiting_does_not_stop_another(self, store: Store, clock: WindableClock) -> None:
        here, there = post("a"), post("b")
        await owing(store, here, there)
        for lane in await store.claim_lanes("w1", limit=10, lease_ms=LEASE):
            if lane.address == "a":
                later = Postponed(delivery_id=here.delivery_id, until=clock.now_ms + MINUTE, error="429")
                await store.finish(lane, "w1", later)
            else:
                await store.release_lane(lane, "w1")
        assert ids(await lane_one(store, "w2")) == [there.delivery_id]

    async def test_s19_a_buried_item_frees_the_lane(self, store: Store) -> None:
        dead, alive = post(), post()
        await owing(store, dead, alive)
        lane = await lane_one(store)
        await store.finish(lane, "w1", Buried(delivery_id=dead.delivery_id, error="channel_not_found", release=False))
        await store.finish(lane, "w1", Sent(delivery_id=alive.delivery_id, ref="r", release=True))
        assert await no_lane(store)
        kept = "SELECT last_error FROM moor_outbox WHERE delivery_id = :id"
        assert await store.rows(kept, {"id": dead.delivery_id}) == [("channel_not_found",)], "a dead letter is kept"

    async def test_s19_a_released_lane_keeps_what_it_owes(self, store: Store) -> None:
        item = post()
        await owing(store, item)
        lane = await lane_one(store)
        await store.release_lane(lane, "w1")
        again = await lane_one(store, "w2")
        assert ids(again) == [item.delivery_id]
        assert again.epoch > lane.epoch

    async def test_s19_a_sender_that_lost_its_lane_changes_nothing(self, store: Store, clock: WindableClock) -> None:
        item = post()
        await owing(store, item)
        stale = await lane_one(store, "w1")
        clock.advance(ms(LEASE + 1))
        fresh = await lane_one(store, "w2")
        results = (
            Sent(delivery_id=item.delivery_id, ref="stale", release=True),
            Postponed(delivery_id=item.delivery_id, until=clock.now_ms + MINUTE, error="stale"),
            Buried(delivery_id=item.delivery_id, error="stale", release=True),
        )
        for result in results:
            with pytest.raises(LeaseLost):
                await store.finish(stale, "w1", result)
        await store.finish(fresh, "w2", Sent(delivery_id=item.delivery_id, ref="fresh", release=True))
        assert await no_lane(store)

    async def test_s19_an_owner_is_fenced_from_its_own_earlier_claim(self, store: Store, clock: WindableClock) -> None:
        item = post()
        await owing(store, item)
        stale = await lane_one(store, "w1")
        clock.advance(ms(LEASE + 1))
        fresh = await lane_one(store, "w1")
        with pytest.raises(LeaseLost):
            await store.finish(stale, "w1", Buried(delivery_id=item.delivery_id, error="stale", release=True))
        await store.finish(fresh, "w1", Sent(delivery_id=item.delivery_id, ref="r", release=True))

    async def test_s19_a_stale_release_does_not_open_the_lane_of_another(self, store: Store, clock: WindableClock) -> None:
        await owing(store, post())
        stale = await lane_one(store, "w1")
        clock.advance(ms(LEASE + 1))
        await lane_one(store, "w2")
        with suppress(LeaseLost):
            await store.release_lane(stale, "w1")
        assert await no_lane(store)

    async def test_s19_the_lane_of_a_dead_sender_is_taken_at_once(self, store: Store) -> None:
        item = post()
        await owing(store, item)
        stale = await lane_one(store, "w1")
        assert await no_lane(store)
        await store.reap("w1")
        fresh = await lane_one(store, "w2")
        assert ids(fresh) == [item.delivery_id]
        with pytest.raises(LeaseLost):
            await store.finish(stale, "w1", Sent(delivery_id=item.delivery_id, ref="r", release=True))

    async def test_s19_a_lane_whose_lease_is_over_is_due(self, store: Store, clock: WindableClock) -> None:
        item = post()
        await owing(store, item)
        await lane_one(store, "w1")
        assert (await store.due("w2")).lane_at is None
        clock.advance(ms(LEASE + 1))
        due = await store.due("w2")
        assert due.lane_at is not None
        assert due.lane_at <= due.now
        assert ids(await lane_one(store, "w2")) == [item.delivery_id]

    async def test_s19_withdrawing_gives_lanes_back(self, store: Store) -> None:
        await owing(store, post())
        await lane_one(store, "w1")
        await store.withdraw("w1")
        await lane_one(store, "w2")

    async def test_s19_what_an_ended_run_owes_is_still_sent(self, store: Store) -> None:
        claim = await start(store)
        goodbye = post(text="goodbye")
        await store.commit(step_commit(claim, outbox=(goodbye,), end="done"))
        assert await send_all(store) == [goodbye.delivery_id]

    async def test_s19_two_runs_share_a_lane_in_commit_order(self, store: Store) -> None:
        first, second = post("shared", text="1"), post("shared", text="2")
        a = await owing(store, first, address="a")
        b = await owing(store, second, address="b")
        assert [(i.delivery_id, i.run_id) for i in (await lane_one(store)).items] == [
            (first.delivery_id, a),
            (second.delivery_id, b),
        ]

    # ── S20 ──
    async def test_s20_an_edit_finds_its_post(self, store: Store) -> None:
        card = post(text="card")
        run_id = await owing(store, card)
        lane = await lane_one(store)
        await store.finish(lane, "w1", Sent(delivery_id=card.delivery_id, ref="1700.42", release=True))
        await accept(store, run_id, "more")
        edit = post(text="edited", edit_of=card.delivery_id)
        await store.commit(step_commit(await claim_one(store), outbox=(edit,), release=True))
        (item,) = (await lane_one(store)).items
        assert (item.edit_of, item.edit_ref, item.body) == (card.delivery_id, "1700.42", body("edited"))

    async def test_s20_an_edit_that_was_owed_with_its_post_has_the_reference_at_the_next_claim(self, store: Store) -> None:
        card = post(text="card")
        edit = post(text="edited", edit_of=card.delivery_id)
        await owing(store, card, edit)
        lane = await lane_one(store, items=1)
        await store.finish(lane, "w1", Sent(delivery_id=card.delivery_id, ref="1700.42", release=True))
        (item,) = (await lane_one(store)).items
        assert (item.delivery_id, item.edit_ref) == (edit.delivery_id, "1700.42")

    async def test_s20_no_edit_is_handed_out_before_its_post_is_done(self, store: Store) -> None:
        card = post(text="card")
        edit = post(text="edited", edit_of=card.delivery_id)
        await owing(store, card, edit)
        lane = await lane_one(store)
        assert ids(lane) == [card.delivery_id], "without a reference it would be posted a second time"

    async def test_s20_the_edit_of_a_buried_post_becomes_a_post(self, store: Store) -> None:
        card = post(text="card")
        edit = post(text="edited", edit_of=card.delivery_id)
        await owing(store, card, edit)
        lane = await lane_one(store)
        await store.finish(lane, "w1", Buried(delivery_id=card.delivery_id, error="too_long", release=True))
        (item,) = (await lane_one(store)).items
        assert (item.delivery_id, item.edit_ref) == (edit.delivery_id, None)

    async def test_s20_a_post_without_reference_has_nothing_to_edit(self, store: Store) -> None:
        card = post(text="card")
        edit = post(text="edited", edit_of=card.delivery_id)
        await owing(store, card, edit)
        lane = await lane_one(store, items=1)
        await store.finish(lane, "w1", Sent(delivery_id=card.delivery_id, ref=None, release=True))
        (item,) = (await lane_one(store)).items
        assert item.edit_ref is None
