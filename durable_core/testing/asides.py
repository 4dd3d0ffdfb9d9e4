"""S48: what an answer promises that asks for something beside the answer.

What lives here: asides to prompts of every policy. What does not: answers (`prompts`, `interactions`, `quorums`).
"""

from __future__ import annotations

from dataclasses import replace

from durable_core.model import AnswerPolicy, AnswerReceipt, AnswerStatus, Outcome, PromptAnswer
from durable_core.store import Store
from durable_core.testing.acts import asked, asleep, interaction_one, send_all
from durable_core.testing.audits import entries, said
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, MINUTE, answer, cancel, event, ms, post
from durable_core.testing.quorums import LISTED, allow

ASIDE = AnswerStatus.ASIDE


def aside(prompt_id: str, *, by: str = ALICE, override: bool = False) -> PromptAnswer:
    """Return a click that asks for a link."""
    click = answer(prompt_id, by=by, override=override, events=(event("settled"),), counted=(event("counted"),))
    return replace(click, option_id="connect", aside=True, tell=post(text="a link"))


def became(receipt: AnswerReceipt) -> tuple[AnswerStatus, str | None]:
    """Return what became of an answer."""
    return receipt.status, receipt.reason


class Asides(StoreBench):
    """Asides: S48."""

    async def test_s48_it_is_told_and_the_prompt_stays_as_it_was(self, store: Store) -> None:
        claim, prompt_id = await asked(store)
        await send_all(store)
        before = await store.prompt(prompt_id)
        click = aside(prompt_id)
        assert click.tell is not None
        receipt = await store.answer(click)
        assert (became(receipt), receipt.prompt) == ((ASIDE, None), before)
        assert await store.prompt(prompt_id) == before
        assert await store.open_prompts(claim.run_id) == [before]
        assert (await store.submission(click.submission_id)).outcome is Outcome.COMPLETED
        assert await store.interaction_result(click.submission_id) == receipt
        assert await asleep(store), "it is no input"
        assert await store.events(claim.run_id) == []
        assert await send_all(store) == [click.tell.delivery_id], "no card is edited"

    async def test_s48_it_leaves_an_entry_in_the_audit(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await store.answer(aside(prompt_id))
        assert [said(entry) for entry in await entries(store)] == [("aside", ALICE, "button", "connect", "approved", None)]

    async def test_s48_twice_by_one_key_is_once_and_by_two_is_two(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        click = aside(prompt_id)
        first = await store.answer(click)
        assert await store.answer(click) == replace(first, deduplicated=True)
        assert (await store.answer(aside(prompt_id))).status is ASIDE
        assert len(await entries(store)) == 2
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.SETTLED

    async def test_s48_others_are_refused_and_told(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await send_all(store)
        click = aside(prompt_id, by=BOB)
        assert click.tell is not None
        assert became(await store.answer(click)) == (AnswerStatus.REFUSED, "not_yours")
        barred = replace(aside(prompt_id), refused="not_allowed")
        assert became(await store.answer(barred)) == (AnswerStatus.REFUSED, "not_allowed")
        assert click.tell.delivery_id in await send_all(store)
        assert {entry.act for entry in await entries(store)} == {"refused"}

    async def test_s48_once_the_prompt_is_over_there_is_nothing_to_ask_for(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store, expires_at=clock.now_ms + MINUTE)
        await store.admit(cancel(claim.run_id))
        assert became(await store.answer(aside(prompt_id))) == (AnswerStatus.REFUSED, "cancelled")
        clock.advance(ms(MINUTE))
        assert became(await store.answer(aside(prompt_id))) == (AnswerStatus.REFUSED, "expired")
        await store.end(claim.run_id, reason="over", events=())
        assert became(await store.answer(aside(prompt_id))) == (AnswerStatus.ALREADY_SETTLED, None)

    async def test_s48_after_the_answer_it_is_too_late(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await store.answer(answer(prompt_id))
        assert became(await store.answer(aside(prompt_id))) == (AnswerStatus.ALREADY_SETTLED, None)

    async def test_s48_it_counts_no_vote_and_takes_none(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        assert (await store.answer(aside(prompt_id))).status is ASIDE
        assert (await store.prompt(prompt_id)).votes == ()
        assert (await store.answer(answer(prompt_id))).status is AnswerStatus.COUNTED
        assert (await store.answer(aside(prompt_id))).status is ASIDE, "who has voted may still ask"
        assert (await store.answer(aside(prompt_id, by=BOB, override=True))).status is ASIDE
        assert (await store.answer(answer(prompt_id, by=BOB))).status is AnswerStatus.SETTLED

    async def test_s48_where_a_function_decides_it_waits_as_any_answer(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
        await send_all(store)
        assert (await store.answer(aside(prompt_id, by=BOB))).status is AnswerStatus.PENDING
        taken, told = await interaction_one(store), post(text="told")
        assert taken.answer.aside
        decided = await store.decide(replace(allow(taken), tell=told))
        assert became(decided) == (ASIDE, None)
        assert (await store.prompt(prompt_id)).outcome is None
        assert await asleep(store)
        assert await send_all(store) == [told.delivery_id]
        assert [entry.act for entry in await entries(store)] == ["aside"]

    async def test_s48_a_function_that_says_no_refuses_it(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
        await store.answer(aside(prompt_id, by=BOB))
        decided = await store.decide(replace(allow(await interaction_one(store)), allowed=False, reason="not an approver"))
        assert became(decided) == (AnswerStatus.REFUSED, "not an approver")
