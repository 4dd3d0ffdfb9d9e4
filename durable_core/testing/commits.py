"""S11–S14: what commits and endings promise.

What lives here: wholeness, immutability, sleep, outcomes. What does not: the fence (`claims`).
"""

from __future__ import annotations

import asyncio

import pytest

from durable_core.errors import Broken, LeaseLost, PromptTaken, SessionEnded
from durable_core.model import Claim, Outcome, Phase, PromptOutcome, PromptSettlement, RunStatus, SubmissionOutcome
from durable_core.store import Store
from durable_core.testing.acts import accept, asked, asleep, claim_one, park, parked, reply, send_all, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import (
    ADDRESS,
    CHANNEL,
    MINUTE,
    NOTES,
    SECOND,
    answer,
    body,
    event,
    message,
    ms,
    note,
    post,
    prompt,
    step_commit,
    to_address,
)
from durable_core.testing.histories import check_run


def done(claim: Claim, outcome: Outcome = Outcome.COMPLETED) -> tuple[SubmissionOutcome, ...]:
    """Return an outcome for each command of a claim."""
    return tuple(
        SubmissionOutcome(submission_id=c.submission_id, outcome=outcome, detail=body("detail"), reply_step=0)
        for c in claim.commands
    )


async def untouched(store: Store, before: Claim) -> None:
    """Check that a failed commit left nothing behind."""
    now = await store.refresh(before.run_id, before.epoch)
    assert (now.step_no, now.turn_id, now.phase, now.signals) == (before.step_no, before.turn_id, before.phase, before.signals)
    assert now.commands == before.commands
    assert now.prompts == before.prompts
    assert await store.steps(before.run_id, start=before.step_no) == []
    assert await store.rows(NOTES, {"run_id": before.run_id}) == []
    for command in before.commands:
        where = await store.submission(command.submission_id)
        assert (where.consumed, where.turn_id, where.outcome) == (False, None, None)


