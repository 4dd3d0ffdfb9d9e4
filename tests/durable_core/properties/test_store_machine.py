"""The store against a model of it in plain Python, in any order of calls that hypothesis finds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from durable_core.crypto import KeyRing
from durable_core.errors import DurableError, LeaseLost, SessionEnded
from durable_core.model import (
    Admission,
    AnswerReceipt,
    AnswerStatus,
    Claim,
    ClaimRequest,
    Committed,
    EventDraft,
    Lane,
    Outcome,
    Phase,
    PromptAnswer,
    PromptOutcome,
    Receipt,
    Sent,
    Signals,
    StepCommit,
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
addresses = st.sampled_from(ADDRESSES)
owners = st.sampled_from(WORKERS[:2])
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

    # ── people ──
    @rule(address=addresses, lifetime=st.sampled_from([None, 5 * MINUTE]))
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

    @precondition(lambda self: self.accepted)
    @rule(pick=picks)
    def redeliver(self, pick: int) -> None:
        admission, receipt = self.accepted[pick % len(self.accepted)]
        again = self.do(self.real.admit(replace(admission, submission_id="sub_again")))
        assert again == replace(receipt, deduplicated=True)

    @precondition(lambda self: self.expected.runs)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        run = self.expected.runs[pick % len(self.expected.runs)]
        admission = cancel(run.run_id)
        if not run.open:
            with pytest.raises(SessionEnded):
                self.do(self.real.admit(admission))
            return
        active = run.has_turn
        receipt = self.do(self.real.admit(admission))
        if active:
            assert receipt.seq == run.put(admission.submission_id, self.expected.now)
            run.cancels.add(receipt.seq)
        self.expected.outcomes[admission.submission_id] = None if active else Outcome.COMPLETED

    @precondition(lambda self: any(r.prompts for r in self.expected.runs))
    @rule(pick=picks, by=st.sampled_from([ALICE, BOB]), outcome=st.sampled_from([PromptOutcome.APPROVED, PromptOutcome.DENIED]))
    def click(self, pick: int, by: str, outcome: PromptOutcome) -> None:
        questions = [(r, p) for r in self.expected.runs for p in r.prompts]
        run, question = questions[pick % len(questions)]
        receipt = self.do(self.real.answer(answer(question.prompt_id, by=by, outcome=outcome, events=(event("settled"),))))
        expired = question.expires_at is not None and question.expires_at <= self.expected.now
        if question.outcome is not None:
            assert receipt.status is not AnswerStatus.SETTLED
            assert receipt.prompt is not None
            assert receipt.prompt.outcome is question.outcome
        elif by == BOB or expired or run.cancel_pending:
            assert receipt.status is not AnswerStatus.SETTLED
        else:
            assert receipt.status is AnswerStatus.SETTLED
            self.expected.settle(run, question, outcome)
            run.put(receipt.submission_id, self.expected.now)
            self.expected.outcomes[receipt.submission_id] = self.do(self.real.submission(receipt.submission_id)).outcome
            run.visible += 1

    @precondition(lambda self: sum(r.open for r in self.expected.runs) > 1)
    @rule(pick=picks)
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
    @precondition(lambda self: any(r.is_due(self.expected.now) for r in self.expected.runs))
    @rule(owner=owners, limit=st.integers(min_value=1, max_value=4), alone=st.booleans())
    def claim(self, owner: str, limit: int, alone: bool) -> None:
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
        assert (claim.step_no, claim.charged, claim.crashes) == (run.step_no, run.charged, run.crashes)
        assert [c.seq for c in claim.commands] == run.unconsumed
        assert [c.submission_id for c in claim.commands] == [run.inbox[n - 1] for n in run.unconsumed]
        assert (claim.signals.inbox_seq, claim.signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        assert {p.prompt_id for p in run.prompts if p.outcome is None} <= {p.prompt_id for p in claim.prompts}
        run.owner, run.epoch, run.recorded, run.seen = owner, claim.epoch, False, len(run.inbox)
        run.lease_until = self.expected.now + LEASE
        self.claims[run.run_id] = claim

    @precondition(lambda self: self.any_held())
    @rule(
        pick=picks,
        release=st.booleans(),
        ask=st.booleans(),
        ends=st.sampled_from([False, False, False, True]),
        timer=st.sampled_from([None, 0, MINUTE]),
        visible=st.integers(min_value=0, max_value=2),
    )
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

    @precondition(lambda self: self.any_held())
    @rule(pick=picks, text=st.sampled_from(["k1", "k2"]))
    def record(self, pick: int, text: str) -> None:
        run, claim = self.held(pick)
        before = len(self.do(self.real.records(run.run_id, run.step_no)))
        self.do(reply(self.real, claim, key=text, step_n=run.step_no))
        run.recorded |= len(self.do(self.real.records(run.run_id, run.step_no))) > before

    @precondition(lambda self: self.any_held())
    @rule(pick=picks, count=st.integers(min_value=0, max_value=3))
    def append(self, pick: int, count: int) -> None:
        run, claim = self.held(pick)
        signals = self.do(self.real.append(run.run_id, claim.epoch, tuple(event() for _ in range(count))))
        assert (signals.inbox_seq, signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        run.visible += count

    @precondition(lambda self: self.any_held())
    @rule(pick=picks, unused=st.booleans())
    def release(self, pick: int, unused: bool) -> None:
        run, claim = self.held(pick)
        call = self.real.release(run.run_id, claim.epoch, timer_at=None, seen=run.seen, unused=unused)
        self.do(call)
        run.let_go(self.expected.now, timer_at=None)
        self.lost(run)

    @precondition(lambda self: self.any_held())
    @rule(pick=picks)
    def fail(self, pick: int) -> None:
        run, claim = self.held(pick)
        retry_at = min(self.expected.now + MINUTE, run.deadline_at or self.expected.now + MINUTE)
        self.do(self.real.charge(run.run_id, claim.epoch, error="e", retry_at=retry_at, seen=run.seen))
        run.charged += 1
        run.let_go(self.expected.now, timer_at=retry_at)
        self.lost(run)

    @precondition(lambda self: self.any_held())
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        run, claim = self.held(pick)
        assert run.owner is not None
        answered = self.do(self.real.renew(run.owner, [(run.run_id, claim.epoch)], lease_ms=LEASE))
        assert answered[run.run_id].inbox_seq == len(run.inbox)
        run.lease_until = self.expected.now + LEASE

    @precondition(lambda self: self.stale)
    @rule(pick=picks)
    def act_as_zombie(self, pick: int) -> None:
        claim = self.stale[pick % len(self.stale)]
        with pytest.raises(LeaseLost):
            self.do(self.real.append(claim.run_id, claim.epoch, (event("zombie"),)))
        with pytest.raises(LeaseLost):
            self.do(self.real.commit(step_commit(claim, consume=False, outbox=(post("zombie"),), end="zombie")))

    @precondition(lambda self: self.any_held())
    @rule(owner=owners)
    def die(self, owner: str) -> None:
        mine = [r for r in self.expected.runs if r.owner == owner]
        assert self.do(self.real.reap(owner)) == len(mine)
        for run in mine:
            run.lose(self.expected.now)
            self.lost(run)

    @rule(by=st.sampled_from([1, 1_003, LEASE // 2 + 1, LEASE + 1, MINUTE, 6 * MINUTE]))
    def advance(self, by: int) -> None:
        self.expected.now = self.clock.advance(ms(by))
        over = [r for r in self.expected.runs if r.owner is not None and r.lease_until < self.expected.now]
        assert self.do(self.real.reap("nobody")) == len(over)
        for run in over:
            run.lose(self.expected.now)
            self.lost(run)

    @precondition(lambda self: any(self.expected.owed.values()))
    @rule(limit=st.integers(min_value=1, max_value=3))
    def send(self, limit: int) -> None:
        lanes = self.do(self.real.claim_lanes("w1", limit=10, lease_ms=LEASE, items=limit))
        assert {lane.address for lane in lanes} == {a for a, owed in self.expected.owed.items() if owed}, "a lane was forgotten"
        for lane in lanes:
            owed = self.expected.owed[lane.address]
            assert len(lane.items) == self.expected.sendable(lane.address, limit)
            for item in lane.items:
                delivery_id, edit_of = owed.pop(0)
                assert item.edit_of == edit_of
                assert delivery_id in {None, item.delivery_id}, "a lane is out of order"
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


SETTINGS = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
StoreMachine.TestCase.settings = SETTINGS
TestStoreMachine = StoreMachine.TestCase


# ── the machine itself: it has to find what is wrong ──


class Forgetful(SqliteStore):
    """Sleep whatever came in meanwhile: the lost wake-up of CORE 1."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, seen=1_000))


