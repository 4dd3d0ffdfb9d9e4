"""S51: how often somebody may answer in vain.

What lives here: the bound, on refusals, asides and what waits for a worker. What does not: what becomes of each (`asides`,
`prompts`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from durable_core.errors import NotFound
from durable_core.model import AnswerPolicy, AnswerStatus, PromptAnswer
from durable_core.store import Store
from durable_core.testing.acts import asked, send_all
from durable_core.testing.asides import aside, became
from durable_core.testing.audits import entries
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, LEASE, MINUTE, answer, ms
from durable_core.testing.quorums import allow

ASIDE, REFUSED = AnswerStatus.ASIDE, AnswerStatus.REFUSED
TOO_OFTEN = (REFUSED, "too_often")
MOST = 3


def bounded(click: PromptAnswer) -> PromptAnswer:
    """Return an answer of which so many are taken that change nothing."""
    return replace(click, most=MOST)


class Bounds(StoreBench):
    """How often somebody may answer in vain: S51."""

    async def test_s51_what_comes_above_is_refused_and_leaves_no_trace(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store)
        for _ in range(MOST):
            assert became(await store.answer(bounded(aside(prompt_id)))) == (ASIDE, None)
        before = await store.prompt(prompt_id)
        await send_all(store)
        click = bounded(aside(prompt_id))
        receipt = await store.answer(click)
        assert (became(receipt), receipt.prompt, receipt.deduplicated) == (TOO_OFTEN, before, False)
        assert len(await entries(store)) == MOST
        assert await send_all(store) == []
        assert await store.open_prompts(claim.run_id) == [before]
        try:
            found = await store.interaction_result(click.submission_id)
        except NotFound:
            found = None
        assert found is None
        clock.advance(ms(MINUTE))
        assert became(await store.answer(click)) == (ASIDE, None), "its key is free"

    async def test_s51_refusals_count_each_person_for_themselves(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        for _ in range(MOST):
            assert became(await store.answer(bounded(answer(prompt_id, by=BOB)))) == (REFUSED, "not_yours")
        assert became(await store.answer(bounded(answer(prompt_id, by=BOB)))) == TOO_OFTEN
        assert became(await store.answer(bounded(aside(prompt_id, by=BOB)))) == TOO_OFTEN
        assert became(await store.answer(bounded(aside(prompt_id)))) == (ASIDE, None)
        _, another = await asked(store)
        assert became(await store.answer(bounded(answer(another, by=BOB)))) == (REFUSED, "not_yours")
        assert became(await store.answer(answer(prompt_id, by=BOB))) == (REFUSED, "not_yours"), "it says no bound"

    async def test_s51_an_answer_that_settles_is_always_taken(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        for _ in range(MOST + 1):
            await store.answer(bounded(aside(prompt_id)))
        assert (await store.answer(bounded(answer(prompt_id)))).status is AnswerStatus.SETTLED

    async def test_s51_a_repeat_is_told_what_it_was_told(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        click = bounded(aside(prompt_id))
        first = await store.answer(click)
        for _ in range(MOST + 1):
            await store.answer(bounded(aside(prompt_id)))
        assert await store.answer(click) == replace(first, deduplicated=True)

    async def test_s51_what_waits_for_a_worker_counts_and_its_refusal_then(self, store: Store, clock: WindableClock) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
        for _ in range(MOST):
            assert (await store.answer(bounded(answer(prompt_id, by=BOB)))).status is AnswerStatus.PENDING
        assert became(await store.answer(bounded(answer(prompt_id, by=BOB)))) == TOO_OFTEN
        assert (await store.answer(bounded(answer(prompt_id, by=ALICE)))).status is AnswerStatus.PENDING
        for taken in await store.take_interactions("w1", limit=10, lease_ms=LEASE):
            await store.decide(replace(allow(taken), allowed=False, reason="no"))
        assert became(await store.answer(bounded(answer(prompt_id, by=BOB)))) == TOO_OFTEN
        clock.advance(ms(MINUTE))
        assert (await store.answer(bounded(answer(prompt_id, by=BOB)))).status is AnswerStatus.PENDING

    async def test_s51_of_many_at_once_no_more_are_taken(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        receipts = await asyncio.gather(*(store.answer(bounded(aside(prompt_id))) for _ in range(4 * MOST)))
        assert sum(receipt.status is ASIDE for receipt in receipts) == MOST
        assert len(await entries(store)) == MOST
