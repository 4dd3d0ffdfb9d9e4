"""S1–S5: what admission promises.

What lives here: dedupe, addresses, wake-up, refusals. What does not: answers to prompts (`prompts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from durable_core.errors import Broken, Conflict, NotFound, SessionEnded
from durable_core.model import CommandKind, RunStatus, ToAddress, ToNew
from durable_core.store import Store
from durable_core.testing.acts import accept, asleep, claim_one, claims, park, parked, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import (
    ADDRESS,
    BOB,
    CHANNEL,
    MINUTE,
    NOTES,
    body,
    cancel,
    message,
    ms,
    new_run,
    note,
    step_commit,
    to_address,
)

NOBODY = ToAddress(channel=CHANNEL, address="console:v1:nobody", new=None)


class Admissions(StoreBench):
    """Admission: S1 to S5."""

    # ── S1 ──
    async def test_s1_what_was_returned_is_there_for_another_connection(self, store: Store, peer: Store) -> None:
        receipt = await store.admit(message(text="kept"))
        assert (await peer.submission(receipt.submission_id)).run_id == receipt.run_id
        claim = await claim_one(peer)
        assert [c.body for c in claim.commands] == [body("kept")]

    async def test_s1_a_statement_of_a_layer_above_joins_the_transaction(self, store: Store) -> None:
        receipt = await store.admit(message())
        await store.admit(message(receipt.run_id, extra=(note(receipt.run_id, "a"), note(receipt.run_id, "b"))))
        assert await store.rows(NOTES, {"run_id": receipt.run_id}) == [("a",), ("b",)]

    async def test_s1_a_failing_extra_undoes_the_admission_and_not_its_neighbours(self, store: Store) -> None:
        receipt = await store.admit(message())
        bad = message(receipt.run_id, key="bad", extra=(note(receipt.run_id, "x"), note(receipt.run_id, "x")))
        good = [message(receipt.run_id, text=f"good {n}") for n in range(8)]
        results = await asyncio.gather(*(store.admit(a) for a in (*good[:4], bad, *good[4:])), return_exceptions=True)
        assert [type(r) for r in results if isinstance(r, BaseException)] == [Broken]
        assert sorted(r.seq for r in results if not isinstance(r, BaseException)) == list(range(2, 10))
        assert await store.rows(NOTES, {"run_id": receipt.run_id}) == []
        with pytest.raises(NotFound):
            await store.submission(bad.submission_id)
        again = await store.admit(replace(bad, extra=()))
        assert not again.deduplicated, "a failed try left its dedupe row"
        assert again.seq == 10

    # ── S2 ──
    async def test_s2_a_repeat_changes_nothing_and_returns_the_first_receipt(self, store: Store) -> None:
        first = await store.admit(message(key="k", text="a"))
        again = await store.admit(message(key="k", text="a"))
        assert again == replace(first, deduplicated=True)
        assert len((await claim_one(store)).commands) == 1

    async def test_s2_a_repeat_does_not_wake_the_run(self, store: Store) -> None:
        first = message(key="k", text="a")
        await store.admit(first)
        await park(store, await claim_one(store))
        await store.admit(replace(first, submission_id="sub_other"))
        assert await asleep(store)

    async def test_s2_a_repeat_is_known_after_the_run_ended_and_creates_no_second_one(self, store: Store) -> None:
        first = await store.admit(message(key="k", text="a"))
        await store.end(first.run_id, reason="reset", events=())
        again = await store.admit(message(key="k", text="a"))
        assert (again.run_id, again.submission_id, again.deduplicated) == (first.run_id, first.submission_id, True)
        assert await store.run_at(CHANNEL, ADDRESS) is None

    async def test_s2_another_payload_under_one_key_conflicts_or_merges(self, store: Store) -> None:
        first = await store.admit(message(key="k", text="a"))
        with pytest.raises(Conflict) as caught:
            await store.admit(message(key="k", text="b"))
        assert (caught.value.source, caught.value.key) == (CHANNEL, "k")
        merged = await store.admit(message(key="k", text="b", on_conflict="merge"))
        assert merged == replace(first, deduplicated=True)
        assert [c.body for c in (await claim_one(store)).commands] == [body("a")]

    async def test_s2_a_key_is_unique_within_its_source_only(self, store: Store) -> None:
        first = await store.admit(message(key="k"))
        other = await store.admit(message(key="k", source="api:bob"))
        assert (other.seq, other.deduplicated) == (first.seq + 1, False)

    async def test_s2_twenty_racing_twins_leave_one_command(self, store: Store) -> None:
        receipts = await asyncio.gather(*(store.admit(message(key="k", text="a")) for _ in range(20)))
        assert sum(not r.deduplicated for r in receipts) == 1
        assert len({(r.submission_id, r.run_id, r.seq) for r in receipts}) == 1
        assert len((await claim_one(store)).commands) == 1

    # ── S3 ──
    async def test_s3_of_racing_first_messages_one_creates_the_run(self, store: Store) -> None:
        admissions = [message(text=str(n)) for n in range(50)]
        receipts = await asyncio.gather(*(store.admit(a) for a in admissions))
        assert len({r.run_id for r in receipts}) == 1
        assert sum(r.created for r in receipts) == 1
        assert sorted(r.seq for r in receipts) == list(range(1, 51))
        claim = await claim_one(store)
        by_seq = {r.seq: a.body for r, a in zip(receipts, admissions, strict=True)}
        assert [(c.seq, c.body) for c in claim.commands] == [(n, by_seq[n]) for n in range(1, 51)]
        assert [r.submission_id for r in receipts] == [a.submission_id for a in admissions]

    async def test_s3_two_connections_race_for_ten_new_addresses(self, store: Store, peer: Store) -> None:
        places = [f"console:v1:{n}" for n in range(10)]
        tries = [(s, message(to_address(p))) for _ in range(10) for p in places for s in (store, peer)]
        receipts = await asyncio.gather(*(s.admit(a) for s, a in tries))
        for place in places:
            mine = [r for r, (_, a) in zip(receipts, tries, strict=True) if a.target.address == place]  # type: ignore[union-attr]
            assert len({r.run_id for r in mine}) == 1
            assert sorted(r.seq for r in mine) == list(range(1, 21))
            assert sum(r.created for r in mine) == 1

    async def test_s3_the_candidates_of_losers_leave_no_trace(self, store: Store) -> None:
        receipts = await asyncio.gather(*(store.admit(message(to_address(new=new_run(f"ses_{n}")))) for n in range(8)))
        winner = receipts[0].run_id
        assert await store.rows("SELECT run_id FROM moor_run", {}) == [(winner,)]
        with pytest.raises(NotFound):
            await store.run(next(f"ses_{n}" for n in range(8) if f"ses_{n}" != winner))

    async def test_s3_an_address_is_free_again_when_its_run_ended(self, store: Store) -> None:
        first = await store.admit(message())
        await store.end(first.run_id, reason="reset", events=())
        second = await store.admit(message())
        assert second.created
        assert second.run_id != first.run_id
        found = await store.run_at(CHANNEL, ADDRESS)
        assert found is not None
        assert found.run_id == second.run_id

    async def test_s3_a_run_without_address_is_created_with_and_without_input(self, store: Store) -> None:
        empty = await store.admit(replace(message(ToNew(new=new_run("ses_empty"))), kind=None, body=b""))
        full = await store.admit(message(ToNew(new=new_run("ses_full"))))
        assert (empty.run_id, empty.created) == ("ses_empty", True)
        assert (full.run_id, full.created, full.seq) == ("ses_full", True, 1)
        (first,) = await accept(store, "ses_empty", "hello")
        assert first.seq == 1, "a creation without input took a place in the inbox"

    # ── S4 ──
    async def test_s4_admission_wakes_a_sleeping_run(self, store: Store) -> None:
        run_id = await parked(store)
        assert await asleep(store)
        (receipt,) = await accept(store, run_id, "again")
        assert receipt.seq == 2
        claim = await claim_one(store)
        assert claim.signals.inbox_seq == 2
        assert [c.seq for c in claim.commands] == [2]

    async def test_s4_admission_wakes_a_run_that_waits_for_a_timer(self, store: Store, clock: WindableClock) -> None:
        run_id = await parked(store, timer_at=clock.now_ms + MINUTE)
        await accept(store, run_id, "now")
        assert (await claim_one(store)).run_id == run_id

    async def test_s4_admission_does_not_delay_a_run_that_is_due_already(self, store: Store, clock: WindableClock) -> None:
        old = await store.admit(message(to_address("a")))
        clock.advance(ms(10))
        await store.admit(message(to_address("b")))
        clock.advance(ms(10))
        await accept(store, old.run_id, "more")
        (first,) = await claims(store, limit=1)
        assert first.run_id == old.run_id

    async def test_s4_input_for_an_owned_run_is_seen_by_every_fenced_write(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "steer")
        assert (await store.append(claim.run_id, claim.epoch, ())).inbox_seq == 2
        assert (await store.renew("w1", [(claim.run_id, claim.epoch)], lease_ms=1000))[claim.run_id].inbox_seq == 2
        committed = await store.commit(step_commit(claim))
        assert committed.signals.inbox_seq == 2
        assert [c.seq for c in committed.commands] == [2]

    async def test_s4_a_listener_hears_of_an_admission(self, store: Store) -> None:
        heard: list[str] = []
        rung = asyncio.Event()

        def listen(run_ids: Sequence[str] | None) -> None:
            heard.extend(run_ids or ("any",))
            rung.set()

        stop = store.watch(listen)
        receipt = await store.admit(message())
        await asyncio.wait_for(rung.wait(), 10)
        assert heard[0] in {receipt.run_id, "any"}
        stop()

    async def test_s4_a_cancel_is_a_signal_until_it_is_consumed(self, store: Store) -> None:
        claim = await start(store)
        first = await store.commit(step_commit(claim, turn_id="turn_0"))
        assert not first.signals.cancel_pending
        await store.admit(cancel(claim.run_id))
        assert (await store.append(claim.run_id, claim.epoch, ())).cancel_pending
        again = await store.refresh(claim.run_id, claim.epoch)
        assert again.signals.cancel_pending
        assert [c.kind for c in again.commands] == [CommandKind.CANCEL]
        after = await store.commit(step_commit(again))
        assert not after.signals.cancel_pending
        assert not (await store.append(claim.run_id, claim.epoch, ())).cancel_pending, "the commit said so, the run does not"

    # ── S5 ──
    async def test_s5_an_ended_run_takes_no_input_and_keeps_no_row(self, store: Store) -> None:
        run_id = await parked(store)
        await store.end(run_id, reason="reset", events=())
        late = message(run_id, key="late")
        with pytest.raises(SessionEnded):
            await store.admit(late)
        with pytest.raises(NotFound):
            await store.submission(late.submission_id)
        assert (await store.run(run_id)).status is RunStatus.ENDED
        redirected = await store.admit(replace(late, target=to_address("elsewhere")))
        assert not redirected.deduplicated

    async def test_s5_an_unknown_run_or_address_is_not_found_and_keeps_no_row(self, store: Store) -> None:
        for lost in (message("ses_unknown", key="lost"), message(NOBODY, key="lost")):
            with pytest.raises(NotFound):
                await store.admit(lost)
            with pytest.raises(NotFound):
                await store.submission(lost.submission_id)
        assert not (await store.admit(message(key="lost"))).deduplicated
        assert await store.run_at(CHANNEL, NOBODY.address) is None

    async def test_s5_what_has_no_such_id_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.run("ses_none")
        with pytest.raises(NotFound):
            await store.submission("sub_none")
        with pytest.raises(NotFound):
            await store.prompt("prm_none")
        with pytest.raises(NotFound):
            await store.interaction_result("sub_none")

    async def test_s5_an_existing_owner_is_found_without_an_offer(self, store: Store) -> None:
        first = await store.admit(message())
        second = await store.admit(message(replace(to_address(), new=None), principal=BOB))
        assert (second.run_id, second.seq, second.created) == (first.run_id, 2, False)
        command = (await claim_one(store)).commands[1]
        assert (command.principal, command.submission_id) == (BOB, second.submission_id)
        where = await store.submission(second.submission_id)
        assert (where.consumed, where.outcome, where.seq, where.kind) == (False, None, 2, CommandKind.MESSAGE)
