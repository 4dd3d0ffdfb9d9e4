"""S39, and S17 of shared cards: what a store promises when an open prompt's times change, or the people whom it asks.

What lives here: updates by commits, several prompts on one card. What does not: settling (`prompts`, `quorums`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import PromptTaken
from durable_core.model import AnswerPolicy, AnswerStatus, Claim, Phase, PromptOutcome, PromptSettlement, PromptUpdate
from durable_core.store import Store
from durable_core.testing.acts import asked, asleep, interaction_one, lane_one, send_all, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, LEASE, MINUTE, answer, event, ms, post, prompt, step_commit
from durable_core.testing.quorums import allow

LISTED = AnswerPolicy.LISTED


async def sharing(store: Store, *, release: bool = True) -> tuple[Claim, list[str]]:
    """Have a run that asks three things on one card, posted twice; its claim and the prompts' ids, the leader's first."""
    claim = await start(store)
    leader = prompt(call_id="0.0.0")
    drafts = [
        prompt(call_id=f"0.0.{n}", group=leader.prompt_id, prompt_id=leader.prompt_id if n == 0 else None) for n in range(3)
    ]
    cards = tuple(post(place, text="card", prompt_id=leader.prompt_id) for place in ("a", "b"))
    await store.commit(
        step_commit(claim, prompts=tuple(drafts), outbox=cards, release=release, phase=Phase.WAITING, turn_id="turn_0")
    )
    return claim, [draft.prompt_id for draft in drafts]


async def edits(store: Store) -> dict[str, int]:
    """Send all that is owed; how many edits each address got."""
    lanes = await store.claim_lanes("w1", limit=10, lease_ms=LEASE)
    owed = {lane.address: sum(item.edit_of is not None for item in lane.items) for lane in lanes}
    for lane in lanes:
        await store.release_lane(lane, "w1")
    await send_all(store)
    return owed


class Moves(StoreBench):
    """Moves: S39, and cards that several prompts share."""

    # ── S39 ──
    async def test_s39_a_later_time_lets_people_answer_longer(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, expires_at=clock.now_ms + MINUTE, release=False)
        update = PromptUpdate(prompt_id=prompt_id, expires_at=clock.now_ms + 3 * MINUTE, remind_at=clock.now_ms + 2 * MINUTE)
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,), release=True))
        moved = await store.prompt(prompt_id)
        assert (moved.expires_at, moved.remind_at, moved.level) == (update.expires_at, update.remind_at, 0)
        assert await asleep(store), "new times are no input"
        clock.advance(ms(2 * MINUTE))
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s39_an_earlier_time_counts_too(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, release=False)
        update = PromptUpdate(prompt_id=prompt_id, expires_at=clock.now_ms + MINUTE, remind_at=None)
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,)))
        clock.advance(ms(MINUTE))
        late = await store.answer(answer(prompt_id))
        assert (late.status, late.reason) == (AnswerStatus.REFUSED, "expired")

    async def test_s39_a_prompt_is_handed_to_others(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE,), expires_at=clock.now_ms + MINUTE, release=False)
        clock.advance(ms(MINUTE))
        until = clock.now_ms + MINUTE
        update = PromptUpdate(
            prompt_id=prompt_id, expires_at=until, remind_at=None, level=1, asked="the finance team", answerers=(BOB,)
        )
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,), release=True))
        moved = await store.prompt(prompt_id)
        assert (moved.level, moved.asked, moved.answerers, moved.expires_at) == (1, "the finance team", (BOB,), until)
        assert (await store.answer(answer(prompt_id))).reason == "not_yours"
        assert (await store.answer(answer(prompt_id, by=BOB))).status is AnswerStatus.SETTLED

    async def test_s39_what_an_update_does_not_name_stays(self, store: Store) -> None:
        claim = await start(store)
        question = prompt(policy=LISTED, answerers=(ALICE, BOB), asked="Alice or Bob", quorum=2)
        await store.commit(step_commit(claim, prompts=(question,)))
        for step, level in ((1, 2), (2, None)):
            update = PromptUpdate(prompt_id=question.prompt_id, expires_at=None, remind_at=None, level=level)
            await store.commit(step_commit(claim, step_n=step, consume=False, updates=(update,)))
        kept = await store.prompt(question.prompt_id)
        assert (kept.level, kept.asked, kept.answerers, kept.quorum) == (2, "Alice or Bob", (ALICE, BOB), 2)

    async def test_s39_whoever_was_taken_off_the_list_has_no_say_any_more(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), release=False)
        await store.answer(answer(prompt_id, judge=True))
        update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=1, answerers=(BOB,))
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,)))
        (waiting,) = await store.take_interactions("w1", limit=10, lease_ms=LEASE)
        decided = await store.decide(allow(waiting))
        assert (decided.status, decided.reason) == (AnswerStatus.REFUSED, "not_yours")

    async def test_s39_each_posted_copy_is_owed_an_edit(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False, copies=("a", "b"))
        await send_all(store)
        update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None)
        reply = post("a", text="Reminder")
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,), outbox=(reply,)))
        assert await edits(store) == {"a": 1, "b": 1}

    async def test_s39_a_settled_prompt_does_not_move(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        await store.answer(answer(prompt_id))
        update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=1)
        with pytest.raises(PromptTaken):
            await store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,), events=(event("moved"),)))
        assert (await store.prompt(prompt_id)).level == 0
        assert await store.events(claim.run_id) == []
        assert (await store.run(claim.run_id)).step_no == 1

    async def test_s39_a_click_races_the_move_and_one_of_them_is_first(self, store: Store, clock: WindableClock) -> None:
        for n in range(10):
            claim = await start(store, address=str(n))
            question = prompt(policy=LISTED, answerers=(ALICE,))
            await store.commit(step_commit(claim, prompts=(question,)))
            update = PromptUpdate(
                prompt_id=question.prompt_id, expires_at=clock.now_ms + MINUTE, remind_at=None, level=1, answerers=(BOB,)
            )
            click, moved = await asyncio.gather(
                store.answer(answer(question.prompt_id)),
                store.commit(step_commit(claim, step_n=1, consume=False, updates=(update,))),
                return_exceptions=True,
            )
            assert not isinstance(click, BaseException)
            now = await store.prompt(question.prompt_id)
            lost = isinstance(moved, PromptTaken)
            assert (now.level, now.outcome) == ((0, PromptOutcome.APPROVED) if lost else (1, None))
            assert click.status is (AnswerStatus.SETTLED if lost else AnswerStatus.REFUSED)

    async def test_s18_a_verdict_of_before_the_move_counts_for_none_of_those_who_are_asked_now(self, store: Store) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, release=False)
        for at, level, status in ((1, 0, AnswerStatus.REFUSED), (2, 1, AnswerStatus.SETTLED)):
            await store.answer(answer(prompt_id))
            interaction = await interaction_one(store)
            if at == 1:
                update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=1)
                await store.commit(step_commit(claim, step_n=at, consume=False, updates=(update,)))
            receipt = await store.decide(replace(allow(interaction), level=level))
            assert (receipt.status, receipt.reason) == (status, "moved" if at == 1 else None)
        assert (await store.prompt(prompt_id)).outcome is PromptOutcome.APPROVED

    # ── shared cards ──
    async def test_s17_an_answer_to_any_of_them_edits_the_shared_card(self, store: Store) -> None:
        _, prompt_ids = await sharing(store)
        await send_all(store)
        for prompt_id in prompt_ids:
            assert (await store.prompt(prompt_id)).group == prompt_ids[0]
            await store.answer(answer(prompt_id))
            assert await edits(store) == {"a": 1, "b": 1}

    async def test_s17_a_commit_that_changes_several_edits_a_shared_card_once(self, store: Store) -> None:
        claim, (first, second, third) = await sharing(store, release=False)
        await send_all(store)
        settle = tuple(PromptSettlement(prompt_id=one, outcome=PromptOutcome.EXPIRED) for one in (second, third))
        update = PromptUpdate(prompt_id=first, expires_at=None, remind_at=None)
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=settle, updates=(update,)))
        assert await edits(store) == {"a": 1, "b": 1}

    async def test_s17_an_end_that_settles_some_and_cancels_the_rest_edits_once(self, store: Store) -> None:
        claim, (_, second, third) = await sharing(store, release=False)
        await send_all(store)
        settle = PromptSettlement(prompt_id=second, outcome=PromptOutcome.IGNORED)
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(settle,), outbox=(post("a"),), end="done"))
        assert (await store.prompt(third)).outcome is PromptOutcome.CANCELLED
        assert await edits(store) == {"a": 1, "b": 1}

    async def test_s17_an_edit_of_a_shared_card_bears_the_leader_s_id(self, store: Store) -> None:
        claim = await start(store)
        leader = prompt(prompt_id="prm_leader", group="prm_leader")
        member = prompt(call_id="0.0.1", group="prm_leader")
        await store.commit(
            step_commit(claim, prompts=(leader, member), outbox=(post("a", prompt_id="prm_leader"),), phase=Phase.WAITING)
        )
        await send_all(store)
        await store.answer(answer(member.prompt_id))
        (edit,) = (await lane_one(store)).items
        assert edit.prompt_id == "prm_leader"
