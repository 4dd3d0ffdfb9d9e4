"""The state machine: the store against a model of it in plain Python, one call a rule.

What lives here: calls and comparisons. What does not: the model (`expected`), running it (`test_store_machine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable_core.crypto import KeyRing
from durable_core.errors import LeaseLost, SessionEnded
from durable_core.model import (
    Admission,
    AnswerStatus,
    Claim,
    ClaimRequest,
    Outcome,
    Phase,
    PromptOutcome,
    Receipt,
    Sent,
    SubmissionOutcome,
)
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.acts import WORKERS, enrol, reply
from durable_core.testing.bench import WindableClock
from durable_core.testing.builders import (
    ALICE,
    BOB,
    CHANNEL,
    LEASE,
    MINUTE,
    START_MS,
    answer,
    cancel,
    event,
    message,
    ms,
    post,
    prompt,
    step_commit,
    to_address,
)
from durable_core.testing.histories import check_store
from tests.durable_core.conformance.sqlite import KEYS
from tests.durable_core.properties.expected import ExpectedPrompt, ExpectedRun, ExpectedStore

T = TypeVar("T")
ADDRESSES = ("a", "b", "c")
HELD = frozenset({"let go", "ask", "go on", "work", "fail", "release", "die"})
"""What needs a run in somebody's hands."""
KINDS = (
    *("claim", "claim", "admit", "admit", "admit", "let go", "let go", "ask", "ask", "go on", "work", "work"),
    *("click", "click", "click", "send", "send", "advance", "zombie", "fail", "release", "die", "cancel", "end", "redeliver"),
)
picks = st.integers(min_value=0, max_value=1_000)


