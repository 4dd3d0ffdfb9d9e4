"""S18: what an answer promises whose policy is a function.

What lives here: waiting, taking, deciding. What does not: policies that are data (`prompts`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import AnswerPolicy, AnswerStatus, CommandKind, Interaction, PromptOutcome, PromptSettlement, Verdict
from durable_core.store import Store
from durable_core.testing.acts import asked, asleep, claim_one, interaction_one, send_all
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, LEASE, MINUTE, answer, body, cancel, event, ms, post, step_commit

FUNCTION = AnswerPolicy.FUNCTION


def allow(interaction: Interaction, *, allowed: bool = True) -> Verdict:
    """Return a verdict about an interaction."""
    return Verdict(
        interaction_id=interaction.interaction_id,
        epoch=interaction.epoch,
        allowed=allowed,
        reason=None if allowed else "not an approver",
        events=(event("decided"),) if allowed else (),
    )


class Interactions(StoreBench):
    """Interactions: S18."""

    async def test_s18_an_answer_that_needs_a_function_waits(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION)
        click = answer(prompt_id, by=BOB)
        receipt = await store.answer(click)
        assert receipt.status is AnswerStatus.PENDING
        assert (await store.prompt(prompt_id)).outcome is None
        assert await store.interaction_result(receipt.submission_id) is None
        assert await asleep(store)
        taken = await interaction_one(store)
        assert (taken.interaction_id, taken.run_name) == (receipt.submission_id, "support")
        assert (taken.prompt.prompt_id, taken.prompt.run_id, taken.prompt.body) == (prompt_id, claim.run_id, body("Refund 20?"))
        assert (taken.answer.principal, taken.answer.option_id, taken.answer.body) == (BOB, "approve", click.body)
        assert (taken.answer.outcome, taken.answer.name, taken.answer.via) == (PromptOutcome.APPROVED, "Bob", "button")

    async def test_s18_whoever_answered_in_vain_is_told_once(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        told = post(text="told")
        await store.answer(answer(prompt_id, by=BOB))
        decided = await store.decide(replace(allow(await interaction_one(store), allowed=False), tell=told))
        assert decided.status is AnswerStatus.REFUSED
        assert told.delivery_id in await send_all(store)

    async def test_s18_what_can_not_be_decided_yet_is_given_back_until_then(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        first = await interaction_one(store)
        later = clock.now_ms + MINUTE
        await store.postpone(first, until=later)
        assert await store.take_interactions("w1", limit=1, lease_ms=LEASE) == []
        with pytest.raises(LeaseLost):
            await store.decide(allow(first))
        with pytest.raises(LeaseLost):
            await store.postpone(first, until=later)
        assert (await store.due("w1")).interaction_at == later
        clock.advance(ms(MINUTE))
        second = await interaction_one(store)
        assert (second.interaction_id, second.attempts, second.epoch) == (first.interaction_id, 2, first.epoch + 1)
        assert (await store.decide(allow(second))).status is AnswerStatus.SETTLED
        with pytest.raises(LeaseLost):
            await store.postpone(second, until=later)

    async def test_s18_a_refusal_at_once_is_told_and_a_settlement_is_not(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        refused, settled = post(text="refused"), post(text="settled")
        click = replace(answer(prompt_id, by=BOB), tell=refused)
        assert (await store.answer(click)).status is AnswerStatus.REFUSED
        assert (await store.answer(click)).deduplicated
        assert (await store.answer(replace(answer(prompt_id), tell=settled))).status is AnswerStatus.SETTLED
        late = replace(answer(prompt_id, by=BOB), tell=post(text="late"))
        assert (await store.answer(late)).status is AnswerStatus.ALREADY_SETTLED
        sent = await send_all(store)
        assert sent.count(refused.delivery_id) == 1
        assert settled.delivery_id not in sent
        assert late.tell is not None
        assert late.tell.delivery_id in sent

    async def test_s18_a_name_that_the_worker_found_out_stands_on_the_prompt(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        await store.decide(replace(allow(await interaction_one(store)), name="Robert"))
        assert (await store.prompt(prompt_id)).settled_name == "Robert"

    async def test_s18_even_the_requester_waits_for_the_function(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        assert (await store.answer(answer(prompt_id, by=ALICE))).status is AnswerStatus.PENDING

    async def test_s18_it_never_waits_behind_the_lease_of_the_run(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION, release=False)
        receipt = await store.answer(answer(prompt_id, by=BOB))
        decided = await store.decide(allow(await interaction_one(store, "w2")))
        assert (decided.status, decided.submission_id) == (AnswerStatus.SETTLED, receipt.submission_id)
        again = await store.refresh(claim.run_id, claim.epoch)
        assert [(c.kind, c.principal, c.submission_id) for c in again.commands] == [
            (CommandKind.RESPONSE, BOB, receipt.submission_id)
        ]
        assert [p.outcome for p in again.prompts] == [PromptOutcome.APPROVED]

    async def test_s18_a_decision_settles_wakes_and_owes_the_edits(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION, copies=("a", "b"))
        posted = await send_all(store)
        receipt = await store.answer(answer(prompt_id, by=BOB))
        await store.decide(allow(await interaction_one(store)))
        assert [c.kind for c in (await claim_one(store)).commands] == [CommandKind.RESPONSE]
        lanes = await store.claim_lanes("w1", limit=10, lease_ms=LEASE)
        assert {i.edit_of for lane in lanes for i in lane.items} == set(posted)
        assert [e.body for e in await store.events(claim.run_id)] == [body("decided")]
        result = await store.interaction_result(receipt.submission_id)
        assert result is not None
        assert result.status is AnswerStatus.SETTLED
        assert result.prompt is not None
        assert (result.prompt.settled_by, result.prompt.settled_name) == (BOB, "Bob")

    async def test_s18_a_refusal_keeps_the_card_and_wakes_nobody(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION)
        receipt = await store.answer(answer(prompt_id, by=BOB))
        decided = await store.decide(allow(await interaction_one(store), allowed=False))
        assert (decided.status, decided.reason) == (AnswerStatus.REFUSED, "not an approver")
        assert [p.prompt_id for p in await store.open_prompts(claim.run_id)] == [prompt_id]
        result = await store.interaction_result(receipt.submission_id)
        assert result is not None
        assert (result.status, result.reason) == (AnswerStatus.REFUSED, "not an approver")
        assert (await store.submission(receipt.submission_id)).outcome is not None
        assert await asleep(store)
        assert await store.take_interactions("w1", limit=10, lease_ms=LEASE) == []

    async def test_s18_one_worker_takes_an_interaction(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        taken = await asyncio.gather(*(store.take_interactions(o, limit=5, lease_ms=LEASE) for o in ("w1", "w2", "w3") * 3))
        assert sum(len(t) for t in taken) == 1

    async def test_s18_a_stale_verdict_changes_nothing(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        stale = await interaction_one(store, "w1")
        clock.advance(ms(LEASE + 1))
        fresh = await interaction_one(store, "w2")
        assert fresh.epoch > stale.epoch
        with pytest.raises(LeaseLost):
            await store.decide(allow(stale))
        assert (await store.prompt(prompt_id)).outcome is None
        assert (await store.decide(allow(fresh))).status is AnswerStatus.SETTLED

    async def test_s18_what_a_dead_worker_took_is_taken_at_once(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        stale = await interaction_one(store, "w1")
        assert "w1" in (await store.due("w2")).owners
        await store.reap("w1")
        fresh = await interaction_one(store, "w2")
        assert fresh.epoch > stale.epoch
        assert fresh.attempts > stale.attempts
        with pytest.raises(LeaseLost):
            await store.decide(allow(stale))

    async def test_s18_of_two_allowed_answers_one_settles(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=ALICE))
        await store.answer(answer(prompt_id, by=BOB, outcome=PromptOutcome.DENIED))
        both = await store.take_interactions("w1", limit=10, lease_ms=LEASE)
        assert len(both) == 2
        receipts = await asyncio.gather(*(store.decide(allow(i)) for i in both))
        assert sorted(r.status for r in receipts) == [AnswerStatus.ALREADY_SETTLED, AnswerStatus.SETTLED]
        assert len({r.prompt.outcome for r in receipts if r.prompt}) == 1
        assert len((await claim_one(store)).commands) == 1

    async def test_s18_a_verdict_after_expiry_cancel_or_settlement_loses(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION, expires_at=clock.now_ms + MINUTE, release=False)
        await store.answer(answer(prompt_id, by=BOB))
        first = await interaction_one(store, lease_ms=2 * MINUTE)
        clock.advance(ms(MINUTE))
        decided = await store.decide(allow(first))
        assert decided.status is not AnswerStatus.SETTLED
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.EXPIRED)
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(settle,)))
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.EXPIRED
        late = await store.answer(answer(prompt_id, by=ALICE))
        assert late.status is AnswerStatus.ALREADY_SETTLED

    async def test_s18_a_verdict_after_a_cancel_loses(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION)
        await store.answer(answer(prompt_id, by=BOB))
        taken = await interaction_one(store)
        await store.admit(cancel(claim.run_id))
        assert (await store.decide(allow(taken))).status is not AnswerStatus.SETTLED
        assert (await store.prompt(prompt_id)).outcome is None

    async def test_s18_a_verdict_after_the_end_loses(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=FUNCTION)
        receipt = await store.answer(answer(prompt_id, by=BOB))
        taken = await interaction_one(store)
        await store.end(claim.run_id, reason="reset", events=())
        try:
            status = (await store.decide(allow(taken))).status
        except LeaseLost:
            status = AnswerStatus.ALREADY_SETTLED
        assert status is AnswerStatus.ALREADY_SETTLED
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.CANCELLED
        assert (await store.submission(receipt.submission_id)).outcome is not None
        assert await asleep(store)

    async def test_s18_a_redelivered_click_waits_once(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        click = answer(prompt_id, by=BOB, key="click")
        await store.answer(click)
        again = await store.answer(replace(click, submission_id="sub_again"))
        assert (again.status, again.submission_id, again.deduplicated) == (AnswerStatus.PENDING, click.submission_id, True)
        await store.decide(allow(await interaction_one(store)))
        settled = await store.answer(click)
        assert (settled.status, settled.deduplicated) == (AnswerStatus.SETTLED, True)

    async def test_s18_waiting_answers_are_due(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, policy=FUNCTION)
        assert (await store.due("w1")).interaction_at is None
        await store.answer(answer(prompt_id, by=BOB))
        assert (await store.due("w1")).interaction_at == clock.now_ms
