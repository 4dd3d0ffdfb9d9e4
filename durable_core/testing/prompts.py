"""S16–S17: what settling a prompt promises.

What lives here: answers whose policy is data, settlements by commits, edits of cards. What does not: functions (`interactions`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import Conflict, NotFound, PromptTaken, RunChanged
from durable_core.model import (
    AnswerPolicy,
    AnswerStatus,
    CommandKind,
    Outcome,
    Phase,
    PromptOutcome,
    PromptSettlement,
    RunStatus,
    SeenOpen,
    Sent,
    Verdict,
)
from durable_core.store import Store
from durable_core.testing.acts import accept, asked, asleep, claim_one, interaction_one, lane_one, send_all, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import (
    ADDRESS,
    ALICE,
    BOB,
    LEASE,
    MINUTE,
    answer,
    body,
    cancel,
    event,
    message,
    ms,
    post,
    prompt,
    step_commit,
    to_address,
)


async def not_settled(store: Store, prompt_id: str, status: AnswerStatus) -> None:
    """Check that an answer lost and nothing came of it."""
    assert status is not AnswerStatus.SETTLED
    assert status is not AnswerStatus.PENDING
    assert (await store.prompt(prompt_id)).outcome in {None, PromptOutcome.EXPIRED, PromptOutcome.CANCELLED}


class Prompts(StoreBench):
    """Prompts: S16 and S17."""

    # ── S16 ──
    async def test_s16_the_first_answer_wins_and_the_second_learns_who(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store)
        clock.advance(ms(5))
        won = await store.answer(answer(prompt_id))
        assert (won.status, won.run_id, won.deduplicated) == (AnswerStatus.SETTLED, claim.run_id, False)
        late = await store.answer(answer(prompt_id, outcome=PromptOutcome.DENIED))
        assert late.status is AnswerStatus.ALREADY_SETTLED
        for receipt in (won, late):
            assert receipt.prompt is not None
            assert (receipt.prompt.outcome, receipt.prompt.option_id) == (PromptOutcome.APPROVED, "approve")
            assert (receipt.prompt.settled_by, receipt.prompt.settled_name, receipt.prompt.settled_via) == (
                ALICE,
                "Alice",
                "button",
            )
            assert receipt.prompt.settled_at == clock.now_ms
        stale = await store.submission(late.submission_id)
        assert stale.outcome is Outcome.COMPLETED
        assert await store.open_prompts(claim.run_id) == []

    async def test_s16_a_stale_click_wakes_nobody_and_authorises_nothing(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await store.answer(answer(prompt_id))
        claim = await claim_one(store)
        await store.commit(step_commit(claim, release=True))
        await store.answer(answer(prompt_id, events=(event("late"),)))
        assert await asleep(store)
        assert await store.events(claim.run_id) == []

    async def test_s16_of_racing_clicks_one_settles(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        outcomes = [PromptOutcome.APPROVED, PromptOutcome.DENIED] * 10
        receipts = await asyncio.gather(*(store.answer(answer(prompt_id, outcome=o, events=(event(o.value),))) for o in outcomes))
        winners = [(r, o) for r, o in zip(receipts, outcomes, strict=True) if r.status is AnswerStatus.SETTLED]
        assert len(winners) == 1
        assert {r.prompt.outcome for r in receipts if r.prompt} == {winners[0][1]}
        assert [e.body for e in await store.events(claim.run_id)] == [body(winners[0][1].value)]
        assert len((await claim_one(store)).commands) == 1

    async def test_s16_a_redelivered_click_gets_its_first_answer(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        click = answer(prompt_id, key="click", run_id=claim.run_id)
        first = await store.answer(click)
        again = await store.answer(replace(click, submission_id="sub_again"))
        assert (again.status, again.submission_id, again.deduplicated) == (AnswerStatus.SETTLED, first.submission_id, True)
        assert len((await claim_one(store)).commands) == 1
        with pytest.raises(Conflict):
            await store.answer(replace(click, digest=b"other"))

    async def test_s16_another_person_is_refused_and_the_card_stays(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        refused = await store.answer(answer(prompt_id, by=BOB))
        assert refused.status is AnswerStatus.REFUSED
        assert (await store.submission(refused.submission_id)).outcome is not None
        assert [p.prompt_id for p in await store.open_prompts(claim.run_id)] == [prompt_id]
        assert await asleep(store)
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s16_without_identity_nobody_is_the_requester(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        assert (await store.answer(answer(prompt_id, by=""))).status is AnswerStatus.REFUSED

    async def test_s16_whom_a_list_names_settles_at_once_and_nobody_else(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.LISTED, answerers=(BOB, "console:carol"))
        assert (await store.prompt(prompt_id)).answerers == (BOB, "console:carol")
        for other in (ALICE, ""):
            refused = await store.answer(answer(prompt_id, by=other))
            assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "not_yours")
        assert (await store.answer(answer(prompt_id, by=BOB))).status is AnswerStatus.SETTLED
        assert (await store.prompt(prompt_id)).settled_by == BOB

    async def test_s16_a_list_without_anybody_lets_nobody_answer(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.LISTED)
        for who in (ALICE, BOB, ""):
            assert (await store.answer(answer(prompt_id, by=who))).status is AnswerStatus.REFUSED

    @pytest.mark.parametrize("policy", [AnswerPolicy.REQUESTER, AnswerPolicy.LISTED])
    async def test_s16_an_answer_that_changes_what_would_run_waits_for_a_worker(self, store: Store, policy: AnswerPolicy) -> None:
        _, prompt_id = await asked(store, policy=policy, answerers=(ALICE,))
        refused = await store.answer(answer(prompt_id, by=BOB, judge=True))
        assert (refused.status, refused.reason) == (AnswerStatus.REFUSED, "not_yours")
        given = answer(prompt_id, judge=True, note=body("other arguments"))
        assert (await store.answer(given)).status is AnswerStatus.PENDING
        waiting = await interaction_one(store)
        assert (waiting.answer.note, waiting.answer.where) == (given.note, given.where)
        verdict = Verdict(interaction_id=waiting.interaction_id, epoch=waiting.epoch, allowed=True)
        assert (await store.decide(verdict)).status is AnswerStatus.SETTLED
        assert (await store.prompt(prompt_id)).note == given.note

    async def test_s16_a_prompt_is_read_as_it_was_asked(self, store: Store, clock: WindableClock) -> None:
        claim = await start(store)
        draft = prompt(
            policy=AnswerPolicy.LISTED,
            answerers=(BOB,),
            quorum=1,
            asked="Bob of finance",
            remind_at=clock.now_ms + MINUTE,
            expires_at=clock.now_ms + 2 * MINUTE,
        )
        await store.commit(step_commit(claim, prompts=(draft,)))
        read = await store.prompt(draft.prompt_id)
        assert (read.policy, read.answerers, read.quorum, read.asked) == (draft.policy, draft.answerers, 1, draft.asked)
        assert (read.remind_at, read.expires_at, read.level, read.group) == (draft.remind_at, draft.expires_at, 0, None)
        assert read.votes == ()

    async def test_s16_an_expired_prompt_takes_no_answer(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, expires_at=clock.now_ms + MINUTE)
        clock.advance(ms(MINUTE))
        await not_settled(store, prompt_id, (await store.answer(answer(prompt_id))).status)

    async def test_s16_just_before_it_expires_a_prompt_takes_an_answer(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, expires_at=clock.now_ms + MINUTE)
        clock.advance(ms(MINUTE - 1))
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s16_a_click_after_a_cancel_loses(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        await store.admit(cancel(claim.run_id, turn_id="turn_0"))
        await not_settled(store, prompt_id, (await store.answer(answer(prompt_id))).status)
        again = await claim_one(store)
        assert again.signals.cancel_pending
        assert [c.kind for c in again.commands if c.kind is not CommandKind.CANCEL] == []
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.CANCELLED)
        await store.commit(step_commit(again, settle=(settle,)))
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.CANCELLED

    async def test_s16_a_cancel_of_another_turn_does_not_stop_a_click(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        await store.admit(cancel(claim.run_id, turn_id="turn_of_yesterday"))
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s16_click_expiry_and_cancel_race_and_one_wins(self, store: Store) -> None:
        for n in range(10):
            claim = await start(store, address=str(n))
            question = prompt()
            await store.commit(step_commit(claim, prompts=(question,), turn_id="turn_0"))
            expire = PromptSettlement(prompt_id=question.prompt_id, outcome=PromptOutcome.EXPIRED)
            commit = step_commit(claim, step_n=1, consume=False, settle=(expire,))
            click, expired, _ = await asyncio.gather(
                store.answer(answer(question.prompt_id)),
                store.commit(commit),
                store.admit(cancel(claim.run_id)),
                return_exceptions=True,
            )
            assert not isinstance(click, BaseException)
            outcome = (await store.prompt(question.prompt_id)).outcome
            lost = isinstance(expired, PromptTaken)
            assert outcome is (PromptOutcome.APPROVED if lost else PromptOutcome.EXPIRED)
            assert (click.status is AnswerStatus.SETTLED) is lost
            assert (await store.refresh(claim.run_id, claim.epoch)).step_no == (1 if lost else 2)

    async def test_s16_a_commit_settles_a_prompt_once(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, release=False)
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.IGNORED, by=BOB, name="Bob", via="text")
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(settle,)))
        settled = await store.prompt(prompt_id)
        assert (settled.outcome, settled.settled_by, settled.settled_name) == (PromptOutcome.IGNORED, BOB, "Bob")
        assert (settled.settled_via, settled.settled_at) == ("text", clock.now_ms)
        with pytest.raises(PromptTaken):
            await store.commit(step_commit(claim, step_n=2, consume=False, settle=(settle,)))
        late = await store.answer(answer(prompt_id))
        assert late.status is AnswerStatus.ALREADY_SETTLED

    async def test_s16_a_message_from_before_the_question_is_older_than_it(self, store: Store) -> None:
        claim = await start(store)
        await accept(store, claim.run_id, "yes, do it")
        question = prompt()
        await store.commit(step_commit(claim, prompts=(question,)))
        opened = await store.prompt(question.prompt_id)
        assert opened.created_seq == 2, "the question was set from what the worker had seen, not from the locked row"

    async def test_s16_an_answer_finds_its_prompt_and_run_or_nothing(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        other = await store.admit(message(to_address("other")))
        for lost in (answer("prm_unknown", key="k"), answer(prompt_id, run_id=other.run_id, key="k")):
            with pytest.raises(NotFound):
                await store.answer(lost)
        found = await store.answer(answer(prompt_id, run_id=claim.run_id, key="k"))
        assert (found.status, found.deduplicated) == (AnswerStatus.SETTLED, False)

    async def test_s16_a_click_after_the_end_authorises_nothing(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        await store.end(claim.run_id, reason="reset", events=())
        late = await store.answer(answer(prompt_id))
        assert late.status in {AnswerStatus.ALREADY_SETTLED, AnswerStatus.REFUSED}
        assert late.prompt is not None
        assert late.prompt.outcome is PromptOutcome.CANCELLED
        assert await asleep(store)

    async def test_s16_an_end_that_was_worded_for_something_else_changes_nothing(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        run = await store.run(claim.run_id)
        seen = SeenOpen(turn_id=run.turn_id, prompts=frozenset({prompt_id}))
        await store.answer(answer(prompt_id))
        for old in (seen, replace(seen, prompts=frozenset(), turn_id="turn_of_before")):
            with pytest.raises(RunChanged):
                await store.end(claim.run_id, reason="reset", events=(event("never"),), seen=old)
        assert (await store.run(claim.run_id)).status is RunStatus.OPEN
        assert await store.end(claim.run_id, reason="reset", events=(event("over"),), seen=replace(seen, prompts=frozenset()))
        assert [e.body for e in await store.events(claim.run_id)] == [body("over")]
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.APPROVED

    # ── S17 ──
    async def test_s17_settling_wakes_the_run_with_a_response(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        assert await asleep(store)
        receipt = await store.answer(answer(prompt_id, events=(event("settled"),)))
        again = await claim_one(store)
        assert again.phase is Phase.WAITING
        (response,) = again.commands
        assert (response.kind, response.seq, response.principal) == (CommandKind.RESPONSE, 2, ALICE)
        assert response.submission_id == receipt.submission_id
        assert [(p.prompt_id, p.outcome) for p in again.prompts] == [(prompt_id, PromptOutcome.APPROVED)]
        assert [e.body for e in await store.events(claim.run_id)] == [body("settled")]

    async def test_s17_settling_reaches_a_worker_that_holds_the_run(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        await store.answer(answer(prompt_id))
        assert (await store.append(claim.run_id, claim.epoch, ())).inbox_seq == 2
        committed = await store.commit(step_commit(claim, step_n=1, consume=False, seen=1, release=True))
        assert committed.signals.inbox_seq == 2
        assert [c.kind for c in (await claim_one(store)).commands] == [CommandKind.RESPONSE]

    async def test_s17_each_posted_copy_is_owed_an_edit(self, store: Store) -> None:
        _, prompt_id = await asked(store, copies=("a", "b", "c"))
        posted = await send_all(store)
        assert len(posted) == 3
        await store.answer(answer(prompt_id))
        lanes = await store.claim_lanes("w1", limit=10, lease_ms=LEASE)
        edits = {lane.address: lane.items for lane in lanes}
        assert set(edits) == {"a", "b", "c"}
        for items in edits.values():
            (edit,) = items
            assert edit.prompt_id == prompt_id
            assert edit.edit_of in posted
            assert edit.edit_ref == f"ref-{edit.edit_of}"

    async def test_s17_a_copy_that_was_not_sent_yet_is_edited_after_its_post(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await store.answer(answer(prompt_id))
        lane = await lane_one(store)
        (card,) = lane.items
        assert card.edit_of is None
        await store.finish(lane, "w1", Sent(delivery_id=card.delivery_id, ref="1700.42", release=True))
        (edit,) = (await lane_one(store)).items
        assert (edit.edit_of, edit.edit_ref, edit.prompt_id) == (card.delivery_id, "1700.42", prompt_id)

    async def test_s17_a_copy_that_is_being_sent_is_edited_too(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        lane = await lane_one(store)
        (card,) = lane.items
        await store.answer(answer(prompt_id))
        await store.finish(lane, "w1", Sent(delivery_id=card.delivery_id, ref="1700.42", release=True))
        (edit,) = (await lane_one(store)).items
        assert (edit.edit_of, edit.edit_ref) == (card.delivery_id, "1700.42")

    async def test_s17_a_settlement_by_a_commit_owes_the_edits_too(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False, copies=(ADDRESS, "copy"))
        (first, second) = await send_all(store)
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.EXPIRED)
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(settle,), release=True))
        lanes = await store.claim_lanes("w1", limit=10, lease_ms=LEASE)
        assert {i.edit_of for lane in lanes for i in lane.items} == {first, second}
        assert await asleep(store), "a settlement without an answer is no input"

    async def test_s17_only_copies_of_the_prompt_are_edited(self, store: Store) -> None:
        claim = await start(store)
        mine, other = prompt(call_id="0.0.0"), prompt(call_id="0.0.1")
        cards = tuple(post(prompt_id=p.prompt_id) for p in (mine, other))
        await store.commit(step_commit(claim, prompts=(mine, other), outbox=(*cards, post(text="plain"))))
        await send_all(store)
        await store.answer(answer(mine.prompt_id))
        assert [i.edit_of for i in (await lane_one(store)).items] == [cards[0].delivery_id]
