"""S29–S31: what a store promises about content that goes: retention, forgetting, redacting, keys wrapped anew.

What lives here: what is left of a run whose content is gone. What does not: which runs are to be forgotten.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from durable_core.errors import Broken, ContentGone, NotFound, Redacted
from durable_core.model import Outcome, SubmissionOutcome
from durable_core.store import Store
from durable_core.testing.acts import asked, claim_one, parked, reply, send_all
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import MINUTE, answer, body, event, message, ms, new_run, post, prompt, step_commit, to_address

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

    async def test_s29_what_a_forgotten_run_owed_is_in_nobody_s_way(self, store: Store) -> None:
        first = await store.admit(message(to_address("a", new=new_run())))
        claim = await claim_one(store)
        await store.commit(step_commit(claim, outbox=(post("lane", text="1"), post("lane", text="2")), end="done"))
        other = await store.admit(message(to_address("b", new=new_run())))
        kept = post("lane", text="3")
        await store.commit(step_commit(await claim_one(store), outbox=(kept,), end="done"))
        assert await store.forget(first.run_id)
        assert await send_all(store) == [kept.delivery_id]
        assert await store.forget(other.run_id)

    async def test_s29_a_lane_of_forgotten_things_alone_is_quiet(self, store: Store) -> None:
        run_id, _ = await ended(store, keep_ms=None)
        assert await store.forget(run_id)
        assert await send_all(store) == []
        assert (await store.due("w1")).lane_at is None

    async def test_s29_another_process_has_no_key_either(self, store: Store, peer: Store) -> None:
        run_id, _ = await ended(store, keep_ms=None)
        assert await peer.steps(run_id) != []
        assert await store.forget(run_id)
        with pytest.raises(ContentGone):
            await peer.steps(run_id)
        with pytest.raises(ContentGone):
            await peer.events(run_id)

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

    async def test_s31_a_body_is_replaced_where_it_stands(self, store: Store) -> None:
        run_id = await parked(store)
        other = await parked(store, address="b")
        names = ["command:1", "step:0"]
        before, events = await store.content(run_id, names), len(await store.events(run_id, hidden=True))
        gone = {name: body("gone") for name in names}
        assert await store.redact(run_id, gone, events=(event("redacted", visible=False),)) == 2
        assert await store.content(run_id, names) == gone
        assert await store.content(other, names) == before
        assert [step.output for step in await store.steps(run_id)] == [body("gone")]
        assert (await store.run(run_id)).redactions == 1
        assert len(await store.events(run_id, hidden=True)) == events + 1

    async def test_s31_again_is_once(self, store: Store) -> None:
        run_id = await parked(store)
        gone = {"command:1": body("gone"), "step:77": body("nobody")}
        assert await store.redact(run_id, gone, events=(event("redacted"),)) == 1
        assert await store.redact(run_id, gone, events=(event("redacted"),)) == 0
        assert (await store.run(run_id)).redactions == 1

    async def test_s31_what_waits_in_the_inbox_is_replaced_too(self, store: Store) -> None:
        receipt = await store.admit(message())
        assert await store.redact(receipt.run_id, {"command:1": body("gone")}) == 1
        claim = await claim_one(store)
        assert ([command.body for command in claim.commands], claim.redactions) == ([body("gone")], 1)

    async def test_s31_a_step_begun_before_brings_nothing_back(self, store: Store) -> None:
        await store.admit(message())
        claim = await claim_one(store)
        assert await store.redact(claim.run_id, {"command:1": body("gone")}) == 1
        stale = replace(step_commit(claim, release=True), redactions=claim.redactions)
        with pytest.raises(Redacted):
            await store.commit(stale)
        assert await store.steps(claim.run_id) == []
        anew = await store.refresh(claim.run_id, claim.epoch)
        assert (anew.redactions, [command.body for command in anew.commands]) == (1, [body("gone")])
        await store.commit(replace(stale, redactions=anew.redactions))
        assert len(await store.steps(claim.run_id)) == 1

    async def test_s31_words_that_came_with_an_answer(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        await store.answer(replace(answer(prompt_id), note=body("because")))
        assert (await store.prompt(prompt_id)).note == body("because")
        assert await store.redact(claim.run_id, {f"note:{prompt_id}": body("gone")}) == 1
        assert (await store.prompt(prompt_id)).note == body("gone")

    async def test_s31_what_is_gone_or_unknown_is_said(self, store: Store) -> None:
        run_id, _ = await ended(store, keep_ms=None)
        with pytest.raises(Broken):
            await store.redact(run_id, {"nothing:1": b""})
        assert await store.redact(run_id, {"step:0": body("gone")}) == 1
        await store.forget(run_id)
        with pytest.raises(ContentGone):
            await store.redact(run_id, {"step:0": body("gone")})
        with pytest.raises(NotFound):
            await store.redact("ses_unknown", {})
