"""S6–S10 and S49: what claims and leases promise.

What lives here: fencing, charging, taking back, what is due. What does not: what a commit writes (`commits`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import (
    MAX_CHARGED,
    Abilities,
    Claim,
    ClaimRequest,
    Phase,
    RecordKind,
    RunStatus,
)
from durable_core.store import Store
from durable_core.testing.acts import accept, asked, asleep, claim_one, claims, park, parked, reply, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import LEASE, MINUTE, answer, body, cancel, event, message, ms, post, step_commit, to_address
from durable_core.versions import CURRENT_SPEC, MIN_READABLE_SPEC


async def refused(store: Store, stale: Claim) -> None:
    """Check that each fenced write of a stale claim is refused."""
    run_id, epoch = stale.run_id, stale.epoch
    with pytest.raises(LeaseLost):
        await reply(store, stale, key="zombie", events=(event("zombie"),))
    with pytest.raises(LeaseLost):
        await store.append(run_id, epoch, (event("zombie"),))
    with pytest.raises(LeaseLost):
        await store.commit(step_commit(stale, output="zombie", events=(event("zombie"),), outbox=(post(text="zombie"),)))
    with pytest.raises(LeaseLost):
        await store.commit(step_commit(stale, output="zombie", end="zombie"))
    with pytest.raises(LeaseLost):
        await store.charge(run_id, epoch, error="zombie", retry_at=0, seen=99, events=(event("zombie"),))
    with pytest.raises(LeaseLost):
        await store.release(run_id, epoch, timer_at=None, seen=99, unused=True)
    with pytest.raises(LeaseLost):
        await store.refresh(run_id, epoch)
    assert await store.renew("w1", [(run_id, epoch)], lease_ms=LEASE) == {}


async def crash(store: Store, owner: str, *, alone: bool = False) -> Claim:
    """Claim the one due run and die without a record."""
    claim = await claim_one(store, owner, alone=alone)
    assert await store.reap(owner) == 1
    return claim


class Claims(StoreBench):
    """Claims: S6 to S10, S49."""

    # ── S6 ──
    async def test_s6_of_racing_claims_one_gets_the_run(self, store: Store) -> None:
        await store.admit(message())
        taken = await asyncio.gather(*(claims(store, owner) for owner in ("w1", "w2", "w3") * 5))
        assert sum(len(t) for t in taken) == 1

    async def test_s6_two_connections_share_out_what_is_due(self, store: Store, peer: Store) -> None:
        for n in range(20):
            await store.admit(message(to_address(str(n))))
        taken = await asyncio.gather(*(claims(s, o, limit=3) for _ in range(5) for s, o in ((store, "w1"), (peer, "w2"))))
        ids = [c.run_id for t in taken for c in t]
        assert len(ids) == len(set(ids)) == 20

    async def test_s6_a_held_run_is_not_due_even_with_new_input(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "more")
        assert await asleep(store)

    async def test_s6_each_claim_has_a_higher_epoch(self, store: Store) -> None:
        run_id = (await store.admit(message())).run_id
        epochs = []
        for _ in range(3):
            claim = await claim_one(store)
            epochs.append(claim.epoch)
            await park(store, claim)
            await accept(store, run_id, "again")
        crashed = await crash(store, "w1")
        epochs += [crashed.epoch, (await claim_one(store, "w2")).epoch]
        assert epochs == sorted(set(epochs))

    # ── S7 ──
    async def test_s7_a_zombie_changes_nothing(self, store: Store) -> None:
        stale = await start(store)
        await store.reap("w1")
        fresh = await claim_one(store, "w2")
        await refused(store, stale)
        assert await store.records(stale.run_id, 0) == []
        assert await store.steps(stale.run_id) == []
        assert await store.events(stale.run_id, hidden=True) == []
        assert await store.claim_lanes("w1", limit=10, lease_ms=LEASE) == []
        again = await store.refresh(fresh.run_id, fresh.epoch)
        assert (again.step_no, again.charged, [c.seq for c in again.commands]) == (0, 1, [1])
        assert (await store.commit(step_commit(fresh))).step_no == 1

    async def test_s7_a_zombie_is_refused_while_nobody_holds_the_run(self, store: Store) -> None:
        stale = await start(store)
        await store.reap("w1")
        await refused(store, stale)
        claim = await claim_one(store, "w1")
        await park(store, claim)
        await refused(store, claim)

    async def test_s7_a_zombie_races_the_commit_of_the_new_owner(self, store: Store) -> None:
        stale = await start(store)
        await store.reap("w1")
        fresh = await claim_one(store, "w2")
        calls = [store.append(stale.run_id, stale.epoch, (event("zombie"),)) for _ in range(10)]
        results = await asyncio.gather(*calls[:5], store.commit(step_commit(fresh)), *calls[5:], return_exceptions=True)
        assert sum(isinstance(r, LeaseLost) for r in results) == 10
        assert await store.events(stale.run_id) == []

    async def test_s7_a_claim_of_the_same_owner_is_fenced_from_its_earlier_one(self, store: Store) -> None:
        stale = await start(store)
        await store.release(stale.run_id, stale.epoch, timer_at=None, seen=0, unused=True)
        fresh = await claim_one(store, "w1")
        await refused(store, stale)
        assert (await store.append(fresh.run_id, fresh.epoch, (event(),))).inbox_seq == 1

    async def test_s7_a_commit_of_another_step_is_stale(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim))
        for step_n in (0, 2):
            with pytest.raises(LeaseLost):
                await store.commit(step_commit(claim, step_n=step_n, consume=False, output="twice"))
            with pytest.raises(LeaseLost):
                await reply(store, claim, step_n=step_n)
        assert [s.output for s in await store.steps(claim.run_id)] == [body("out")]

    # ── S8 ──
    async def test_s8_a_claim_returns_what_is_unconsumed_in_order(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "b", "c", "d")
        await store.commit(step_commit(claim, consumed=(1,), seen=1, release=True))
        again = await claim_one(store, "w2")
        assert [(c.seq, c.body) for c in again.commands] == [(2, body("b")), (3, body("c")), (4, body("d"))]
        await store.commit(step_commit(again, consumed=(3,)))
        assert [c.seq for c in (await store.refresh(again.run_id, again.epoch)).commands] == [2, 4]

    async def test_s8_a_claim_returns_the_records_of_the_pending_step_only(self, store: Store) -> None:
        claim = await start(store)
        await reply(store, claim, key="old")
        await store.commit(step_commit(claim))
        await reply(store, claim, key="reply", text="paid for", step_n=1)
        await store.record(
            claim.run_id, claim.epoch, step_n=1, key="1.0.0", kind=RecordKind.STARTED, input_hash="i", body=body("started")
        )
        await store.reap("w1")
        again = await claim_one(store, "w2")
        assert again.step_no == 1
        kept = {r.key: (r.kind, r.body, r.input_hash) for r in again.records}
        assert kept == {
            "reply": (RecordKind.REPLY, body("paid for"), "h"),
            "1.0.0": (RecordKind.STARTED, body("started"), "i"),
        }

    async def test_s8_a_claim_returns_open_prompts_and_those_just_settled(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        assert [p.prompt_id for p in (await store.refresh(claim.run_id, claim.epoch)).prompts] == [prompt_id]
        await store.answer(answer(prompt_id))
        again = await store.refresh(claim.run_id, claim.epoch)
        assert [(p.prompt_id, p.outcome) for p in again.prompts] == [(prompt_id, "approved")]
        await store.commit(step_commit(again))
        assert (await store.refresh(claim.run_id, claim.epoch)).prompts == ()

    async def test_s8_a_claim_carries_what_the_run_was_created_with(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store, lifetime_ms=MINUTE)
        assert (claim.name, claim.creator, claim.header, claim.deployment) == ("support", "console:alice", body("header"), "d1")
        assert (claim.spec_version, claim.step_no, claim.attempt, claim.charged) == (CURRENT_SPEC, 0, 1, 0)
        assert (claim.interrupted, claim.crashes, claim.last_error, claim.retry_at) == (False, 0, None, None)
        assert (claim.now, claim.created_at, claim.deadline_at) == (clock.now_ms, clock.now_ms, clock.now_ms + MINUTE)
        assert (await store.run(claim.run_id)).status is RunStatus.OPEN

    async def test_s8_a_claim_that_is_read_again_is_the_same(self, store: Store) -> None:
        claim = await start(store)
        assert await store.refresh(claim.run_id, claim.epoch) == claim
        await reply(store, claim)
        await store.reap("w1")
        again = await claim_one(store, "w2")
        assert again.interrupted
        assert await store.refresh(again.run_id, again.epoch) == again

    # ── S9 ──
    async def test_s9_what_a_dead_owner_held_is_claimed_at_once_and_charged(self, store: Store) -> None:
        first = await start(store)
        assert await store.reap("w1") == 1
        again = await claim_one(store, "w2")
        assert (again.interrupted, again.charged, again.attempt) == (True, 1, first.attempt + 1)
        assert [c.seq for c in again.commands] == [1]

    async def test_s9_a_lease_that_is_over_is_taken_and_charged(self, store: Store, clock: WindableClock) -> None:
        await start(store)
        clock.advance(ms(LEASE - 1))
        await store.reap("nobody")
        assert await asleep(store)
        clock.advance(ms(2))
        assert await store.reap("nobody") == 1
        again = await claim_one(store, "w2")
        assert (again.interrupted, again.charged) == (True, 1)

    async def test_s9_a_lease_that_is_over_is_due(self, store: Store, clock: WindableClock) -> None:
        await start(store)
        clock.advance(ms(LEASE - 1))
        assert (await store.due("w2")).run_at is None
        clock.advance(ms(2))
        due = await store.due("w2")
        assert due.run_at is not None
        assert due.run_at <= due.now
        assert (await claim_one(store, "w2")).interrupted

    async def test_s9_a_renewed_lease_is_not_over(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        clock.advance(ms(LEASE - 1))
        assert claim.run_id in await store.renew("w1", [(claim.run_id, claim.epoch)], lease_ms=LEASE)
        clock.advance(ms(LEASE - 1))
        assert await store.reap("nobody") == 0
        assert await asleep(store)
        assert await store.renew("w2", [(claim.run_id, claim.epoch + 1)], lease_ms=LEASE) == {}

    async def test_s9_a_lost_claim_that_made_a_record_is_not_charged(self, store: Store) -> None:
        claim = await start(store)
        await reply(store, claim)
        await store.reap("w1")
        again = await claim_one(store, "w2")
        assert (again.interrupted, again.charged, again.crashes, again.attempt) == (True, 0, 0, 2)
        await store.reap("w2")
        third = await claim_one(store, "w1")
        assert (third.charged, third.attempt) == (1, 3), "the record of an earlier claim does not excuse this one"

    async def test_s9_reaping_one_owner_leaves_the_others_alone(self, store: Store) -> None:
        first = await start(store, address="a", owner="w1")
        second = await start(store, address="b", owner="w2")
        assert await store.reap("w1") == 1
        assert (await claim_one(store, "w3")).run_id == first.run_id
        await store.append(second.run_id, second.epoch, (event(),))

    async def test_s9_a_release_is_not_charged_and_unused_takes_the_attempt_back(self, store: Store) -> None:
        claim = await start(store)
        await store.release(claim.run_id, claim.epoch, timer_at=None, seen=0, unused=True)
        again = await claim_one(store)
        assert (again.attempt, again.charged, again.interrupted) == (claim.attempt, 0, False)
        await store.release(again.run_id, again.epoch, timer_at=None, seen=0, unused=False)
        third = await claim_one(store)
        assert (third.attempt, third.charged, third.interrupted) == (claim.attempt + 1, 0, False)

    async def test_s9_withdrawing_releases_without_charge(self, store: Store) -> None:
        await start(store)
        await store.withdraw("w1")
        again = await claim_one(store, "w2")
        assert (again.charged, again.crashes, again.interrupted) == (0, 0, False)

    async def test_s9_a_failed_attempt_is_charged_and_waits(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        retry_at = clock.now_ms + MINUTE
        await store.charge(claim.run_id, claim.epoch, error="overloaded", retry_at=retry_at, seen=1, events=(event("failed"),))
        assert await asleep(store)
        clock.advance(ms(MINUTE))
        again = await claim_one(store)
        assert (again.charged, again.crashes, again.interrupted, again.last_error) == (1, 0, False, "overloaded")
        assert [e.body for e in await store.events(claim.run_id)] == [body("failed")]

    async def test_s9_input_wakes_a_run_that_backs_off(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        retry_at = clock.now_ms + MINUTE
        await accept(store, claim.run_id, "while it failed")
        await store.charge(claim.run_id, claim.epoch, error="overloaded", retry_at=retry_at, seen=1)
        again = await claim_one(store)
        assert again.retry_at == retry_at, "the worker still has to know of the back-off"
        await store.release(again.run_id, again.epoch, timer_at=retry_at, seen=2, unused=True)
        assert await asleep(store)
        await accept(store, claim.run_id, "while it sleeps")
        assert (await claim_one(store)).retry_at == retry_at

    async def test_s9_charges_are_counted_up_to_four_and_forgotten_by_a_step(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        for n in range(1, MAX_CHARGED + 1):
            await store.charge(claim.run_id, claim.epoch, error=f"e{n}", retry_at=clock.now_ms, seen=1)
            claim = await claim_one(store)
            assert (claim.charged, claim.last_error) == (n, f"e{n}")
        committed = await store.commit(step_commit(claim))
        again = await store.refresh(claim.run_id, claim.epoch)
        assert (committed.step_no, again.charged, again.crashes, again.retry_at, again.last_error) == (1, 0, 0, None, None)

    # ── S10 ──
    async def test_s10_the_longest_due_comes_first(self, store: Store, clock: WindableClock) -> None:
        due = []
        for n in range(4):
            due.append((await store.admit(message(to_address(str(n))))).run_id)
            clock.advance(ms(5))
        order = [c.run_id for _ in range(2) for c in await claims(store, limit=2)]
        assert order == due

    async def test_s10_what_another_version_wrote_is_left_alone(self, store: Store) -> None:
        await store.admit(message())
        request = ClaimRequest(owner="w1", lease_ms=LEASE, limit=10)
        older = replace(request, abilities=Abilities(current=CURRENT_SPEC - 1, min_readable=MIN_READABLE_SPEC - 1))
        newer = replace(request, abilities=Abilities(current=CURRENT_SPEC + 1, min_readable=CURRENT_SPEC + 1))
        assert await store.claim(older) == []
        assert await store.claim(newer) == []
        assert len(await store.claim(replace(newer, abilities=Abilities(current=CURRENT_SPEC + 1)))) == 1

    async def test_s10_an_ended_run_is_never_due(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store, lifetime_ms=MINUTE)
        await accept(store, claim.run_id, "left over")
        await store.commit(step_commit(claim, end="done", timer_at=clock.now_ms, release=True))
        clock.advance(ms(2 * MINUTE))
        await store.reap("w1")
        assert await asleep(store)

    async def test_s10_a_run_that_crashed_twice_is_claimed_alone(self, store: Store) -> None:
        killer = (await store.admit(message(to_address("killer")))).run_id
        await crash(store, "w1")
        await crash(store, "w2")
        harmless = (await store.admit(message(to_address("harmless")))).run_id
        assert [c.run_id for c in await claims(store, "w1")] == [harmless]
        assert await asleep(store)
        await store.admit(message(to_address("harmless too")))
        seen: list[list[Claim]] = [taken for _ in range(3) if (taken := await claims(store, "w2", alone=True))]
        (mine,) = [taken for taken in seen if killer in {c.run_id for c in taken}]
        assert [(c.run_id, c.crashes, c.charged) for c in mine] == [(killer, 2, 2)], "it shared the worker with others"

    async def test_s10_failing_without_a_crash_needs_no_solitude(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        for _ in range(3):
            await store.charge(claim.run_id, claim.epoch, error="e", retry_at=clock.now_ms, seen=1)
            claim = await claim_one(store)
        assert (claim.charged, claim.crashes) == (3, 0)

    async def test_s10_a_worker_learns_when_to_look_again(self, store: Store, clock: WindableClock) -> None:
        nothing = await store.due("w1")
        assert (nothing.run_at, nothing.lane_at, nothing.interaction_at, nothing.now) == (None, None, None, clock.now_ms)
        later = clock.now_ms + MINUTE
        run_id = await parked(store, timer_at=later)
        assert (await store.due("w1")).run_at == later
        await accept(store, run_id, "now")
        due = await store.due("w1")
        assert due.run_at is not None
        assert due.run_at <= due.now
        claim = await claim_one(store, "w2")
        assert "w2" in (await store.due("w1")).owners
        await store.commit(step_commit(claim, outbox=(post(),), release=True, phase=Phase.IDLE))
        assert (await store.due("w1")).lane_at == clock.now_ms

    async def test_s10_a_cancel_of_a_waiting_turn_is_due_like_any_input(self, store: Store) -> None:
        claim, _ = await asked(store)
        await store.admit(cancel(claim.run_id))
        assert (await claim_one(store)).signals.cancel_pending

    # ── S49 ──
    async def lost(self, store: Store, clock: WindableClock, count: int) -> list[str]:
        """Let a worker die with so many runs; their ids, the longest due first."""
        ids = [(await store.admit(message(to_address(f"lost{n}")))).run_id for n in range(count)]
        assert len(await claims(store, "w2", limit=count)) == count
        clock.advance(ms(5))
        await store.reap("w2")
        return ids

    async def test_s49_input_is_claimed_past_a_bulk_that_lost_its_worker(self, store: Store, clock: WindableClock) -> None:
        lost = await self.lost(store, clock, 5)
        clock.advance(ms(5))
        fresh = [(await store.admit(message(to_address(f"new{n}")))).run_id for n in range(3)]
        taken = [c.run_id for c in await claims(store, limit=4, recovering=2)]
        assert set(taken[:2]) < set(lost), "the longest due still come first"
        assert set(taken[2:]) < set(fresh)
        (last,) = await claims(store, limit=4, recovering=0)
        assert {*taken[2:], last.run_id} == set(fresh)
        rest = [c.run_id for c in await claims(store, limit=4)]
        assert sorted(taken[:2] + rest) == sorted(lost), "without a bound all is offered"

    async def test_s49_a_bound_does_not_put_the_lost_before_who_waits_longer(self, store: Store, clock: WindableClock) -> None:
        held = [(await store.admit(message(to_address(n)))).run_id for n in ("a", "b")]
        assert len(await claims(store, "w2", limit=2)) == 2
        waits = (await store.admit(message(to_address("c")))).run_id
        clock.advance(ms(5))
        await store.reap("w2")
        assert [c.run_id for c in await claims(store, limit=1, recovering=1)] == [waits]
        assert [c.run_id in held for c in await claims(store, limit=2, recovering=1)] == [True]

    async def test_s49_what_got_input_since_waits_for_no_bulk(self, store: Store, clock: WindableClock) -> None:
        lost = await self.lost(store, clock, 3)
        clock.advance(ms(5))
        await accept(store, lost[2], "are you there?")
        (claim,) = await claims(store, recovering=0)
        assert (claim.run_id, claim.interrupted) == (lost[2], True)

    async def test_s49_a_step_ends_the_recovery(self, store: Store, clock: WindableClock) -> None:
        (run_id,) = await self.lost(store, clock, 1)
        (claim,) = await claims(store, recovering=1)
        await store.commit(step_commit(claim, release=True, timer_at=clock.now_ms + MINUTE))
        clock.advance(ms(MINUTE))
        assert [c.run_id for c in await claims(store, recovering=0)] == [run_id]
