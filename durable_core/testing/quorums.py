"""S38: what a prompt promises that several people have to approve, and what an override does.

What lives here: votes, one person's denial, overrides, races of many people. What does not: prompts for one person (`prompts`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from durable_core.model import (
    AnswerPolicy,
    AnswerReceipt,
    AnswerStatus,
    Interaction,
    Outcome,
    Prompt,
    PromptOutcome,
    PromptSettlement,
    PromptUpdate,
    Verdict,
)
from durable_core.store import Store
from durable_core.testing.acts import asked, asleep, claim_one, interaction_one, send_all
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, LEASE, MINUTE, answer, body, cancel, event, ms, step_commit

CAROL = "console:carol"
PEOPLE = tuple(f"console:person{n}" for n in range(20))
LISTED = AnswerPolicy.LISTED
COUNTS = (event("first"), event("second"))


def voters(prompt: Prompt | None) -> set[str]:
    """Return who has approved a prompt so far."""
    assert prompt is not None
    assert len({vote.principal for vote in prompt.votes}) == len(prompt.votes), "somebody counts twice"
    return {vote.principal for vote in prompt.votes}


def tally(receipts: list[AnswerReceipt]) -> Counter[AnswerStatus]:
    """Count what became of answers."""
    return Counter(receipt.status for receipt in receipts)


def allow(interaction: Interaction) -> Verdict:
    """Return a verdict that lets an answer through."""
    return Verdict(
        interaction_id=interaction.interaction_id,
        epoch=interaction.epoch,
        allowed=True,
        events=(event("decided"),),
        counted=(event("counted"),),
    )


class Quorums(StoreBench):
    """Quorums: S38."""

    async def test_s38_the_last_of_so_many_people_settles_it(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB, CAROL), quorum=3)
        for count, who in enumerate((BOB, ALICE), start=1):
            receipt = await store.answer(answer(prompt_id, by=who, events=(event("settled"),), counted=(event("counted"),)))
            assert (receipt.status, receipt.reason) == (AnswerStatus.COUNTED, None)
            assert len(voters(receipt.prompt)) == count
            assert receipt.prompt == await store.prompt(prompt_id)
            assert (await store.submission(receipt.submission_id)).outcome is Outcome.COMPLETED
        assert await asleep(store), "a vote that settles nothing is no input"
        clock.advance(ms(5))
        last = await store.answer(answer(prompt_id, by=CAROL, events=(event("settled"),), counted=(event("counted"),)))
        assert last.status is AnswerStatus.SETTLED
        settled = await store.prompt(prompt_id)
        assert last.prompt == settled
        assert (settled.outcome, settled.settled_by, settled.settled_name) == (PromptOutcome.APPROVED, CAROL, "Carol")
        assert voters(settled) == {ALICE, BOB, CAROL}
        vote = settled.votes[-1]
        assert (vote.principal, vote.name, vote.option_id, vote.via, vote.at) == (
            CAROL,
            "Carol",
            "approve",
            "button",
            clock.now_ms,
        )
        assert [e.body for e in await store.events(claim.run_id)] == [body("counted"), body("counted"), body("settled")]
        (response,) = (await claim_one(store)).commands
        assert response.principal == CAROL

    async def test_s38_a_vote_is_seen_wherever_its_prompt_is_read(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, quorum=2, release=False)
        await store.answer(answer(prompt_id, by=BOB))
        await store.decide(allow(await interaction_one(store)))
        await store.answer(answer(prompt_id, by=CAROL))
        waiting = await interaction_one(store)
        (in_claim,) = (await store.refresh(claim.run_id, claim.epoch)).prompts
        (in_list,) = await store.open_prompts(claim.run_id)
        for prompt in (in_claim, in_list, waiting.prompt, await store.prompt(prompt_id)):
            assert (prompt.quorum, voters(prompt)) == (2, {BOB})
        await store.decide(allow(waiting))
        (settled,) = (await store.refresh(claim.run_id, claim.epoch)).prompts
        assert (settled.outcome, voters(settled)) == (PromptOutcome.APPROVED, {BOB, CAROL})

    async def test_s38_a_prompt_for_one_person_has_no_votes(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED
        assert (await store.prompt(prompt_id)).votes == ()

    async def test_s38_each_person_counts_once(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        first = answer(prompt_id, by=BOB, key="click")
        assert (await store.answer(first)).status is AnswerStatus.COUNTED
        again = await store.answer(replace(first, submission_id="sub_again"))
        assert (again.status, again.submission_id, again.deduplicated) == (AnswerStatus.COUNTED, first.submission_id, True)
        twice = await store.answer(answer(prompt_id, by=BOB))
        assert (twice.status, twice.reason) == (AnswerStatus.REFUSED, "already_voted")
        assert voters(await store.prompt(prompt_id)) == {BOB}
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s38_who_has_approved_may_still_deny(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        assert (await store.answer(answer(prompt_id, by=BOB))).status is AnswerStatus.COUNTED
        assert (await store.answer(answer(prompt_id, by=BOB, outcome=PromptOutcome.DENIED))).status is AnswerStatus.SETTLED
        prompt = await store.prompt(prompt_id)
        assert (prompt.outcome, prompt.settled_by, voters(prompt)) == (PromptOutcome.DENIED, BOB, {BOB})

    async def test_s38_one_who_denies_ends_it(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        await store.answer(answer(prompt_id, by=BOB))
        receipt = await store.answer(answer(prompt_id, outcome=PromptOutcome.DENIED))
        assert receipt.status is AnswerStatus.SETTLED
        settled = await store.prompt(prompt_id)
        assert (settled.outcome, settled.settled_by, voters(settled)) == (PromptOutcome.DENIED, ALICE, {BOB})

    async def test_s38_an_answer_to_a_question_counts_too(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        answers = [replace(answer(prompt_id, by=who), outcome=PromptOutcome.ANSWERED) for who in (ALICE, BOB)]
        statuses = [(await store.answer(given)).status for given in answers]
        assert statuses == [AnswerStatus.COUNTED, AnswerStatus.SETTLED]
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.ANSWERED

    async def test_s38_whoever_may_not_answer_does_not_count(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(BOB, CAROL), quorum=2)
        refused = await store.answer(answer(prompt_id))
        assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "not_yours")
        assert voters(await store.prompt(prompt_id)) == set()

    async def test_s38_no_vote_counts_that_comes_too_late(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2, expires_at=clock.now_ms + MINUTE)
        await store.answer(answer(prompt_id, by=BOB))
        clock.advance(ms(MINUTE))
        late = await store.answer(answer(prompt_id))
        assert (late.status, late.reason) == (AnswerStatus.REFUSED, "expired")
        assert voters(await store.prompt(prompt_id)) == {BOB}

    async def test_s38_each_vote_owes_an_edit_to_every_posted_copy(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2, copies=("a", "b"))
        posted = await send_all(store)
        for who in (ALICE, BOB):
            await store.answer(answer(prompt_id, by=who))
            lanes = await store.claim_lanes("w1", limit=10, lease_ms=LEASE)
            assert {lane.address: [i.edit_of in posted for i in lane.items] for lane in lanes} == {"a": [True], "b": [True]}
            for lane in lanes:
                await store.release_lane(lane, "w1")
            assert len(await send_all(store)) == 2

    async def test_s38_a_worker_s_verdicts_count_like_answers_at_once(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, quorum=2)
        for who in (ALICE, BOB, CAROL):
            await store.answer(answer(prompt_id, by=who))
        waiting = await store.take_interactions("w1", limit=10, lease_ms=LEASE)
        receipts = [await store.decide(allow(one)) for one in waiting]
        statuses = [receipt.status for receipt in receipts]
        assert statuses == [AnswerStatus.COUNTED, AnswerStatus.SETTLED, AnswerStatus.ALREADY_SETTLED]
        assert [e.body for e in await store.events(claim.run_id)] == [body("counted"), body("decided")]
        assert len((await claim_one(store)).commands) == 1
        counted = await store.interaction_result(receipts[0].submission_id)
        assert counted is not None
        assert (counted.status, len(voters(counted.prompt))) == (AnswerStatus.COUNTED, 2)

    async def test_s38_whoever_waits_for_a_worker_twice_counts_once(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, quorum=2)
        for key in ("one", "two"):
            assert (await store.answer(answer(prompt_id, by=BOB, key=key))).status is AnswerStatus.PENDING
        waiting = await store.take_interactions("w1", limit=10, lease_ms=LEASE)
        receipts = await asyncio.gather(*(store.decide(allow(one)) for one in waiting))
        assert tally(list(receipts)) == {AnswerStatus.COUNTED: 1, AnswerStatus.REFUSED: 1}
        third = await store.answer(answer(prompt_id, by=BOB))
        assert (third.status, third.reason) == (AnswerStatus.REFUSED, "already_voted"), "a worker isn't asked for nothing"

    @pytest.mark.parametrize("quorum", [3, 20])
    async def test_s38_of_twenty_racing_people_exactly_so_many_count(self, store: Store, quorum: int) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=PEOPLE, quorum=quorum)
        receipts = await asyncio.gather(*(store.answer(answer(prompt_id, by=who, events=(event("settled"),))) for who in PEOPLE))
        await self.check_race(store, claim.run_id, prompt_id, list(receipts), quorum)

    async def test_s38_people_of_two_processes_race_too(self, store: Store, peer: Store) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=PEOPLE, quorum=3)
        stores = (store, peer)
        receipts = await asyncio.gather(
            *(stores[n % 2].answer(answer(prompt_id, by=who, events=(event("settled"),))) for n, who in enumerate(PEOPLE))
        )
        await self.check_race(peer, claim.run_id, prompt_id, list(receipts), 3)

    async def check_race(self, store: Store, run_id: str, prompt_id: str, receipts: list[AnswerReceipt], quorum: int) -> None:
        counts = {
            AnswerStatus.COUNTED: quorum - 1,
            AnswerStatus.SETTLED: 1,
            AnswerStatus.ALREADY_SETTLED: len(PEOPLE) - quorum,
        }
        assert tally(receipts) == Counter(counts)
        settled = await store.prompt(prompt_id)
        winner = next(who for who, r in zip(PEOPLE, receipts, strict=True) if r.status is AnswerStatus.SETTLED)
        assert settled.settled_by == winner
        counted = {who for who, r in zip(PEOPLE, receipts, strict=True) if r.status is not AnswerStatus.ALREADY_SETTLED}
        assert voters(settled) == counted
        assert [e.body for e in await store.events(run_id)] == [body("settled")]
        assert len((await claim_one(store)).commands) == 1

    # ── votes of those who may not answer any more ──
    async def test_s38_a_vote_goes_with_its_giver_s_place_on_the_list(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB, CAROL), quorum=2, release=False)
        assert (await store.answer(answer(prompt_id, by=ALICE, counted=COUNTS))).status is AnswerStatus.COUNTED
        update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=1, answerers=(BOB, CAROL))
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,)))
        assert voters(await store.prompt(prompt_id)) == {ALICE}, "nobody has joined it yet"
        first = await store.answer(answer(prompt_id, by=BOB, counted=COUNTS))
        assert (first.status, voters(first.prompt)) == (AnswerStatus.COUNTED, {BOB})
        assert first.prompt == await store.prompt(prompt_id)
        assert (await store.answer(answer(prompt_id, by=CAROL))).status is AnswerStatus.SETTLED
        assert voters(await store.prompt(prompt_id)) == {BOB, CAROL}
        assert [e.body for e in await store.events(claim.run_id)] == [body("first"), body("first")]
        acts = [(entry.act, entry.principal) for entry in await store.audit()]
        assert acts == [("counted", ALICE), ("moved", None), ("lapsed", ALICE), ("counted", BOB), ("settled", CAROL)]

    async def test_s38_a_vote_of_somebody_who_is_asked_still_stands(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2, release=False)
        await store.answer(answer(prompt_id, by=ALICE))
        update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=1, answerers=(ALICE, CAROL))
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,)))
        assert (await store.answer(answer(prompt_id, by=CAROL))).status is AnswerStatus.SETTLED
        assert voters(await store.prompt(prompt_id)) == {ALICE, CAROL}

    async def test_s38_a_verdict_says_whose_votes_have_lapsed(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, quorum=2)
        for who, lapsed in ((ALICE, ()), (BOB, (ALICE, "console:nobody"))):
            name = f"giver:{(await store.answer(answer(prompt_id, by=who))).submission_id}"
            decided = await store.decide(replace(allow(await interaction_one(store)), lapsed=lapsed))
            assert (decided.status, voters(decided.prompt)) == (AnswerStatus.COUNTED, {who})
            assert await store.content(claim.run_id, [name]) == {name: body(who)}
        await store.answer(answer(prompt_id, by=ALICE))  # whose vote went may give another one
        decided = await store.decide(allow(await interaction_one(store)))
        assert (decided.status, voters(decided.prompt)) == (AnswerStatus.SETTLED, {ALICE, BOB})

    async def test_s38_what_counts_for_nothing_takes_no_vote_away(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, quorum=3)
        await store.answer(answer(prompt_id, by=ALICE))
        await store.decide(allow(await interaction_one(store)))
        await store.answer(answer(prompt_id, by=BOB))
        refused = replace(allow(await interaction_one(store)), allowed=False, lapsed=(ALICE,))
        assert voters((await store.decide(refused)).prompt) == {ALICE}
        await store.answer(answer(prompt_id, by=CAROL, outcome=PromptOutcome.DENIED))
        denied = await store.decide(replace(allow(await interaction_one(store)), lapsed=(ALICE,)))
        assert (denied.status, voters(denied.prompt)) == (AnswerStatus.SETTLED, {ALICE})

    # ── overrides ──
    async def test_s38_an_override_settles_whatever_the_quorum_and_the_policy(self, store: Store) -> None:
        for n, policy in enumerate(AnswerPolicy):
            claim, prompt_id = await asked(store, policy=policy, answerers=(ALICE,), quorum=3, copies=(str(n),))
            receipt = await store.answer(answer(prompt_id, by=BOB, override=True))
            assert receipt.status is AnswerStatus.SETTLED
            settled = await store.prompt(prompt_id)
            assert (settled.outcome, settled.settled_by, settled.votes) == (PromptOutcome.APPROVED, BOB, ())
            await store.end(claim.run_id, reason="next", events=())

    async def test_s38_somebody_who_voted_can_override(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        await store.answer(answer(prompt_id, by=BOB))
        assert (await store.answer(answer(prompt_id, by=BOB, override=True))).status is AnswerStatus.SETTLED
        assert voters(await store.prompt(prompt_id)) == {BOB}

    async def test_s38_an_override_that_a_worker_looks_at_is_one_still(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        given = answer(prompt_id, by=CAROL, override=True, judge=True)
        assert (await store.answer(given)).status is AnswerStatus.PENDING
        waiting = await interaction_one(store)
        assert (waiting.answer.override, waiting.answer.where) == (True, given.where)
        assert (await store.decide(allow(waiting))).status is AnswerStatus.SETTLED

    async def test_s38_an_override_brings_nothing_back(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, quorum=2, expires_at=clock.now_ms + MINUTE, release=False)
        given = answer(prompt_id, by=BOB, override=True)
        clock.advance(ms(MINUTE))
        late = await store.answer(given)
        assert (late.status, late.reason) == (AnswerStatus.REFUSED, "expired")
        expired = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.EXPIRED)
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(expired,)))
        later = await store.answer(answer(prompt_id, by=BOB, override=True))
        assert later.status is AnswerStatus.ALREADY_SETTLED
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.EXPIRED

    async def test_s38_an_override_after_a_cancel_loses(self, store: Store) -> None:
        claim, prompt_id = await asked(store, quorum=2)
        await store.admit(cancel(claim.run_id))
        late = await store.answer(answer(prompt_id, by=BOB, override=True))
        assert (late.status, late.reason) == (AnswerStatus.REFUSED, "cancelled")
