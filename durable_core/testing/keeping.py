"""S29–S30: what a store promises about content that goes: retention, forgetting, keys wrapped anew.

What lives here: what is left of a run whose content is gone. What does not: which runs are to be forgotten.
"""

from __future__ import annotations

import pytest

from durable_core.errors import ContentGone, NotFound
from durable_core.model import Outcome, SubmissionOutcome
from durable_core.store import Store
from durable_core.testing.acts import claim_one, parked, reply, send_all
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import MINUTE, event, message, ms, new_run, post, prompt, step_commit, to_address

DAY = 24 * 60 * MINUTE


async def ended(store: Store, *, keep_ms: int | None, address: str = "a") -> tuple[str, str]:
    """Run one conversation to its end; its run and its submission."""
    receipt = await store.admit(message(to_address(address, new=new_run(keep_ms=keep_ms))))
    claim = await claim_one(store)
    await reply(store, claim)
    done = SubmissionOutcome(submission_id=receipt.submission_id, outcome=Outcome.COMPLETED, detail=b"detail")
    await store.commit(
        step_commit(claim, events=(event("said"),), prompts=(prompt(),), outbox=(post(text="bye"),), outcomes=(done,), end="done")
    )
    return receipt.run_id, receipt.submission_id


class Keeping(StoreBench):
    """How content goes."""

    async def test_s29_content_goes_and_the_skeleton_stays(self, store: Store, clock: WindableClock) -> None:
        run_id, submission_id = await ended(store, keep_ms=DAY)
        await send_all(store)
        before = await store.run(run_id)
        clock.advance(ms(DAY - 1))
        assert await store.purge(limit=10) == []
        clock.advance(ms(1))
        assert await store.purge(limit=10) == [run_id]
        assert await store.purge(limit=10) == []
        run = await store.run(run_id)
        assert (run.purged_at, run.header) == (clock.now_ms, b"")
        assert (run.ended_at, run.step_no, run.event_count) == (before.ended_at, before.step_no, before.event_count)
        with pytest.raises(ContentGone):
            await store.events(run_id)
        with pytest.raises(ContentGone):
            await store.steps(run_id)
        with pytest.raises(ContentGone):
            await store.content(run_id, ["step:0"])
        submission = await store.submission(submission_id)
        assert (submission.outcome, submission.detail) == (Outcome.COMPLETED, None)

    async def test_s29_a_minute_passes_whatever_the_retention(self, store: Store, clock: WindableClock) -> None:
        run_id, _ = await ended(store, keep_ms=0)
        await send_all(store)
        clock.advance(ms(MINUTE - 1))
        assert await store.purge(limit=10) == []
        clock.advance(ms(1))
        assert await store.purge(limit=10) == [run_id]

    async def test_s29_what_is_owed_is_sent_before(self, store: Store, clock: WindableClock) -> None:
        run_id, _ = await ended(store, keep_ms=0)
        clock.advance(ms(DAY))
        assert await store.purge(limit=10) == []
        assert await send_all(store) != []
        assert await store.purge(limit=10) == [run_id]

    async def test_s29_an_open_run_and_one_without_retention_keep_all(self, store: Store, clock: WindableClock) -> None:
        open_run = await parked(store, address="open")
        kept, _ = await ended(store, keep_ms=None)
        await send_all(store)
        clock.advance(ms(400 * DAY))
        assert await store.purge(limit=10) == []
        assert not await store.forget(open_run)
        assert len(await store.events(kept)) == len(await store.events(kept, start=0))
        assert await store.steps(kept) != []

    async def test_s29_forgetting_waits_for_nothing(self, store: Store) -> None:
        run_id, _ = await ended(store, keep_ms=None)
        assert await store.forget(run_id)
        assert not await store.forget(run_id)
        with pytest.raises(ContentGone):
            await store.steps(run_id)
        with pytest.raises(NotFound):
            await store.forget("ses_unknown")

    async def test_s29_a_limit_is_kept(self, store: Store, clock: WindableClock) -> None:
        runs = [(await ended(store, keep_ms=0, address=str(n)))[0] for n in range(3)]
        await send_all(store)
        clock.advance(ms(MINUTE))
        first = await store.purge(limit=2)
        assert sorted(first + await store.purge(limit=2)) == sorted(runs)

    async def test_s30_wrapping_anew_changes_nothing_else(self, store: Store) -> None:
        runs = [await parked(store, address=str(n)) for n in range(5)]
        before = [await store.steps(run_id) for run_id in runs]
        after, rounds = "", 0
        while True:
            following, changed = await store.rewrap(after=after, limit=2)
            assert changed == 0  # they are wrapped by the current key
            rounds += 1
            if following is None:
                break
            after = following
        assert rounds == 3
        assert [await store.steps(run_id) for run_id in runs] == before
