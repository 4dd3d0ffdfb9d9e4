"""S23–S24: what sealed values and time promise.

What lives here: keys bound to their place, the clock. What does not: the key ring's format.
"""

from __future__ import annotations

import pytest

from durable_core.errors import CannotOpen, DurableError
from durable_core.model import RecordKind
from durable_core.store import Store
from durable_core.testing.acts import accept, asked, claim_one, claims, park, reply, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import MINUTE, answer, body, event, message, ms, post, prompt, step_commit, to_address

SECRET = "the-secret-word"  # noqa: S105 - not a password: what must not be readable
SEALED = (
    ("moor_run", "header"),
    ("moor_command", "body"),
    ("moor_step", "input"),
    ("moor_step", "output"),
    ("moor_record", "body"),
    ("moor_event", "body"),
    ("moor_prompt", "body"),
    ("moor_outbox", "body"),
)


class Values(StoreBench):
    """Values and time: S23 and S24."""

    # ── S23 ──
    async def test_s23_no_body_lies_there_in_the_clear(self, store: Store) -> None:
        receipt = await store.admit(message(text=SECRET))
        claim = await claim_one(store)
        await reply(store, claim, text=SECRET)
        commit = step_commit(claim, output=SECRET, events=(event(SECRET),), outbox=(post(text=SECRET),), prompts=(prompt(),))
        await store.commit(commit)
        await store.record(
            receipt.run_id, claim.epoch, step_n=1, key="k", kind=RecordKind.RESULT, input_hash="", body=body(SECRET)
        )
        for table, column in SEALED:
            stored = await store.rows(f"SELECT {column} FROM {table}", {})  # noqa: S608 - names from the list above
            assert stored, f"{table} is empty, nothing is checked"
            for (value,) in stored:
                assert isinstance(value, bytes)
                assert SECRET.encode() not in value
                assert b"Refund" not in value
                assert value not in {body(SECRET), body("in"), body("header")}

    async def test_s23_equal_bodies_are_sealed_apart(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "same", "same")
        stored = await store.rows("SELECT body FROM moor_command WHERE seq > 1", {})
        assert len(set(stored)) == 2

    async def test_s23_a_body_moved_to_another_row_does_not_open(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "approve nothing", "approve all")
        await self.forge(
            store,
            "UPDATE moor_command SET body = (SELECT body FROM moor_command WHERE run_id = :run_id AND seq = 3)"
            " WHERE run_id = :run_id AND seq = 2",
            run_id=claim.run_id,
        )
        with pytest.raises(CannotOpen):
            await store.refresh(claim.run_id, claim.epoch)
        with pytest.raises(CannotOpen):
            await store.content(claim.run_id, ["command:2"])
        assert await store.content(claim.run_id, ["command:3"]) == {"command:3": body("approve all")}

    async def test_s23_a_body_moved_to_another_run_does_not_open(self, store: Store) -> None:
        mine, other = await start(store, address="a"), await start(store, address="b")
        for claim in (mine, other):
            await store.append(claim.run_id, claim.epoch, (event(claim.run_id),))
        await self.forge(
            store,
            "UPDATE moor_event SET body = (SELECT body FROM moor_event WHERE run_id = :other) WHERE run_id = :mine",
            mine=mine.run_id,
            other=other.run_id,
        )
        with pytest.raises(CannotOpen):
            await store.events(mine.run_id)
        assert [e.body for e in await store.events(other.run_id)] == [body(other.run_id)]

    async def test_s23_a_body_moved_to_another_column_does_not_open(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim))
        await self.forge(store, "UPDATE moor_step SET output = input WHERE run_id = :run_id", run_id=claim.run_id)
        with pytest.raises(CannotOpen):
            await store.steps(claim.run_id)

    async def test_s23_a_body_moved_to_another_table_does_not_open(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim))
        await self.forge(
            store,
            "UPDATE moor_step SET output = (SELECT body FROM moor_command WHERE run_id = :run_id AND seq = 1)"
            " WHERE run_id = :run_id",
            run_id=claim.run_id,
        )
        with pytest.raises(CannotOpen):
            await store.content(claim.run_id, ["step:0"])

    async def test_s23_a_body_in_the_clear_is_not_taken_for_a_sealed_one(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await self.forge(
            store, "UPDATE moor_prompt SET body = :body WHERE prompt_id = :prompt_id", body=body("forged"), prompt_id=prompt_id
        )
        with pytest.raises(CannotOpen):
            await store.prompt(prompt_id)

    async def test_s23_the_key_of_another_run_opens_nothing(self, store: Store, peer: Store) -> None:
        mine, other = await start(store, address="a"), await start(store, address="b")
        await self.forge(
            store,
            "UPDATE moor_run SET session_key = (SELECT session_key FROM moor_run WHERE run_id = :other) WHERE run_id = :mine",
            mine=mine.run_id,
            other=other.run_id,
        )
        with pytest.raises(DurableError):
            await peer.content(mine.run_id, ["command:1"])
        assert await peer.content(other.run_id, ["command:1"]) == {"command:1": body("hello")}

    async def test_s23_a_run_whose_key_is_gone_does_not_open(self, store: Store, peer: Store) -> None:
        mine = await start(store)
        await self.forge(store, "UPDATE moor_run SET session_key = :gone WHERE run_id = :mine", gone=b"", mine=mine.run_id)
        with pytest.raises(DurableError):
            await peer.content(mine.run_id, ["command:1"])

    async def test_s23_a_run_whose_key_is_gone_stops_no_other(self, store: Store, peer: Store) -> None:
        broken, sound = await start(store, address="a"), await start(store, address="b")
        for claim in (broken, sound):
            await store.release(claim.run_id, claim.epoch, timer_at=await store.now(), seen=1, unused=True)
        await self.forge(store, "UPDATE moor_run SET session_key = :gone WHERE run_id = :run", gone=b"", run=broken.run_id)
        taken = {claim.run_id for claim in await claims(peer)}  # tampering may have made a run of its own
        assert sound.run_id in taken
        assert broken.run_id not in taken

    # ── S24 ──
    async def test_s24_time_is_the_override(self, store: Store, clock: WindableClock) -> None:
        assert await store.now() == clock.now_ms
        clock.advance(ms(MINUTE))
        assert await store.now() == clock.now_ms
        claim, prompt_id = await asked(store, release=False)
        created = clock.now_ms
        clock.advance(ms(7))
        await reply(store, claim, step_n=1, events=(event(),))
        assert [r.at for r in await store.records(claim.run_id, 1)] == [clock.now_ms]
        assert [e.at for e in await store.events(claim.run_id)] == [clock.now_ms]
        await store.answer(answer(prompt_id))
        asked_then = await store.prompt(prompt_id)
        assert (asked_then.created_at, asked_then.settled_at) == (created, clock.now_ms)
        assert (await store.run(claim.run_id)).created_at == created
        assert (await store.submission(claim.commands[0].submission_id)).at == created

    async def test_s24_time_never_runs_backwards_within_a_run(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        clock.advance(ms(MINUTE))
        await store.append(claim.run_id, claim.epoch, (event("late"),))
        clock.wind_back(ms(MINUTE))
        (receipt,) = await accept(store, claim.run_id, "after")
        await reply(store, claim, events=(event("record"),))
        await store.commit(step_commit(claim, consumed=(1, 2), seen=2, events=(event("commit"),)))
        await store.end(claim.run_id, reason="over", events=(event("end"),))
        late = clock.now_ms + MINUTE
        assert [e.at for e in await store.events(claim.run_id)] == [late] * 4
        assert (await store.steps(claim.run_id))[0].completed_at == late
        assert (await store.submission(receipt.submission_id)).at == late
        assert (await store.run(claim.run_id)).ended_at == late

    async def test_s24_a_clock_set_back_does_not_put_a_run_to_sleep(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        clock.advance(ms(MINUTE))
        await park(store, claim)
        clock.wind_back(ms(MINUTE))
        await accept(store, claim.run_id, "again")
        again = await claim_one(store)
        assert [c.seq for c in again.commands] == [2]

    async def test_s24_other_runs_go_by_their_own_time(self, store: Store, clock: WindableClock) -> None:
        ahead = await start(store, address="a")
        clock.advance(ms(MINUTE))
        await store.append(ahead.run_id, ahead.epoch, (event(),))
        clock.wind_back(ms(MINUTE))
        fresh = await store.admit(message(to_address("b")))
        assert (await store.run(fresh.run_id)).created_at == clock.now_ms
