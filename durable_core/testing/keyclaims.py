"""S37 and S50: what claimed keys promise.

What lives here: one winner, three states, the fence, what stays when content goes, operators. What does not: what authors see
(`claiming`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from durable_core.audit import verify
from durable_core.errors import ContentGone, LeaseLost, NotFound
from durable_core.ids import new_id
from durable_core.model import Claim, ClaimedKey, ClaimState, KeyFate, KeyRequest, KeySettlement
from durable_core.store import Store
from durable_core.testing.acts import claim_one, park, start
from durable_core.testing.bench import RACERS, StoreBench, WindableClock
from durable_core.testing.builders import LEASE, MINUTE, body, ms, step_commit

KEY = "invoice-17"
CLAIMED, DONE, PENDING = ClaimState.CLAIMED, ClaimState.DONE, ClaimState.PENDING


def about(claim: Claim, key: str = KEY, *, call: str = "0.0.0", attempt: int = 1) -> KeyRequest:
    """Return the question of a call that runs under a claim."""
    return KeyRequest(run_id=claim.run_id, epoch=claim.epoch, key=key, claim_id=new_id("clm"), operation_id=call, attempt=attempt)


async def two(store: Store) -> tuple[Claim, Claim]:
    """Have two runs that are at work."""
    return await start(store, address="a"), await start(store, address="b")


def said(claim_id: str, *, done: bool, value: bytes | None = None) -> KeySettlement:
    """Return what an operator says."""
    return KeySettlement(claim_id=claim_id, done=done, value=value, by="cli:operator", via="cli", reason="the bank says so")


async def states(store: Store, claim: Claim, *keys: str) -> list[ClaimState]:
    """Ask about keys, one after another."""
    return [(await store.claim_key(about(claim, key))).state for key in keys]


class KeyClaims(StoreBench):
    """Claimed keys: S37 and S50."""

    async def test_s37_of_twenty_racing_connections_one_gets_the_key(
        self, store: Store, clock: WindableClock, tmp_path: Path
    ) -> None:
        runs = [await start(store, address=f"console:v1:{number}") for number in range(RACERS)]
        async with self.racers(store, clock, tmp_path) as stores:
            for number in range(3):
                asked = [about(run, f"race-{number}") for run in runs]
                found = await asyncio.gather(*(one.claim_key(request) for one, request in zip(stores, asked, strict=True)))
                (winner,) = [request for request, one in zip(asked, found, strict=True) if one.state is CLAIMED]
                assert [one.state for one in found].count(PENDING) == RACERS - 1
                assert {(one.run_id, one.claim_id) for one in found} == {(winner.run_id, winner.claim_id)}

    async def test_s37_of_racing_values_one_stays(self, store: Store) -> None:
        claim = await start(store)
        asked = [about(claim, call=str(number)) for number in range(RACERS)]
        finished = await asyncio.gather(*(store.finish_key(one, body(one.operation_id)) for one in asked))
        assert len({one.value for one in finished}) == 1
        assert (await store.claim_key(about(claim))).value == finished[0].value

    async def test_s37_pending_says_who_began(self, store: Store, clock: WindableClock) -> None:
        mine, others = await two(store)
        first = await store.claim_key(about(mine, call="0.1.0", attempt=3))
        began = clock.now_ms
        clock.advance(ms(MINUTE // 4))
        assert await store.claim_key(about(others)) == replace(first, state=PENDING)
        assert first == ClaimedKey(
            state=CLAIMED, claim_id=first.claim_id, run_id=mine.run_id, operation_id="0.1.0", attempt=3, at=began
        )

    async def test_s37_a_call_is_no_exception_to_its_own_claim(self, store: Store) -> None:
        """An earlier attempt of the very same call began, and nobody knows how far it came."""
        claim = await start(store)
        await store.claim_key(about(claim, attempt=1))
        again = await store.claim_key(about(claim, attempt=2))
        assert (again.state, again.attempt) == (PENDING, 1)

    async def test_s37_one_claim_made_twice_is_one(self, store: Store) -> None:
        """Whoever got no answer asks again by the same id."""
        claim = await start(store)
        request = about(claim)
        assert await store.claim_key(request) == await store.claim_key(request)
        await store.finish_key(request, body("paid"))
        assert (await store.claim_key(request)).state is DONE

    async def test_s37_done_tells_the_first_value_to_all(self, store: Store, clock: WindableClock) -> None:
        mine, others = await two(store)
        request = about(mine)
        await store.claim_key(request)
        done = await store.finish_key(request, body("paid"))
        assert (done.state, done.value, done.done_at) == (DONE, body("paid"), clock.now_ms)
        clock.advance(ms(1))
        assert await store.finish_key(request, body("paid twice")) == done
        assert await store.finish_key(about(others), body("paid by another")) == done
        assert await store.claim_key(about(others)) == done

    async def test_s37_whoever_finds_out_may_say_that_it_is_done(self, store: Store) -> None:
        mine, others = await two(store)
        await store.claim_key(about(mine))
        found = await store.claim_key(about(others))
        await store.finish_key(replace(about(others), claim_id=found.claim_id), body("it was there"))
        seen = await store.claim_key(about(mine))
        assert (seen.state, seen.value, seen.run_id) == (DONE, body("it was there"), mine.run_id)

    async def test_s37_a_released_key_is_claimed_anew_by_one(self, store: Store) -> None:
        mine, others = await two(store)
        await store.claim_key(about(mine))
        found = await store.claim_key(about(others))
        await store.release_key(replace(about(others), claim_id=found.claim_id))
        assert await states(store, others, KEY, KEY) == [CLAIMED, PENDING]

    async def test_s37_an_old_view_releases_nothing_new(self, store: Store) -> None:
        mine, others = await two(store)
        first = about(mine)
        await store.claim_key(first)
        await store.release_key(first)
        assert await states(store, others, KEY) == [CLAIMED]
        await store.release_key(first)
        assert await states(store, mine, KEY) == [PENDING]

    async def test_s37_what_is_done_is_not_released(self, store: Store) -> None:
        claim = await start(store)
        request = about(claim)
        await store.claim_key(request)
        await store.finish_key(request, body("paid"))
        await store.release_key(request)
        assert await states(store, claim, KEY) == [DONE]

    async def test_s37_what_was_done_under_a_released_claim_is_done(self, store: Store) -> None:
        """It was released too soon; that it has happened counts, whoever claims it now."""
        mine, others = await two(store)
        first = about(mine)
        await store.claim_key(first)
        await store.release_key(first)
        assert (await store.finish_key(first, body("paid"))).value == body("paid")
        assert (await store.claim_key(about(others))).value == body("paid")

    async def test_s37_a_zombie_neither_claims_nor_finishes_nor_releases(self, store: Store) -> None:
        stale = await start(store)
        held = about(stale, "held")
        await store.claim_key(held)
        await store.reap("w1")

        async def tries() -> None:
            for call in (
                store.claim_key(about(stale, "new")),
                store.finish_key(held, body("zombie")),
                store.release_key(held),
            ):
                with pytest.raises(LeaseLost):
                    await call

        await tries()
        owner = await claim_one(store, "w2")
        await tries()
        assert await states(store, owner, "held", "new") == [PENDING, CLAIMED]

    async def test_s37_an_ended_run_claims_nothing(self, store: Store) -> None:
        claim = await start(store)
        await store.end(claim.run_id, reason="over", events=())
        with pytest.raises(LeaseLost):
            await store.claim_key(about(claim))

    async def test_s37_another_connection_sees_it_at_once(self, store: Store, peer: Store) -> None:
        mine, others = await two(store)
        request = about(mine)
        await store.claim_key(request)
        assert (await peer.claim_key(about(others))).state is PENDING
        await store.finish_key(request, body("paid"))
        assert (await peer.claim_key(about(others))).value == body("paid")

    async def test_s37_it_outlives_its_run_and_its_value_does_not_outlive_the_content(self, store: Store) -> None:
        mine, others = await two(store)
        for key in ("open", "paid"):
            await store.claim_key(about(mine, key))
        await store.finish_key(about(mine, "paid"), body("paid"))
        await store.commit(step_commit(mine, end="done"))
        assert (await store.claim_key(about(others, "paid"))).value == body("paid")
        assert await store.forget(mine.run_id)
        gone = await store.claim_key(about(others, "paid"))
        assert (gone.state, gone.value, gone.value_gone) == (DONE, None, True)
        assert await store.rows("SELECT count(*) FROM moor_claim WHERE length(value) > 0", {}) == [(0,)]
        assert await store.finish_key(about(others, "paid"), body("again")) == gone
        pending = await store.claim_key(about(others, "open"))
        assert (pending.state, pending.run_id, pending.value_gone) == (PENDING, mine.run_id, False)

    async def test_s37_a_value_goes_with_whoever_gave_it(self, store: Store, peer: Store) -> None:
        mine, others = await two(store)
        await store.claim_key(about(mine))
        await peer.finish_key(about(others), body("found"))
        await store.commit(step_commit(mine, end="done"))
        assert await store.forget(mine.run_id)
        assert (await peer.claim_key(about(others))).value == body("found")
        await store.commit(step_commit(others, end="done"))
        third = await start(store, address="c")
        assert (await peer.claim_key(about(third))).value == body("found")
        assert await store.forget(others.run_id)
        assert (await peer.claim_key(about(third))).value_gone

    async def test_s37_neither_key_nor_value_lies_there_in_the_clear(self, store: Store) -> None:
        claim = await start(store)
        await store.finish_key(about(claim, "the-secret-key"), body("the-secret-value"))
        (row,) = await store.rows("SELECT key, claim_id, run_id, operation, done_run, value FROM moor_claim", {})
        assert all(b"secret" not in (one if isinstance(one, bytes) else str(one).encode()) for one in row)
        assert row[-1] != body("the-secret-value")

    async def test_s37_no_event_tells_of_it(self, store: Store) -> None:
        claim = await start(store)
        before = await store.events(claim.run_id, hidden=True)
        await store.finish_key(about(claim), body("paid"))
        assert await store.events(claim.run_id, hidden=True) == before
        await store.commit(step_commit(claim))  # nor is the worker's place in its run another one

    # ── S50 ──
    async def test_s50_what_is_done_from_outside_is_done_for_all(self, store: Store, peer: Store) -> None:
        mine, others = await two(store)
        claim_id = (await store.claim_key(about(mine))).claim_id
        await park(store, mine)
        settled = await peer.settle_key(said(claim_id, done=True, value=body("paid")))
        assert (settled.fate, settled.claim.state, settled.claim.run_id) == (KeyFate.SETTLED, PENDING, mine.run_id)
        found = await store.claim_key(about(others))
        assert (found.state, found.value, found.claim_id) == (DONE, body("paid"), claim_id)
        again = await store.settle_key(said(claim_id, done=False))
        assert (again.fate, again.claim.value) == (KeyFate.DONE, body("paid"))
        assert (await store.claim_key(about(others))).state is DONE
        assert await store.forget(mine.run_id) is False, "its value is of an open run"

    async def test_s50_a_released_key_is_claimed_anew(self, store: Store, peer: Store) -> None:
        mine, others = await two(store)
        claim_id = (await store.claim_key(about(mine))).claim_id
        await store.commit(step_commit(mine, end="done"))
        assert (await peer.settle_key(said(claim_id, done=False))).fate is KeyFate.SETTLED
        with pytest.raises(NotFound):
            await store.settle_key(said(claim_id, done=False))
        assert await states(store, others, KEY, KEY) == [CLAIMED, PENDING]

    async def test_s50_nobody_settles_while_a_worker_is_at_it(self, store: Store, clock: WindableClock) -> None:
        mine = await start(store)
        claim_id = (await store.claim_key(about(mine))).claim_id
        for done in (True, False):
            assert (await store.settle_key(said(claim_id, done=done))).fate is KeyFate.BUSY
        assert await store.audit() == []
        assert (await store.claim_key(about(mine, call="0.1.0"))).claim_id == claim_id
        clock.advance(ms(LEASE))  # whoever had it is gone
        assert (await store.settle_key(said(claim_id, done=False))).fate is KeyFate.SETTLED
        assert (await store.claim_key(about(mine, "another"))).state is CLAIMED, "the run is as it was"

    async def test_s50_of_racing_operators_one_settles_it(self, store: Store, peer: Store) -> None:
        mine, others = await two(store)
        claim_id = (await store.claim_key(about(mine))).claim_id
        await park(store, mine)
        words = [said(claim_id, done=True, value=body(str(number))) for number in range(RACERS)]
        both = [store, peer]
        found = await asyncio.gather(*(both[place % 2].settle_key(word) for place, word in enumerate(words)))
        assert [one.fate for one in found].count(KeyFate.SETTLED) == 1
        assert {one.fate for one in found} == {KeyFate.SETTLED, KeyFate.DONE}
        winner = next(word for word, one in zip(words, found, strict=True) if one.fate is KeyFate.SETTLED)
        assert (await store.claim_key(about(others))).value == winner.value
        assert len(await store.audit()) == 1

    async def test_s50_who_did_it_is_in_the_audit(self, store: Store) -> None:
        mine = await start(store)
        claims = [(await store.claim_key(about(mine, key))).claim_id for key in ("paid", "open")]
        await park(store, mine)
        await store.settle_key(said(claims[0], done=True, value=body("paid")))
        await store.settle_key(said(claims[1], done=False))
        entries = await store.audit()
        assert [(entry.act, entry.kind, entry.prompt_id, entry.run_id, entry.asked) for entry in entries] == [
            ("done", "claim", claims[0], mine.run_id, "0.0.0"),
            ("released", "claim", claims[1], mine.run_id, "0.0.0"),
        ]
        assert {(entry.principal, entry.via, entry.reason) for entry in entries} == {("cli:operator", "cli", "the bank says so")}
        assert verify(entries) is None

    async def test_s50_a_run_without_content_keeps_no_value(self, store: Store) -> None:
        mine, others = await two(store)
        claim_id = (await store.claim_key(about(mine))).claim_id
        await store.commit(step_commit(mine, end="done"))
        assert await store.forget(mine.run_id)
        with pytest.raises(ContentGone):
            await store.settle_key(said(claim_id, done=True, value=body("paid")))
        assert await store.audit() == []
        assert (await store.settle_key(said(claim_id, done=True))).fate is KeyFate.SETTLED
        found = await store.claim_key(about(others))
        assert (found.state, found.value, found.value_gone) == (DONE, None, True)
