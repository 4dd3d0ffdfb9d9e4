"""S40: what the audit promises.

What lives here: which acts leave an entry and what it says, the chain under races, what keeps it. What does not: the acts' own
promises (`prompts`, `quorums`, `moves`).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from hashlib import sha256

import pytest

from durable_core import audit
from durable_core.codec import encode
from durable_core.errors import PromptTaken
from durable_core.model import (
    AnswerPolicy,
    AnswerStatus,
    AuditEntry,
    PromptAnswer,
    PromptOutcome,
    PromptSettlement,
    PromptUpdate,
)
from durable_core.store import Store
from durable_core.testing.acts import asked, interaction_one, send_all, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, CHANNEL, MINUTE, answer, body, ms, prompt, step_commit
from durable_core.testing.keeping import ended
from durable_core.testing.quorums import LISTED, PEOPLE, allow

SHOWN = sha256(body("Refund 20?")).hexdigest()


async def entries(store: Store) -> list[AuditEntry]:
    """Read the whole audit, and check that its chain holds."""
    found = await store.audit(limit=10_000)
    assert audit.verify(found) is None, "the chain of the audit is broken"
    return found


async def last(store: Store) -> AuditEntry:
    """Read the one entry that there is of a store."""
    (only,) = await entries(store)
    return only


def said(entry: AuditEntry) -> tuple[str, str | None, str, str | None, str | None, str | None]:
    """Return what an entry says of an answer."""
    return entry.act, entry.principal, entry.via, entry.option_id, entry.outcome, entry.reason


class Audits(StoreBench):
    """The audit: S40."""

    async def test_s40_an_entry_says_who_was_asked_and_who_answered_when_and_where(
        self, store: Store, clock: WindableClock
    ) -> None:
        claim = await start(store)
        question = prompt(policy=LISTED, answerers=(BOB,), asked="Bob of finance")
        await store.commit(step_commit(claim, prompts=(question,), release=True))
        assert await entries(store) == [], "a question alone decides nothing"
        asked_at = clock.now_ms
        clock.advance(ms(5))
        given = answer(question.prompt_id, by=BOB)
        await store.answer(given)
        entry = await last(store)
        assert said(entry) == ("settled", BOB, "button", "approve", "approved", None)
        assert (entry.run_id, entry.prompt_id, entry.kind) == (claim.run_id, question.prompt_id, "approval")
        assert (entry.requester, entry.asked, entry.asked_at, entry.at) == (ALICE, "Bob of finance", asked_at, clock.now_ms)
        assert (entry.shown, entry.where) == (SHOWN, given.where)
        assert (entry.n, entry.prev) == (1, audit.NONE_BEFORE)

    async def test_s40_no_entry_names_a_person(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        await store.answer(answer(prompt_id, by=BOB))
        await store.answer(answer(prompt_id))
        text = repr(await entries(store))
        assert ALICE in text
        assert "Alice" not in text
        assert "Bob" not in text

    async def test_s40_what_is_refused_leaves_an_entry_and_what_comes_too_late_none(self, store: Store) -> None:
        _, prompt_id = await asked(store)
        given = answer(prompt_id, by=BOB)
        await store.answer(given)
        assert (await store.answer(given)).deduplicated
        await store.answer(replace(answer(prompt_id), refused="not_allowed"))
        await store.answer(answer(prompt_id, outcome=PromptOutcome.DENIED))
        late = await store.answer(answer(prompt_id, by=BOB))
        assert late.status is AnswerStatus.ALREADY_SETTLED
        assert [said(entry) for entry in await entries(store)] == [
            ("refused", BOB, "button", "approve", "approved", "not_yours"),
            ("refused", ALICE, "button", "approve", "approved", "not_allowed"),
            ("settled", ALICE, "button", "deny", "denied", None),
        ]

    async def test_s40_votes_and_a_second_answer_leave_entries(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=LISTED, answerers=(ALICE, BOB), quorum=2)
        for who in (BOB, BOB, ALICE):
            await store.answer(answer(prompt_id, by=who))
        found = [(entry.act, entry.principal, entry.reason) for entry in await entries(store)]
        assert found == [("counted", BOB, None), ("refused", BOB, "already_voted"), ("settled", ALICE, None)]

    async def test_s40_an_override_says_why(self, store: Store) -> None:
        _, prompt_id = await asked(store, quorum=2)
        note = encode({"text": "Now.", "reason": "Nobody of finance is here."})
        await store.answer(answer(prompt_id, by=BOB, override=True, note=note))
        entry = await last(store)
        assert said(entry) == ("overridden", BOB, "button", "approve", "approved", "Nobody of finance is here.")

    async def test_s40_odd_texts_are_hashed_as_they_are_kept(self, store: Store) -> None:
        claim = await start(store)
        question = prompt(asked="Zoë's \\ \"team\" {moor_run}\n'; --")
        await store.commit(step_commit(claim, prompts=(question,)))
        note = encode({"reason": "it's $1 \\' {0} moor_run \u2028 \x7f 漢字 😀"})
        given = replace(answer(question.prompt_id, by="o'neill:\\", override=True, note=note), where="''\\ moor_prompt")
        await store.answer(given)
        entry = await last(store)
        assert (entry.asked, entry.principal, entry.where) == (question.asked, given.principal, given.where)
        assert entry.reason == "it's $1 \\' {0} moor_run \u2028 \x7f 漢字 😀"

    async def test_s40_what_a_worker_decides_leaves_an_entry_only_then(self, store: Store) -> None:
        _, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION)
        given = answer(prompt_id, by=BOB)
        await store.answer(given)
        assert await entries(store) == []
        refused = replace(allow(await interaction_one(store)), allowed=False, reason="not an approver")
        await store.decide(refused)
        await store.answer(answer(prompt_id, by=BOB, outcome=PromptOutcome.DENIED))
        await store.decide(allow(await interaction_one(store)))
        first, second = await entries(store)
        assert said(first) == ("refused", BOB, "button", "approve", "approved", "not an approver")
        assert said(second) == ("settled", BOB, "button", "deny", "denied", None)
        assert first.where == second.where == given.where

    async def test_s40_what_a_commit_settles_leaves_an_entry(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        settle = PromptSettlement(prompt_id=prompt_id, outcome=PromptOutcome.IGNORED, by=BOB, name="Bob", via="text")
        await store.commit(step_commit(claim, step_n=1, consume=False, settle=(settle,)))
        entry = await last(store)
        assert said(entry) == ("settled", BOB, "text", None, "ignored", None)
        assert (entry.shown, entry.where) == (SHOWN, "")

    @pytest.mark.parametrize("by_commit", [True, False])
    async def test_s40_what_ends_with_its_run_leaves_an_entry(self, store: Store, *, by_commit: bool) -> None:
        claim, prompt_id = await asked(store, policy=AnswerPolicy.FUNCTION, release=False)
        waiting = answer(prompt_id, by=BOB)
        await store.answer(waiting)
        if by_commit:
            await store.commit(step_commit(claim, step_n=1, consume=False, end="reset"))
        else:
            await store.end(claim.run_id, reason="reset", events=())
        settled, dropped = await entries(store)
        assert said(settled) == ("settled", None, "system", None, "cancelled", "reset")
        assert said(dropped) == ("refused", BOB, "button", "approve", "approved", "ended")
        assert dropped.where == waiting.where

    async def test_s40_a_prompt_that_is_handed_to_others_leaves_an_entry(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        for step, level in ((1, None), (2, 1)):
            update = PromptUpdate(prompt_id=prompt_id, expires_at=None, remind_at=None, level=level, asked=f"level {level}")
            await store.commit(step_commit(claim, step_n=step, consume=False, updates=(update,)))
        entry = await last(store)
        assert said(entry) == ("moved", None, "system", None, None, None)
        assert entry.asked == "level 1"

    async def test_s40_what_is_undone_leaves_none(self, store: Store) -> None:
        claim = await start(store)
        mine, taken = prompt(call_id="0.0.0"), prompt(call_id="0.0.1")
        await store.commit(step_commit(claim, prompts=(mine, taken)))
        await store.answer(answer(taken.prompt_id))
        settle = tuple(PromptSettlement(prompt_id=p.prompt_id, outcome=PromptOutcome.EXPIRED) for p in (mine, taken))
        with pytest.raises(PromptTaken):
            await store.commit(step_commit(claim, step_n=1, consume=False, settle=settle))
        assert (await last(store)).prompt_id == taken.prompt_id

    async def test_s40_entries_are_read_by_number_by_run_and_by_prompt(self, store: Store) -> None:
        runs, questions = [], []
        for n in range(3):
            claim = await start(store, address=str(n))
            pair = (prompt(call_id="0.0.0"), prompt(call_id="0.0.1"))
            await store.commit(step_commit(claim, prompts=pair))
            runs.append(claim.run_id)
            questions += [one.prompt_id for one in pair]
        for prompt_id in questions:
            await store.answer(answer(prompt_id))
        assert [entry.prompt_id for entry in await store.audit(limit=2)] == questions[:2]
        assert [entry.n for entry in await store.audit(after=2, limit=3)] == [3, 4, 5]
        assert [entry.prompt_id for entry in await store.audit(run_id=runs[1])] == questions[2:4]
        assert [entry.n for entry in await store.audit(run_id=runs[1], prompt_id=questions[3])] == [4]
        assert [entry.n for entry in await store.audit(after=4, prompt_id=questions[3])] == []

    async def test_s40_twenty_racers_leave_no_gap(self, store: Store) -> None:
        await self.race(store, store)

    async def test_s40_racers_of_two_processes_leave_no_gap(self, store: Store, peer: Store) -> None:
        await self.race(store, peer)

    async def race(self, *stores: Store) -> None:
        """Answer twenty prompts of as many runs three times each, end some of the runs meanwhile."""
        store = stores[0]
        claims = []
        for n in range(20):
            claim = await start(store, address=str(n))
            question = prompt(policy=LISTED, answerers=PEOPLE[:2], quorum=2)
            await store.commit(step_commit(claim, prompts=(question,)))
            claims.append((claim, question.prompt_id))
        clicks = [
            stores[n % 2].answer(answer(prompt_id, by=who))
            for n, (_, prompt_id) in enumerate(claims)
            for who in (PEOPLE[0], PEOPLE[0], PEOPLE[1])
        ]
        ends = [stores[1].end(claim.run_id, reason="reset", events=()) for claim, _ in claims[::4]]
        commits = [stores[0].commit(step_commit(claim, step_n=1, consume=False, end="done")) for claim, _ in claims[1::4]]
        results = await asyncio.gather(*clicks, *ends, *commits, return_exceptions=True)
        late = {AnswerStatus.ALREADY_SETTLED}
        wanted = sum(getattr(result, "status", AnswerStatus.ALREADY_SETTLED) not in late for result in results)
        found = await entries(stores[1])
        by_hand = [entry for entry in found if entry.principal is not None]
        assert len(by_hand) == wanted, "not exactly one entry for each answer that was decided"
        ended = {entry.run_id for entry in found if entry.principal is None}
        open_at_end = {
            claim.run_id for claim, prompt_id in claims if (await store.prompt(prompt_id)).outcome is PromptOutcome.CANCELLED
        }
        assert ended == open_at_end
        assert len(found) == len(by_hand) + len(ended)

    async def test_s40_after_anything_at_all_the_chain_holds(self, store: Store, clock: WindableClock) -> None:
        seed = random.randrange(1_000_000)  # noqa: S311 - it is printed, and wanted
        print("seed", seed)  # noqa: T201 - same
        dice = random.Random(seed)  # noqa: S311 - same
        for n in range(8):
            claim = await start(store, address=str(n))
            drafts = tuple(
                prompt(policy=dice.choice((LISTED, AnswerPolicy.REQUESTER)), answerers=PEOPLE[:3], quorum=dice.choice((1, 2)))
                for _ in range(2)
            )
            await store.commit(step_commit(claim, prompts=drafts))
            given = [self.throw(dice, dice.choice(drafts).prompt_id) for _ in range(6)]
            await asyncio.gather(*(store.answer(one) for one in given))
            clock.advance(ms(dice.choice((0, 1, 1_000))))
            if dice.random() < 0.5:
                await store.end(claim.run_id, reason="reset", events=())
        found = await entries(store)
        assert [entry.n for entry in found] == list(range(1, len(found) + 1))

    def throw(self, dice: random.Random, prompt_id: str) -> PromptAnswer:
        """Return somebody's answer."""
        who = dice.choice((ALICE, *PEOPLE[:4]))
        outcome = dice.choice((PromptOutcome.APPROVED, PromptOutcome.APPROVED, PromptOutcome.DENIED))
        return answer(prompt_id, by=who, outcome=outcome, override=dice.random() < 0.1)

    async def test_s40_no_purge_and_no_forgetting_deletes_it(self, store: Store, clock: WindableClock) -> None:
        kept = [(await ended(store, keep_ms=keep_ms, address=str(n)))[0] for n, keep_ms in enumerate((0, None))]
        before = await entries(store)
        assert len(before) == 2
        await send_all(store)
        clock.advance(ms(2 * MINUTE))
        assert await store.purge(limit=10) == [kept[0]]
        assert await store.forget(kept[1])
        assert await entries(store) == before

    async def test_s40_a_run_ends_though_a_question_of_it_can_not_be_read(self, store: Store) -> None:
        if not self.tampering:
            pytest.skip("rows of this store can't be changed")
        claim, prompt_id = await asked(store)
        sql = "UPDATE moor_prompt SET body = :body WHERE prompt_id = :prompt_id"
        await self.tamper(store, sql, {"body": b"no such thing", "prompt_id": prompt_id})
        assert await store.end(claim.run_id, reason="reset", events=())
        entry = await last(store)
        assert said(entry) == ("settled", None, "system", None, "cancelled", "reset")
        assert entry.shown == ""

    async def test_s40_a_changed_entry_is_found(self, store: Store) -> None:
        if not self.tampering:
            pytest.skip("rows of this store can't be changed")
        _, prompt_id = await asked(store)
        for who in (BOB, BOB, ALICE):
            await store.answer(answer(prompt_id, by=who))
        await self.tamper(store, "UPDATE moor_audit SET principal = :who WHERE n = 2", {"who": f"{CHANNEL}:mallory"})
        assert audit.verify(await store.audit()) == 2