class Hasty(SqliteStore):
    """Take each redelivery for something new."""

    async def admit(self, admission: Admission) -> Receipt:
        return await super().admit(replace(admission, key=admission.submission_id))


class Lenient(SqliteStore):
    """Let a zombie write under whatever epoch is current."""

    async def append(self, run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        try:
            return await super().append(run_id, epoch, events)
        except LeaseLost:
            return Signals(inbox_seq=0, cancel_pending=False)


class Careless(SqliteStore):
    """Charge nobody for a crash."""

    async def reap(self, owner: str) -> int:
        await super().withdraw(owner)
        return await super().reap(owner)


class Gullible(SqliteStore):
    """Take anybody's click for the requester's."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await super().answer(replace(answer, principal=ALICE))


class Jumpy(SqliteStore):
    """Send the second item of a lane first."""

    async def claim_lanes(self, owner: str, *, limit: int, lease_ms: int, items: int = 10) -> list[Lane]:
        lanes = await super().claim_lanes(owner, limit=limit, lease_ms=lease_ms, items=items)
        return [replace(lane, items=lane.items[::-1]) for lane in lanes]


@pytest.mark.parametrize("broken", [Forgetful, Hasty, Lenient, Careless, Gullible, Jumpy])
def test_the_machine_finds_a_broken_store(broken: type[SqliteStore]) -> None:
    class Machine(StoreMachine):
        def make(self) -> Store:
            return broken(":memory:", keys=KeyRing.parse(KEYS), clock=self.clock)

    quick = settings(SETTINGS, max_examples=200, database=None, phases=[Phases.generate], print_blob=False, derandomize=True)
    with pytest.raises((AssertionError, pytest.fail.Exception, DurableError)):
        run_state_machine_as_test(Machine, settings=quick)