class Commits(StoreBench):
    """Commits: S11 to S14."""

    # ── S11 ──
    async def test_s11_a_commit_writes_all_of_it(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        clock.advance(ms(SECOND))
        question = prompt()
        card = post(prompt_id=question.prompt_id)
        commit = step_commit(
            claim,
            turn_id="turn_0",
            outcomes=done(claim),
            events=(event("a"), event("b", visible=False)),
            outbox=(card,),
            prompts=(question,),
            phase=Phase.WAITING,
            extra=(note(claim.run_id, "n"),),
        )
        committed = await store.commit(commit)
        assert (committed.step_no, committed.commands, committed.now) == (1, (), clock.now_ms)
        (step,) = await store.steps(claim.run_id)
        assert (step.n, step.kind, step.name, step.input, step.output) == (0, "model", "reply", body("in"), body("out"))
        assert (step.started_at, step.completed_at, step.attempt) == (clock.now_ms - SECOND, clock.now_ms, 1)
        run = await store.run(claim.run_id)
        assert (run.turn_id, run.phase, run.step_no, run.event_count) == ("turn_0", Phase.WAITING, 1, 1)
        told = await store.events(claim.run_id, hidden=True)
        assert [e.body for e in told if e.type == "test.event"] == [body("a"), body("b")]
        (opened,) = await store.open_prompts(claim.run_id)
        assert (opened.prompt_id, opened.created_at, opened.created_seq) == (question.prompt_id, clock.now_ms, 1)
        where = await store.submission(claim.commands[0].submission_id)
        assert (where.consumed, where.turn_id, where.outcome, where.detail) == (True, "turn_0", Outcome.COMPLETED, body("detail"))
        assert (where.reply_step, where.done_at, where.run_phase, where.run_turn_id) == (0, clock.now_ms, Phase.WAITING, "turn_0")
        assert await store.rows(NOTES, {"run_id": claim.run_id}) == [("n",)]
        assert await send_all(store) == [card.delivery_id]

    @pytest.mark.parametrize("more", ["keep", "release", "end", "settle"])
    async def test_s11_two_steps_are_finished_by_one_commit(self, store: Store, clock: WindableClock, more: str) -> None:
        claim = await start(store)
        clock.advance(ms(SECOND))
        commit = step_commit(
            claim,
            before="first",
            output="second",
            turn_id="turn_0",
            outcomes=done(claim),
            events=(event("a"), event("b")),
            outbox=(post(),) if more == "settle" else (),
            phase=Phase.RUNNING if more == "keep" else Phase.IDLE,
            release=more == "release",
            end="done" if more in {"end", "settle"} else None,
        )
        committed = await store.commit(commit)
        assert committed.step_no == 2
        first, second = await store.steps(claim.run_id)
        assert (first.n, first.name, first.input, first.output) == (0, "before", body("in"), body("first"))
        assert (second.n, second.name, second.input, second.output) == (1, "reply", body("in"), body("second"))
        assert (first.started_at, first.completed_at) == (clock.now_ms - SECOND, clock.now_ms)
        assert (second.started_at, second.completed_at) == (clock.now_ms, clock.now_ms)
        run = await store.run(claim.run_id)
        assert (run.step_no, run.status) == (2, RunStatus.ENDED if commit.end else RunStatus.OPEN)
        assert (await store.submission(claim.commands[0].submission_id)).outcome is Outcome.COMPLETED
        with pytest.raises(LeaseLost):
            await store.commit(commit)
        await check_run(store, claim.run_id)
        if more == "keep":
            again = await store.commit(step_commit(claim, step_n=2, consume=False, before="third"))
            assert again.step_no == 4
            await check_run(store, claim.run_id)

    async def test_s11_a_commit_that_breaks_at_its_last_statement_writes_nothing(self, store: Store) -> None:
        claim = await start(store)
        bad = step_commit(
            claim,
            turn_id="turn_0",
            outcomes=done(claim),
            events=(event(),),
            outbox=(post(),),
            prompts=(prompt(),),
            release=True,
            extra=(note(claim.run_id, "n"), note(claim.run_id, "n")),
        )
        with pytest.raises(Broken):
            await store.commit(bad)
        await untouched(store, claim)
        assert await store.events(claim.run_id, hidden=True) == []
        assert await send_all(store) == []

    async def test_s11_a_commit_whose_settlement_lost_writes_nothing(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        await store.answer(answer(prompt_id))
        before = await store.refresh(claim.run_id, claim.epoch)
        await send_all(store)
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.IGNORED)
        bad = step_commit(
            before,
            outcomes=done(before),
            events=(event("lost"),),
            outbox=(post(text="lost"),),
            prompts=(prompt(),),
            settle=(settle,),
            extra=(note(claim.run_id, "lost"),),
        )
        with pytest.raises(PromptTaken) as caught:
            await store.commit(bad)
        assert caught.value.prompt_id == prompt_id
        again = await store.refresh(claim.run_id, claim.epoch)
        assert (again.step_no, again.commands) == (before.step_no, before.commands)
        assert await store.open_prompts(claim.run_id) == []
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
        assert await store.rows(NOTES, {"run_id": claim.run_id}) == []
        assert await send_all(store) == []
        assert (await store.commit(step_commit(again))).step_no == before.step_no + 1, "the lease must have survived"

    async def test_s11_a_failing_commit_takes_no_neighbour_along(self, store: Store) -> None:
        claims = [await start(store, address=str(n)) for n in range(6)]
        commits = [step_commit(c, extra=(note(c.run_id, "n"),) * (1 + (n == 3))) for n, c in enumerate(claims)]
        results = await asyncio.gather(*(store.commit(c) for c in commits), return_exceptions=True)
        assert [isinstance(r, Broken) for r in results] == [n == 3 for n in range(6)]
        assert [(await store.run(c.run_id)).step_no for c in claims] == [int(n != 3) for n in range(6)]

    async def test_s11_a_cancelled_caller_leaves_a_whole_commit_or_none(self, store: Store) -> None:
        claim = await start(store)
        task = asyncio.create_task(store.commit(step_commit(claim, events=(event(),), extra=(note(claim.run_id, "n"),))))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.append(claim.run_id, claim.epoch, ())  # stands behind the commit, should that still be on its way
        again = await store.refresh(claim.run_id, claim.epoch)
        marks = await store.rows(NOTES, {"run_id": claim.run_id})
        events = await store.events(claim.run_id)
        assert (len(marks), len(events), len(again.commands)) == (again.step_no, again.step_no, 1 - again.step_no)

    async def test_s11_what_was_consumed_is_linked_to_the_turn_that_took_it(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim, turn_id=None, link_turn="turn_0", outcomes=done(claim)))
        where = await store.submission(claim.commands[0].submission_id)
        assert (where.turn_id, where.run_turn_id) == ("turn_0", None)

    # ── S12 ──
    async def test_s12_a_completed_step_never_changes(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim, output="first"))
        kept = await store.steps(claim.run_id)
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(claim, output="second", consume=False))
        await store.commit(step_commit(claim, step_n=1, output="next", consume=False))
        assert (await store.steps(claim.run_id))[:1] == kept
        assert [s.n for s in await store.steps(claim.run_id, start=1)] == [1]

    async def test_s12_of_two_commits_of_one_step_one_is_kept(self, store: Store) -> None:
        claim = await start(store)
        tries = [step_commit(claim, output=str(n), events=(event(str(n)),)) for n in range(10)]
        results = await asyncio.gather(*(store.commit(t) for t in tries), return_exceptions=True)
        winners = [n for n, r in enumerate(results) if not isinstance(r, BaseException)]
        assert len(winners) == 1
        assert sum(isinstance(r, LeaseLost) for r in results) == 9
        assert [s.output for s in await store.steps(claim.run_id)] == [body(str(winners[0]))]
        assert [e.body for e in await store.events(claim.run_id)] == [body(str(winners[0]))]

    # ── S13 ──
    async def test_s13_input_between_seen_and_release_is_not_lost(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "came in meanwhile")
        await park(store, claim)
        assert [c.seq for c in (await claim_one(store)).commands] == [2]

    async def test_s13_input_races_the_release_and_is_never_lost(self, store: Store) -> None:
        claim = await start(store)
        for n in range(30):
            first, second = message(claim.run_id, text=f"a{n}"), message(claim.run_id, text=f"b{n}")
            await asyncio.gather(store.admit(first), park(store, claim), store.admit(second))
            claim = await claim_one(store)
            assert claim.commands, "input is there, or the run would not be due"
            assert claim.signals.inbox_seq == claim.commands[-1].seq, "a claim carries all input that it counts"
        await park(store, claim)
        assert await asleep(store)
        assert (await store.run(claim.run_id)).step_no == 31

    async def test_s13_two_connections_race_release_against_input(self, store: Store, peer: Store) -> None:
        claim = await start(store)
        for n in range(15):
            await asyncio.gather(peer.admit(message(claim.run_id, text=str(n))), park(store, claim))
            claim = await claim_one(peer if n % 2 else store)
            assert [c.body for c in claim.commands] == [body(str(n))]

    async def test_s13_seen_but_unconsumed_input_does_not_wake_again(self, store: Store) -> None:
        claim = await start(store)
        await park(store, claim, consume=False)
        assert await asleep(store)
        await accept(store, claim.run_id, "more")
        assert [c.seq for c in (await claim_one(store)).commands] == [1, 2]

    async def test_s13_a_released_run_wakes_at_its_timer(self, store: Store, clock: WindableClock) -> None:
        await parked(store, timer_at=clock.now_ms + MINUTE)
        clock.advance(ms(MINUTE - 1))
        assert await asleep(store)
        clock.advance(ms(1))
        assert (await claim_one(store)).commands == ()

    async def test_s13_a_released_run_wakes_at_its_deadline(self, store: Store, clock: WindableClock) -> None:
        run_id = await parked(store, lifetime_ms=MINUTE, timer_at=clock.now_ms + 2 * MINUTE)
        clock.advance(ms(MINUTE - 1))
        assert await asleep(store)
        clock.advance(ms(1))
        claim = await claim_one(store)
        assert (claim.run_id, claim.deadline_at) == (run_id, clock.now_ms)

    async def test_s13_an_earlier_timer_goes_before_the_deadline(self, store: Store, clock: WindableClock) -> None:
        await parked(store, lifetime_ms=2 * MINUTE, timer_at=clock.now_ms + MINUTE)
        clock.advance(ms(MINUTE))
        claim = await claim_one(store)
        await store.release(claim.run_id, claim.epoch, timer_at=None, seen=claim.signals.inbox_seq, unused=True)
        assert await asleep(store)
        clock.advance(ms(MINUTE))
        assert (await claim_one(store)).run_id == claim.run_id

    async def test_s13_a_deadline_that_passed_within_a_turn_does_not_wake_the_run_again_and_again(
        self, store: Store, clock: WindableClock
    ) -> None:
        claim = await start(store, lifetime_ms=MINUTE)
        later = clock.now_ms + 3 * MINUTE
        await store.commit(step_commit(claim, phase=Phase.WAITING, release=True, timer_at=later, turn_id="turn_0"))
        clock.advance(ms(2 * MINUTE))
        claim = await claim_one(store)
        await store.release(claim.run_id, claim.epoch, timer_at=later, seen=claim.signals.inbox_seq, unused=True)
        assert await asleep(store)
        clock.advance(ms(MINUTE))
        assert (await claim_one(store)).run_id == claim.run_id

    async def test_s13_a_release_without_a_step_loses_no_input_either(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        await store.release(claim.run_id, claim.epoch, timer_at=clock.now_ms + MINUTE, seen=1, unused=True)
        assert await asleep(store)
        await accept(store, claim.run_id, "b")
        claim = await claim_one(store)
        await accept(store, claim.run_id, "c")
        await store.release(claim.run_id, claim.epoch, timer_at=clock.now_ms + MINUTE, seen=2, unused=True)
        assert [c.seq for c in (await claim_one(store)).commands] == [1, 2, 3]

    async def test_s13_a_kept_lease_goes_on_with_the_next_step(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "b")
        committed = await store.commit(step_commit(claim))
        assert [(c.seq, c.body) for c in committed.commands] == [(2, body("b"))]
        await store.commit(step_commit(claim, step_n=1, consumed=(2,), seen=2, release=True))
        assert await asleep(store)

    # ── S14 ──
    async def test_s14_the_first_outcome_stays(self, store: Store) -> None:
        claim = await start(store)
        await store.commit(step_commit(claim, outcomes=done(claim, Outcome.FAILED)))
        await store.commit(step_commit(claim, step_n=1, consume=False, outcomes=done(claim, Outcome.COMPLETED), end="done"))
        assert (await store.submission(claim.commands[0].submission_id)).outcome is Outcome.FAILED

    async def test_s14_ending_by_a_commit_aborts_what_nobody_consumed(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False, copies=(ADDRESS, "copy"))
        left = await accept(store, claim.run_id, "b", "c")
        await send_all(store)
        await store.commit(step_commit(claim, step_n=1, consume=False, events=(event("over"),), end="done"))
        for receipt in left:
            where = await store.submission(receipt.submission_id)
            assert (where.outcome, where.consumed) == (Outcome.ABORTED, False)
        run = await store.run(claim.run_id)
        assert (run.status, run.end_reason, run.ended_at is not None) == (RunStatus.ENDED, "done", True)
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.CANCELLED
        assert await store.run_at(CHANNEL, ADDRESS) is None
        assert len(await send_all(store)) == 2, "each posted card is owed an edit"
        with pytest.raises(LeaseLost):
            await store.append(claim.run_id, claim.epoch, (event("late"),))
        with pytest.raises(SessionEnded):
            await store.admit(message(claim.run_id))

    async def test_s14_ending_while_a_worker_holds_the_run(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        left = await accept(store, claim.run_id, "b")
        taken = claim.commands[0].submission_id
        await reply(store, claim, step_n=1)
        ended = await store.end(claim.run_id, reason="reset", events=(event("ended"),), extra=(note(claim.run_id, "n"),))
        assert ended
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(claim, step_n=1, consume=False, events=(event("late"),)))
        assert (await store.submission(left[0].submission_id)).outcome is Outcome.ABORTED
        assert (await store.submission(taken)).outcome is Outcome.ABORTED, "consumed, and nobody is left to finish it"
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.CANCELLED
        assert await store.run_at(CHANNEL, ADDRESS) is None
        assert [e.body for e in await store.events(claim.run_id)] == [body("ended")]
        assert await store.rows(NOTES, {"run_id": claim.run_id}) == [("n",)]
        assert await store.reap("w1") == 0
        assert await asleep(store)

    async def test_s14_a_run_ends_once(self, store: Store) -> None:
        run_id = await parked(store)
        results = await asyncio.gather(*(store.end(run_id, reason=str(n), events=(event(str(n)),)) for n in range(5)))
        assert sorted(results) == [False] * 4 + [True]
        winner = str(results.index(True))
        assert (await store.run(run_id)).end_reason == winner
        assert [e.body for e in await store.events(run_id)] == [body(winner)]

    async def test_s14_of_end_and_commit_one_wins(self, store: Store) -> None:
        for n in range(10):
            claim = await start(store, address=str(n))
            commit = step_commit(claim, outcomes=done(claim), release=True)
            calls = (store.commit(commit), store.end(claim.run_id, reason="reset", events=()))
            first, second = await asyncio.gather(*calls, return_exceptions=True)
            assert second is True
            where = await store.submission(claim.commands[0].submission_id)
            lost = isinstance(first, LeaseLost)
            assert where.outcome is (Outcome.ABORTED if lost else Outcome.COMPLETED)

    async def test_s14_ending_keeps_finished_outcomes(self, store: Store) -> None:
        claim = await start(store)
        await park(store, claim)
        await store.end(claim.run_id, reason="reset", events=())
        assert (await store.submission(claim.commands[0].submission_id)).outcome is Outcome.COMPLETED
        fresh = await store.admit(message(to_address()))
        assert fresh.created