class StoreMachine(RuleBasedStateMachine):
    """Every rule does one call on both, every invariant compares what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = WindableClock(START_MS)
        self.expected = ExpectedStore(now=START_MS)
        self.store: Store | None = None
        self.claims: dict[str, Claim] = {}
        self.stale: list[Claim] = []
        self.accepted: list[tuple[Admission, Receipt]] = []

    # ── plumbing ──
    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(call)

    @property
    def real(self) -> Store:
        assert self.store is not None
        return self.store

    def make(self) -> Store:
        return SqliteStore(":memory:", keys=KeyRing.parse(KEYS), clock=self.clock)

    @initialize()
    def open(self) -> None:
        async def opened() -> Store:
            store = self.make()
            await store.open()
            await enrol(store)
            return store

        self.store = self.do(opened())
        self.admit("a", None)
        self.claim("w1", 1, alone=False)

    def teardown(self) -> None:
        if self.store is not None:
            try:
                self.do(check_store(self.store))
            finally:
                self.do(self.store.close())
        self.loop.close()

    def held(self, pick: int) -> tuple[ExpectedRun, Claim]:
        runs = [r for r in self.expected.runs if r.owner is not None]
        run = runs[pick % len(runs)]
        return run, self.claims[run.run_id]

    def any_held(self) -> bool:
        return any(r.owner for r in self.expected.runs)

    def lost(self, run: ExpectedRun) -> None:
        self.stale.append(self.claims.pop(run.run_id))

    # one weighted rule: separate ones are switched off for whole examples and leave little work
    @rule(kind=st.sampled_from(KINDS), pick=picks, size=st.integers(min_value=0, max_value=3), flag=st.booleans())
    def happen(self, *, kind: str, pick: int, size: int, flag: bool) -> None:
        if kind in HELD and not self.any_held():
            kind = "claim"
        if kind == "claim" and not any(r.is_due(self.expected.now) for r in self.expected.runs):
            kind = "admit"
        if kind in HELD:
            self.happen_to_held(kind, pick, size, flag=flag)
        elif kind == "claim":
            self.claim(WORKERS[pick % 2], size + 1, alone=flag)
        elif kind == "admit":
            self.admit(ADDRESSES[pick % 3], 5 * MINUTE if flag and size == 0 else None)
        elif kind == "advance":
            self.advance((1, 1_003, LEASE // 2 + 1, LEASE + 1, MINUTE, 6 * MINUTE)[pick % 6])
        else:
            self.happen_among_people(kind, pick, size, flag=flag)

    def happen_to_held(self, kind: str, pick: int, size: int, *, flag: bool) -> None:
        if kind == "let go":
            timer = (None, None, 0, MINUTE)[size]
            self.commit(pick=pick, release=True, ask=False, ends=False, timer=timer, visible=size % 3)
        elif kind == "ask":
            self.commit(pick=pick, release=flag, ask=True, ends=False, timer=None, visible=1)
        elif kind == "go on":
            self.commit(pick=pick, release=False, ask=False, ends=flag and size == 0, timer=None, visible=size % 3)
        elif kind == "fail":
            self.fail(pick)
        elif kind == "release":
            self.release(pick, unused=flag)
        elif kind == "die":
            self.die(self.held(pick)[0].owner or "")
        else:
            act = (self.record, self.append, self.renew, self.append)[size]
            act(pick)

    def happen_among_people(self, kind: str, pick: int, size: int, *, flag: bool) -> None:
        if kind == "click" and any(r.prompts for r in self.expected.runs):
            self.click(pick, ALICE if flag else BOB, (PromptOutcome.APPROVED, PromptOutcome.DENIED)[size % 2])
        elif kind == "zombie" and self.stale:
            self.act_as_zombie(pick)
        elif kind == "send" and any(self.expected.owed.values()):
            self.send(size + 1)
        elif kind == "cancel" and flag:
            self.cancel(pick)
        elif kind == "end" and flag and sum(r.open for r in self.expected.runs) > 1:
            self.end(pick)
        else:
            self.redeliver(pick)

    # ── people ──
    def admit(self, address: str, lifetime: int | None) -> None:
        admission = message(to_address(address, lifetime_ms=lifetime))
        receipt = self.do(self.real.admit(admission))
        run = self.expected.at(address)
        assert receipt.created is (run is None)
        if run is None:
            deadline = None if lifetime is None else self.expected.now + lifetime
            run = ExpectedRun(run_id=receipt.run_id, address=address, deadline_at=deadline, wake_at=None)
            self.expected.runs.append(run)
        assert (receipt.run_id, receipt.seq) == (run.run_id, run.put(admission.submission_id, self.expected.now))
        self.expected.outcomes[admission.submission_id] = None
        self.accepted.append((admission, receipt))

    def redeliver(self, pick: int) -> None:
        admission, receipt = self.accepted[pick % len(self.accepted)]
        again = self.do(self.real.admit(replace(admission, submission_id="sub_again")))
        assert again == replace(receipt, deduplicated=True), "a redelivery was taken for new"

    def cancel(self, pick: int) -> None:
        run = self.expected.runs[pick % len(self.expected.runs)]
        admission = cancel(run.run_id)
        if not run.open:
            with pytest.raises(SessionEnded):
                self.do(self.real.admit(admission))
            return
        receipt = self.do(self.real.admit(admission))
        if active := run.has_turn:
            assert receipt.seq == run.put(admission.submission_id, self.expected.now)
            run.cancels.add(receipt.seq)
        self.expected.outcomes[admission.submission_id] = None if active else Outcome.COMPLETED

    def click(self, pick: int, by: str, outcome: PromptOutcome) -> None:
        questions = [(r, p) for r in self.expected.runs for p in r.prompts]
        questions.sort(key=lambda q: q[1].outcome is not None)
        run, question = questions[pick % len(questions)]
        receipt = self.do(self.real.answer(answer(question.prompt_id, by=by, outcome=outcome, events=(event("settled"),))))
        expired = question.expires_at is not None and question.expires_at <= self.expected.now
        if question.outcome is not None:
            assert receipt.status is not AnswerStatus.SETTLED
            assert receipt.prompt is not None
            assert receipt.prompt.outcome is question.outcome
        elif by == BOB or expired or run.cancel_pending:
            assert receipt.status is not AnswerStatus.SETTLED, "settled by somebody who may not, or too late"
        else:
            assert receipt.status is AnswerStatus.SETTLED
            self.expected.settle(run, question, outcome)
            run.put(receipt.submission_id, self.expected.now)
            self.expected.outcomes[receipt.submission_id] = self.do(self.real.submission(receipt.submission_id)).outcome
            run.visible += 1

    def end(self, pick: int) -> None:
        runs = [r for r in self.expected.runs if r.open]
        run = runs[pick % len(runs)]
        assert self.do(self.real.end(run.run_id, reason="reset", events=(event("ended"),)))
        assert not self.do(self.real.end(run.run_id, reason="again", events=(event("ended"),)))
        run.visible += 1
        if run.owner is not None:
            self.lost(run)
        self.expected.end(run)

    # ── workers ──
    def claim(self, owner: str, limit: int, *, alone: bool) -> None:
        due = {r.run_id: r for r in self.expected.runs if r.is_due(self.expected.now)}
        calm = {r for r, run in due.items() if run.crashes < 2}
        request = ClaimRequest(owner=owner, lease_ms=LEASE, limit=limit, alone=alone)
        taken = self.do(self.real.claim(request))
        ids = {c.run_id for c in taken}
        assert len(ids) == len(taken)
        if not alone:
            assert ids <= calm
            assert len(ids) == min(limit, len(calm)), "a wake-up was lost"
        else:
            assert ids <= set(due)
            assert bool(ids) is bool(due), "a wake-up was lost"
            assert ids <= calm or len(ids) == 1, "a run that kills its worker has company"
        for claim in taken:
            self.took(due[claim.run_id], claim, owner)

    def took(self, run: ExpectedRun, claim: Claim, owner: str) -> None:
        assert claim.epoch > run.epoch
        assert claim.step_no == run.step_no
        assert (claim.charged, claim.crashes) == (run.charged, run.crashes), "charges disagree"
        assert [c.seq for c in claim.commands] == run.unconsumed
        assert [c.submission_id for c in claim.commands] == [run.inbox[n - 1] for n in run.unconsumed]
        assert (claim.signals.inbox_seq, claim.signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        assert {p.prompt_id for p in run.prompts if p.outcome is None} <= {p.prompt_id for p in claim.prompts}
        run.owner, run.epoch, run.recorded, run.seen = owner, claim.epoch, False, len(run.inbox)
        run.lease_until = self.expected.now + LEASE
        self.claims[run.run_id] = claim

    def commit(self, *, pick: int, release: bool, ask: bool, ends: bool, timer: int | None, visible: int) -> None:
        run, claim = self.held(pick)
        now = self.expected.now
        known = [n for n in run.unconsumed if n <= run.seen]
        question = prompt(expires_at=now + MINUTE)
        card = post(run.address, prompt_id=question.prompt_id if ask else None)
        timer_at = None if timer is None else now + timer
        phase = Phase.WAITING if ask else Phase.IDLE if release else Phase.RUNNING
        done = tuple(SubmissionOutcome(submission_id=run.inbox[n - 1], outcome=Outcome.COMPLETED) for n in known)
        committed = self.do(
            self.real.commit(
                step_commit(
                    claim,
                    step_n=run.step_no,
                    seen=run.seen,
                    consumed=tuple(known),
                    outcomes=done,
                    events=(*(event() for _ in range(visible)), event(visible=False)),
                    outbox=(card,),
                    prompts=(question,) if ask else (),
                    phase=phase,
                    timer_at=timer_at,
                    release=release,
                    end="done" if ends else None,
                )
            )
        )
        fresh = [n for n in run.unconsumed if n > run.seen]
        run.consumed.update(known)
        for n in known:
            self.expected.outcomes[run.inbox[n - 1]] = self.expected.outcomes[run.inbox[n - 1]] or Outcome.COMPLETED
        run.visible += visible
        run.finish_step()
        run.phase = phase
        self.expected.owed.setdefault(run.address, []).append((card.delivery_id, None))
        if ask:
            self.expected.cards[question.prompt_id] = card.delivery_id
            run.prompts.append(ExpectedPrompt(question.prompt_id, now + MINUTE))
        assert (committed.step_no, committed.signals.inbox_seq) == (run.step_no, len(run.inbox))
        if ends:
            self.expected.end(run)
            self.lost(run)
        elif release:
            assert committed.commands == ()
            run.let_go(now, timer_at=timer_at)
            self.lost(run)
        else:
            assert [c.seq for c in committed.commands] == fresh
            run.seen = len(run.inbox)

    def record(self, pick: int) -> None:
        run, claim = self.held(pick)
        before = len(self.do(self.real.records(run.run_id, run.step_no)))
        self.do(reply(self.real, claim, key=f"k{pick % 2}", step_n=run.step_no))
        run.recorded |= len(self.do(self.real.records(run.run_id, run.step_no))) > before

    def append(self, pick: int) -> None:
        run, claim = self.held(pick)
        count = pick % 4
        signals = self.do(self.real.append(run.run_id, claim.epoch, tuple(event() for _ in range(count))))
        assert (signals.inbox_seq, signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        run.visible += count

    def release(self, pick: int, *, unused: bool) -> None:
        run, claim = self.held(pick)
        self.do(self.real.release(run.run_id, claim.epoch, timer_at=None, seen=run.seen, unused=unused))
        run.let_go(self.expected.now, timer_at=None)
        self.lost(run)

    def fail(self, pick: int) -> None:
        run, claim = self.held(pick)
        retry_at = min(self.expected.now + MINUTE, run.deadline_at or self.expected.now + MINUTE)
        self.do(self.real.charge(run.run_id, claim.epoch, error="e", retry_at=retry_at, seen=run.seen))
        run.charged += 1
        run.let_go(self.expected.now, timer_at=retry_at)
        self.lost(run)

    def renew(self, pick: int) -> None:
        run, claim = self.held(pick)
        assert run.owner is not None
        assert run.run_id in self.do(self.real.renew(run.owner, [(run.run_id, claim.epoch)], lease_ms=LEASE))
        run.lease_until = self.expected.now + LEASE

    def act_as_zombie(self, pick: int) -> None:
        claim = self.stale[pick % len(self.stale)]
        with pytest.raises(LeaseLost):
            self.do(self.real.append(claim.run_id, claim.epoch, (event("zombie"),)))
        with pytest.raises(LeaseLost):
            self.do(self.real.commit(step_commit(claim, consume=False, outbox=(post("zombie"),), end="zombie")))

    def die(self, owner: str) -> None:
        mine = [r for r in self.expected.runs if r.owner == owner]
        assert self.do(self.real.reap(owner)) == len(mine)
        for run in mine:
            run.lose(self.expected.now)
            self.lost(run)

    def advance(self, by: int) -> None:
        self.expected.now = self.clock.advance(ms(by))
        over = [r for r in self.expected.runs if r.owner is not None and r.lease_until < self.expected.now]
        assert self.do(self.real.reap("nobody")) == len(over)
        for run in over:
            run.lose(self.expected.now)
            self.lost(run)

    def send(self, limit: int) -> None:
        lanes = self.do(self.real.claim_lanes("w1", limit=10, lease_ms=LEASE, items=limit))
        assert {lane.address for lane in lanes} == {a for a, owed in self.expected.owed.items() if owed}, "a lane was forgotten"
        for lane in lanes:
            owed = self.expected.owed[lane.address]
            assert len(lane.items) == self.expected.sendable(lane.address, limit)
            for item in lane.items:
                delivery_id, edit_of = owed.pop(0)
                assert (item.edit_of, delivery_id or item.delivery_id) == (edit_of, item.delivery_id), "a lane is out of order"
                assert item.edit_ref == (None if edit_of is None else f"ref-{edit_of}")
                sent = Sent(delivery_id=item.delivery_id, ref=f"ref-{item.delivery_id}", release=item is lane.items[-1])
                self.do(self.real.finish(lane, "w1", sent))

    # ── what must be true after each ──
    @invariant()
    def all_that_can_be_read_agrees(self) -> None:
        if self.store is not None:
            self.do(self.compare(self.store))

    async def compare(self, store: Store) -> None:
        stored = await store.rows("SELECT submission_id, outcome FROM moor_admission", {})
        known = self.expected.outcomes
        assert {str(s): o for s, o in stored if s in known} == known, "not exactly one outcome"
        for run in self.expected.runs:
            found = await store.run(run.run_id)
            assert (found.event_count, found.step_no) == (run.visible, run.step_no)
            for question in run.prompts:
                assert (await store.prompt(question.prompt_id)).outcome is question.outcome
        for address in ADDRESSES:
            owner, run_at = self.expected.at(address), await store.run_at(CHANNEL, address)
            assert (run_at and run_at.run_id) == (owner and owner.run_id)
