"""S21, S22 and S32: what a run's list of events promises.

What lives here: positions, indexes, reading. What does not: which events a turn writes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import AnswerPolicy, Event, Phase, PromptOutcome, PromptSettlement, PromptUpdate, ToNew, Verdict
from durable_core.store import Store
from durable_core.stores import history
from durable_core.testing.acts import asked, claim_one, reply, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import (
    ALICE,
    BOB,
    LEASE,
    MINUTE,
    START_MS,
    answer,
    body,
    cancel,
    event,
    message,
    ms,
    new_run,
    prompt,
    step_commit,
    to_address,
)
from durable_core.testing.rebuilding import check_rebuilt


def gap_free(events: list[Event]) -> None:
    """Check that positions and visible indexes count without gaps."""
    seqs = [e.seq for e in events]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    visible = [e.index for e in events if e.index is not None]
    assert visible == list(range(len(visible)))


class Events(StoreBench):
    """Events: S21, S22 and S32."""

    # ── S21 ──
    async def test_s21_positions_and_indexes_have_no_gaps_whoever_appends(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        await store.append(claim.run_id, claim.epoch, (event("a"), event("hidden", visible=False), event("b")))
        await reply(store, claim, step_n=1, events=(event("c"), event("hidden", visible=False)))
        await store.answer(answer(prompt_id, events=(event("d"),)))
        await store.commit(step_commit(claim, step_n=1, consume=False, events=(event("hidden", visible=False), event("e"))))
        await store.end(claim.run_id, reason="over", events=(event("f"),))
        everything = await store.events(claim.run_id, hidden=True)
        gap_free(everything)
        assert len([e for e in everything if e.type == "test.event"]) == 9
        assert [e.body for e in everything if e.index is not None] == [body(t) for t in "abcdef"]
        assert (await store.run(claim.run_id)).event_count == 6

    async def test_s21_racing_appends_leave_no_gap(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        calls = [
            store.append(claim.run_id, claim.epoch, (event(f"{n}a", visible=bool(n % 2)), event(f"{n}b"))) for n in range(20)
        ]
        await asyncio.gather(*calls, store.answer(answer(prompt_id, events=(event("click"),))))
        everything = await store.events(claim.run_id, hidden=True)
        gap_free(everything)
        texts = [e.body for e in everything if e.type == "test.event"]
        assert len(texts) == 41
        for n in range(20):
            assert texts.index(body(f"{n}b")) == texts.index(body(f"{n}a")) + 1, "a batch was torn apart"

    async def test_s21_a_failed_write_takes_no_position(self, store: Store) -> None:
        claim = await start(store)
        await store.append(claim.run_id, claim.epoch, (event("a"),))
        calls = [store.append(claim.run_id, claim.epoch + 1, (event("no"),)) for _ in range(3)]
        await asyncio.gather(*calls, store.append(claim.run_id, claim.epoch, (event("b"),)), return_exceptions=True)
        everything = await store.events(claim.run_id, hidden=True)
        gap_free(everything)
        assert [e.body for e in everything] == [body("a"), body("b")]

    async def test_s21_events_of_runs_are_counted_apart(self, store: Store) -> None:
        first, second = await start(store, address="a"), await start(store, address="b")
        for n in range(3):
            await store.append(first.run_id, first.epoch, (event(f"a{n}"),))
            await store.append(second.run_id, second.epoch, (event(f"b{n}"),))
        assert [(e.index, e.body) for e in await store.events(first.run_id)] == [(n, body(f"a{n}")) for n in range(3)]
        assert [(e.index, e.body) for e in await store.events(second.run_id)] == [(n, body(f"b{n}")) for n in range(3)]

    async def test_s21_an_event_carries_the_attempt_that_wrote_it_and_never_changes(
        self, store: Store, clock: WindableClock
    ) -> None:
        claim = await start(store)
        await store.append(claim.run_id, claim.epoch, (event("first try"),))
        before = await store.events(claim.run_id)
        clock.advance(ms(10))
        await store.reap("w1")
        again = await claim_one(store, "w2")
        await store.append(again.run_id, again.epoch, (event("second try"),))
        await store.commit(step_commit(again, events=(event("done"),)))
        after = await store.events(claim.run_id)
        assert after[:1] == before
        assert [(e.attempt, e.at) for e in after] == [(1, clock.now_ms - 10), (2, clock.now_ms), (2, clock.now_ms)]

    async def test_s21_an_event_keeps_its_references(self, store: Store) -> None:
        claim = await start(store)
        refs = (("text", "command:1#/text"), ("reply", "step:0#/text"))
        await store.commit(step_commit(claim, events=(event("e", refs=refs),)))
        (kept,) = await store.events(claim.run_id)
        assert (kept.refs, kept.type, kept.body) == (refs, "test.event", body("e"))

    # ── S22 ──
    async def test_s22_reads_are_absolute_or_from_the_tail(self, store: Store) -> None:
        claim = await start(store)
        drafts = tuple(event(str(n), visible=n % 3 != 2) for n in range(12))
        await store.append(claim.run_id, claim.epoch, drafts)
        texts = [body(str(n)) for n in range(12) if n % 3 != 2]
        read = store.events
        assert [e.body for e in await read(claim.run_id)] == texts
        assert [e.body for e in await read(claim.run_id, start=3)] == texts[3:]
        assert [e.body for e in await read(claim.run_id, start=3, limit=2)] == texts[3:5]
        assert [e.body for e in await read(claim.run_id, start=-2)] == texts[-2:]
        assert [e.body for e in await read(claim.run_id, start=-3, limit=2)] == texts[-3:-1]
        assert [e.body for e in await read(claim.run_id, start=-99)] == texts
        assert await read(claim.run_id, start=len(texts)) == []

    async def test_s22_hidden_events_are_read_by_position(self, store: Store) -> None:
        claim = await start(store)
        await store.append(claim.run_id, claim.epoch, tuple(event(str(n), visible=n % 2 == 0) for n in range(6)))
        everything = await store.events(claim.run_id, hidden=True)
        assert [e.index for e in everything] == [0, None, 1, None, 2, None]
        assert await store.events(claim.run_id, start=everything[3].seq, hidden=True) == everything[3:]
        assert await store.events(claim.run_id, start=everything[1].seq, limit=2, hidden=True) == everything[1:3]

    async def test_s22_pages_join_without_gap_or_overlap(self, store: Store) -> None:
        claim = await start(store)
        for n in range(5):
            await store.append(claim.run_id, claim.epoch, tuple(event(f"{n}.{m}") for m in range(7)))
        pages: list[Event] = []
        while page := await store.events(claim.run_id, start=len(pages), limit=4):
            pages += page
        assert pages == await store.events(claim.run_id)
        assert len(pages) == 35

    async def test_s22_another_connection_sees_committed_events_in_order(self, store: Store, peer: Store) -> None:
        claim = await start(store)
        writing = asyncio.create_task(append_many(store, claim.run_id, claim.epoch))
        seen: list[Event] = []
        while not writing.done() or await peer.events(claim.run_id, start=len(seen)):
            page = await peer.events(claim.run_id, start=len(seen))
            seen += page
            assert [e.index for e in seen] == list(range(len(seen)))
            await asyncio.sleep(0)
        await writing
        assert seen == await store.events(claim.run_id)
        assert len(seen) == 40

    async def test_s22_content_is_read_where_it_is_owned(self, store: Store) -> None:
        receipt = await store.admit(message(to_address("content"), text="the question"))
        claim = await claim_one(store)
        await reply(store, claim, key="0.0.0", text="the reply")
        held = await store.content(receipt.run_id, ["command:1", "record:0:0.0.0", "record:0:none", "command:2"])
        assert held == {"command:1": body("the question"), "record:0:0.0.0": body("the reply")}
        await store.commit(step_commit(claim, output="the output", phase=Phase.IDLE))
        assert (await store.content(receipt.run_id, ["step:0", "step:1"])) == {"step:0": body("the output")}

    async def test_s22_content_of_a_prompt_and_only_of_its_own_run(self, store: Store) -> None:
        claim, prompt_id = await asked(store, release=False)
        other = await start(store, address="other")
        wanted = [f"prompt:{prompt_id}", "step:0"]
        assert (await store.content(claim.run_id, wanted))[wanted[0]] == body("Refund 20?")
        assert await store.content(other.run_id, wanted) == {}

    # ── S32 ──
    async def test_s32_each_change_of_what_a_run_is_is_in_its_list(self, store: Store) -> None:
        claim, mine = await asked(store, release=False)
        run_id = claim.run_id
        await store.answer(answer(mine))
        again = await store.refresh(run_id, claim.epoch)
        questions = (prompt(), prompt(policy=AnswerPolicy.FUNCTION), prompt(policy=AnswerPolicy.FUNCTION), prompt())
        child = message(ToNew(new=new_run()), source="child", key="c")
        await store.commit(step_commit(again, prompts=questions, starts=(child,), phase=Phase.WAITING, turn_id="turn_1"))
        await store.answer(answer(questions[1].prompt_id, by=BOB))
        await store.answer(answer(questions[2].prompt_id, by=BOB))
        for n, waiting in enumerate(await store.take_interactions("w1", limit=2, lease_ms=LEASE)):
            await store.decide(Verdict(interaction_id=waiting.interaction_id, epoch=waiting.epoch, allowed=n == 0))
        await check_rebuilt(store, run_id)
        gone = PromptSettlement(prompt_id=questions[0].prompt_id, outcome=PromptOutcome.EXPIRED)
        last = await store.refresh(run_id, claim.epoch)
        await store.commit(step_commit(last, settle=(gone,), phase=Phase.WAITING, turn_id="turn_1"))
        await store.strand(run_id, claim.epoch, reason="step a is gone", code="c1")
        await check_rebuilt(store, run_id)
        await store.unstrand(run_id)
        await store.answer(answer(questions[3].prompt_id, by=BOB))
        await store.admit(cancel(run_id))
        await check_rebuilt(store, run_id)
        await store.end(run_id, reason="reset", events=(event("over"),))
        await check_rebuilt(store, run_id)
        types = [e.type for e in await store.events(run_id, hidden=True) if e.index is None]
        assert types == [
            *(history.STEP, history.ANSWERED, history.STEP, history.ANSWERED, history.ANSWERED, history.STEP),
            *(history.STRANDED, history.UNSTRANDED, history.ENDED),
        ]

    async def test_s32_a_step_that_leaves_its_run_running_is_told_by_its_row(self, store: Store) -> None:
        claim = await start(store)
        run_id = claim.run_id
        await store.commit(step_commit(claim, consumed=(), turn_id=None, phase=Phase.RUNNING, events=(event("a"),)))
        await check_rebuilt(store, run_id)
        assert [e.type for e in await store.events(run_id, hidden=True)] == ["test.event"]
        await store.strand(run_id, claim.epoch, reason="step b is gone", code="c1")
        await check_rebuilt(store, run_id)
        other = await claim_one(store)
        await store.commit(step_commit(other, consumed=(), turn_id=None, phase=Phase.RUNNING))
        await check_rebuilt(store, run_id)
        last = await store.refresh(run_id, other.epoch)
        await store.commit(step_commit(last, phase=Phase.WAITING, release=True))
        await check_rebuilt(store, run_id)
        types = [e.type for e in await store.events(run_id, hidden=True) if e.index is None]
        assert types == [history.STRANDED, history.STEP]

    async def test_s32_votes_and_moves_are_in_its_list(self, store: Store) -> None:
        claim = await start(store)
        run_id = claim.run_id
        several = prompt(policy=AnswerPolicy.LISTED, answerers=(ALICE, BOB), quorum=2)
        judged = prompt(policy=AnswerPolicy.FUNCTION, quorum=2, call_id="0.0.1")
        await store.commit(step_commit(claim, prompts=(several, judged), phase=Phase.WAITING, turn_id="turn_0"))
        await store.answer(answer(several.prompt_id, by=BOB))
        await store.answer(answer(judged.prompt_id, by=BOB))
        (waiting,) = await store.take_interactions("w1", limit=2, lease_ms=LEASE)
        await store.decide(Verdict(interaction_id=waiting.interaction_id, epoch=waiting.epoch, allowed=True))
        await check_rebuilt(store, run_id)
        first = PromptUpdate(prompt_id=several.prompt_id, expires_at=START_MS + MINUTE, remind_at=START_MS + 1, level=1)
        second = PromptUpdate(prompt_id=judged.prompt_id, expires_at=None, remind_at=START_MS + 2)
        await store.commit(step_commit(claim, step_n=1, consume=False, updates=(first, second)))
        await check_rebuilt(store, run_id)
        await store.answer(answer(several.prompt_id))
        await store.answer(answer(judged.prompt_id, override=True))
        await check_rebuilt(store, run_id)
        types = [e.type for e in await store.events(run_id, hidden=True) if e.index is None]
        assert types == [history.STEP, history.ANSWERED, history.ANSWERED, history.STEP, history.ANSWERED, history.ANSWERED]

    async def test_s32_a_refused_write_tells_nothing(self, store: Store) -> None:
        claim = await start(store)
        lost = replace(claim, epoch=claim.epoch + 1)
        for call in (store.commit(step_commit(lost)), store.strand(lost.run_id, lost.epoch, reason="r", code="c")):
            with pytest.raises(LeaseLost):
                await call
        assert not await store.unstrand(claim.run_id)
        await store.end(claim.run_id, reason="over", events=())
        assert not await store.end(claim.run_id, reason="over", events=())
        assert [e.type for e in await store.events(claim.run_id, hidden=True)] == [history.ENDED]


async def append_many(store: Store, run_id: str, epoch: int) -> None:
    """Append forty events, two at a time."""
    for n in range(20):
        await store.append(run_id, epoch, (event(f"{n}a"), event(f"{n}b")))
