"""Workers: what is done under a claim, as rules of the state machine.

What lives here: claiming, committing, giving back, dying. What does not: lanes and answers (`senders`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from durable_core.errors import AddressTaken, LeaseLost, PromptTaken
from durable_core.model import (
    INTERNAL,
    Abilities,
    Admission,
    AnswerPolicy,
    Claim,
    ClaimRequest,
    Committed,
    OutboxDraft,
    Outcome,
    Phase,
    PromptDraft,
    PromptOutcome,
    PromptSettlement,
    PromptUpdate,
    RunKind,
    SubmissionOutcome,
    ToNew,
)
from durable_core.testing.acts import enrol, reply
from durable_core.testing.builders import ALICE, BOB, LEASE, MINUTE, body, event, message, ms, new_run, post, prompt, step_commit
from tests.durable_core.properties.expected import ExpectedPrompt, ExpectedRun
from tests.durable_core.properties.setting import HOOKS, WORKFLOWS, Setting


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a commit is to do besides the step itself."""

    release: bool = False
    ask: AnswerPolicy | None = None
    ends: bool = False
    timer: int | None = None
    visible: int = 1
    post: bool = True
    own: tuple[tuple[str, str], ...] = ()
    starts: tuple[Admission, ...] = ()
    settle: tuple[ExpectedPrompt, ...] = ()
    move: tuple[ExpectedPrompt, ...] = ()
    quorum: int = 1
    shared: int = 1
    """How many questions share the card."""
    two: bool = False
    """Finish two steps at once."""


class Workers(Setting):
    """What workers do with runs."""

    def claim(self, owner: str, limit: int, able: Abilities, *, alone: bool, recovering: int | None = None) -> None:
        now = self.expected.now
        self.lose_expired()
        due = {r.run_id: r for r in self.expected.runs if r.is_due(now, able)}
        calm = {r for r, run in due.items() if run.crashes < 2}
        request = ClaimRequest(owner=owner, lease_ms=LEASE, limit=limit, alone=alone, abilities=able, recovering=recovering)
        taken = self.do(self.real.claim(request))
        ids = {c.run_id for c in taken}
        assert len(ids) == len(taken)
        assert ids <= set(due), "a run was offered to a worker that can't take it"
        if recovering is not None:
            others = {r for r in calm if not due[r].interrupted}
            assert ids <= calm
            assert len(ids) >= min(limit, len(others) + min(recovering, len(calm - others))), "a wake-up was lost"
            left = [due[r].wake_at or 0 for r in others - ids]
            assert max((due[r].wake_at or 0 for r in ids), default=0) <= min(left, default=now), "the longest due wasn't first"
        elif not alone:
            assert ids <= calm
            assert len(ids) == min(limit, len(calm)), "a wake-up was lost"
            left = [due[r].wake_at or 0 for r in calm - ids]
            assert max((due[r].wake_at or 0 for r in ids), default=0) <= min(left, default=now), "the longest due wasn't first"
        else:
            assert bool(ids) is bool(due), "a wake-up was lost"
            assert ids <= calm or len(ids) == 1, "a run that kills its worker has company"
        for claim in taken:
            self.took(due[claim.run_id], claim, owner)

    def took(self, run: ExpectedRun, claim: Claim, owner: str) -> None:
        assert claim.epoch > run.epoch
        assert (claim.step_no, claim.kind) == (run.step_no, run.kind)
        assert (claim.charged, claim.crashes) == (run.charged, run.crashes), "charges disagree"
        assert [c.seq for c in claim.commands] == run.unconsumed
        assert [c.submission_id for c in claim.commands] == [run.inbox[n - 1] for n in run.unconsumed]
        assert (claim.signals.inbox_seq, claim.signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        assert {p.prompt_id for p in run.prompts if p.outcome is None} <= {p.prompt_id for p in claim.prompts}
        run.owner, run.epoch, run.recorded, run.seen, run.wake_at = owner, claim.epoch, False, len(run.inbox), None
        run.lease_until = self.expected.now + LEASE
        self.claims[run.run_id] = claim

    def commit(self, pick: int, plan: Plan) -> None:
        run, claim = self.held(pick)
        now = self.expected.now
        known = [n for n in run.unconsumed if n <= run.seen]
        questions = self.questions(plan, now + MINUTE)
        posts = self.posts(run, plan, questions[0].prompt_id)
        updates = tuple(PromptUpdate(expires_at=now + MINUTE, remind_at=now, **self.moved(p)) for p in plan.move)
        timer_at = None if plan.timer is None else now + plan.timer
        phase = Phase.WAITING if plan.ask else Phase.IDLE if plan.release else Phase.RUNNING
        done = tuple(SubmissionOutcome(submission_id=run.inbox[n - 1], outcome=Outcome.COMPLETED) for n in known)
        call = self.real.commit(
            step_commit(
                claim,
                step_n=run.step_no,
                before="before" if plan.two else None,
                seen=run.seen,
                consumed=tuple(known),
                outcomes=done,
                events=(*(event() for _ in range(plan.visible)), event(visible=False)),
                outbox=posts,
                prompts=questions if plan.ask else (),
                updates=updates,
                settle=tuple(PromptSettlement(prompt_id=p.prompt_id, outcome=PromptOutcome.EXPIRED) for p in plan.settle),
                addresses=plan.own,
                starts=plan.starts,
                turn_id=None if phase is Phase.IDLE else f"turn_{run.step_no}",
                link_turn=f"turn_{run.step_no}",
                phase=phase,
                timer_at=timer_at,
                release=plan.release,
                end="done" if plan.ends else None,
            )
        )
        if any(self.expected.addresses.get(place, run) is not run for place in plan.own):
            with pytest.raises(AddressTaken):
                self.do(call)
            return
        if any(p.outcome is not None for p in (*plan.settle, *plan.move)):
            with pytest.raises(PromptTaken):
                self.do(call)
            return
        committed = self.do(call)
        fresh = [n for n in run.unconsumed if n > run.seen]
        run.consumed.update(known)
        for n in known:
            self.expected.outcomes[run.inbox[n - 1]] = self.expected.outcomes[run.inbox[n - 1]] or Outcome.COMPLETED
        run.visible += plan.visible
        for _ in range(1 + plan.two):
            run.finish_step()
        run.phase = phase
        self.expected.settle(plan.settle, PromptOutcome.EXPIRED)
        for p, update in zip(plan.move, updates, strict=True):
            self.expected.audit["moved", p.prompt_id, None] += update.level is not None
            p.expires_at, p.level = now + MINUTE, p.level if update.level is None else update.level
            p.answerers = p.answerers if update.answerers is None else update.answerers
        self.expected.edit(run, (*plan.settle, *plan.move))
        for draft in posts:
            self.expected.owe(run, (draft.channel, draft.address), draft.delivery_id)
        for question in questions if plan.ask else ():
            run.prompts.append(
                ExpectedPrompt(
                    question.prompt_id,
                    question.policy,
                    now + MINUTE,
                    posts[0].delivery_id,
                    run.home,
                    question.requester,
                    question.answerers,
                    question.quorum,
                )
            )
        self.expected.addresses |= dict.fromkeys(plan.own, run)
        for start in plan.starts:
            self.started(run, start)
        self.finished(run, plan, committed, fresh, timer_at)

    def posts(self, run: ExpectedRun, plan: Plan, prompt_id: str) -> tuple[OutboxDraft, ...]:
        """Owe a card with a question, else a message; without either the commit is the plainest there is."""
        if not plan.post and not plan.ask:
            return ()
        card = post(run.home[1], prompt_id=prompt_id if plan.ask else None)
        inside = OutboxDraft(delivery_id=f"{card.delivery_id}i", channel=INTERNAL, address=run.run_id, body=body("signal"))
        return (card, inside) if run.kind is RunKind.WORKFLOW else (card,)

    def questions(self, plan: Plan, expires_at: int) -> tuple[PromptDraft, ...]:
        """Return the questions that a commit may ask; several share the card of the first one."""
        policy = plan.ask or AnswerPolicy.REQUESTER
        asked = [
            prompt(expires_at=expires_at, policy=policy, quorum=plan.quorum, answerers=(ALICE, BOB), call_id=f"0.0.{n}")
            for n in range(plan.shared)
        ]
        return tuple(replace(one, group=asked[0].prompt_id) for one in asked) if plan.shared > 1 else tuple(asked)

    def moved(self, question: ExpectedPrompt) -> dict[str, Any]:
        """Return what an update says besides the times: every other time that the question is handed to Bob."""
        if self.expected.now % 2:
            return {"prompt_id": question.prompt_id}
        return {"prompt_id": question.prompt_id, "level": question.level + 1, "asked": "Bob", "answerers": (BOB,)}

    def started(self, parent: ExpectedRun, start: Admission) -> None:
        """Take down a child, unless its key is known."""
        if start.key in self.keys:
            return
        assert isinstance(start.target, ToNew)
        new = start.target.new
        child = ExpectedRun(new.run_id, parent.home, None, new.keep_ms, new.kind, new.name)
        child.put(start.submission_id, self.expected.now)
        child.wake_at = max(self.expected.now, new.wake_at or 0)
        child.submissions.append(start.submission_id)
        self.expected.runs.append(child)
        self.expected.outcomes[start.submission_id] = None
        self.keys[start.key] = child.run_id

    def finished(self, run: ExpectedRun, plan: Plan, committed: Committed, fresh: list[int], timer_at: int | None) -> None:
        assert (committed.step_no, committed.signals.inbox_seq) == (run.step_no, len(run.inbox))
        if plan.ends:
            self.expected.end(run, (*plan.settle, *plan.move))
            self.lost(run)
        elif plan.release:
            assert committed.commands == ()
            run.let_go(self.expected.now, timer_at=timer_at)
            self.lost(run)
        else:
            assert [c.seq for c in committed.commands] == fresh
            run.seen = len(run.inbox)

    def start(self, pick: int, *, later: bool) -> None:
        """Start a child in a commit; every other time by a key that may be known, as a step does that is run again."""
        key = f"child:{pick % 4}" if pick % 2 else f"child:{len(self.expected.runs)}:{self.expected.now}:{pick}"
        wake_at = self.expected.now + MINUTE if later else None
        new = new_run(kind=RunKind.WORKFLOW, name=WORKFLOWS[pick % 2], wake_at=wake_at, keep_ms=0)
        child = message(ToNew(new=new), source="child", key=key)
        self.commit(pick, Plan(starts=(child,), visible=0, post=False))

    def own(self, pick: int, *, ends: bool) -> None:
        places = (HOOKS[pick % 3],) if pick % 2 else (HOOKS[pick % 3], HOOKS[(pick + 1) % 3])
        self.commit(pick, Plan(own=places, ends=ends, post=False, visible=0))

    def expire(self, pick: int) -> None:
        """Settle a question from within the run, as happens when its time is over."""
        run, _ = self.held(pick)
        questions = sorted(run.prompts, key=lambda p: p.outcome is not None)
        self.commit(pick, Plan(settle=tuple(questions[:1])))

    def move(self, pick: int, *, ends: bool) -> None:
        """Give questions more time; now and then hand them to somebody else, or settle one of them as well."""
        run, _ = self.held(pick)
        questions = sorted(run.prompts, key=lambda p: p.outcome is not None)
        self.commit(pick, Plan(move=tuple(questions[:2]), settle=tuple(questions[2:3]), ends=ends))

    def record(self, pick: int) -> None:
        run, claim = self.held(pick)
        before = len(self.do(self.real.records(run.run_id, run.step_no)))
        self.do(reply(self.real, claim, key=f"k{pick % 2}", step_n=run.step_no))
        run.recorded |= len(self.do(self.other.records(run.run_id, run.step_no))) > before

    def append(self, pick: int) -> None:
        run, claim = self.held(pick)
        count = pick % 4
        signals = self.do(self.real.append(run.run_id, claim.epoch, tuple(event() for _ in range(count))))
        assert (signals.inbox_seq, signals.cancel_pending) == (len(run.inbox), run.cancel_pending)
        run.visible += count

    def refresh(self, pick: int) -> None:
        run, claim = self.held(pick)
        again = self.do(self.real.refresh(run.run_id, claim.epoch))
        assert [c.seq for c in again.commands] == run.unconsumed
        run.seen = len(run.inbox)
        self.claims[run.run_id] = again

    def renew(self, pick: int) -> None:
        run, claim = self.held(pick)
        assert run.owner is not None
        assert run.run_id in self.do(self.real.renew(run.owner, [(run.run_id, claim.epoch)], lease_ms=LEASE))
        run.lease_until = self.expected.now + LEASE

    def release(self, pick: int, *, unused: bool) -> None:
        run, claim = self.held(pick)
        self.do(self.real.release(run.run_id, claim.epoch, timer_at=None, seen=run.seen, unused=unused))
        run.let_go(self.expected.now, timer_at=None)
        run.interrupted = run.interrupted and unused
        self.lost(run)

    def fail(self, pick: int) -> None:
        run, claim = self.held(pick)
        retry_at = self.expected.now + MINUTE
        self.do(self.real.charge(run.run_id, claim.epoch, error="e", retry_at=retry_at, seen=run.seen))
        run.charged, run.interrupted = run.charged + 1, False
        run.let_go(self.expected.now, timer_at=retry_at)
        self.lost(run)

    def strand(self, pick: int) -> None:
        run, claim = self.held(pick)
        code = f"c{1 + pick % 2}"
        self.do(self.real.strand(run.run_id, claim.epoch, reason="a step is gone", code=code))
        run.owner, run.wake_at, run.stranded_code = None, self.expected.now, code
        self.lost(run)

    def unstrand(self, pick: int) -> None:
        runs = sorted(self.expected.runs, key=lambda r: r.stranded_code is None)
        run = runs[pick % min(3, len(runs))]
        assert self.do(self.real.unstrand(run.run_id)) is (run.stranded_code is not None)
        if run.stranded_code is not None:
            run.stranded_code = None
            run.wake(self.expected.now)

    def act_as_zombie(self, pick: int) -> None:
        claim = self.stale[pick % len(self.stale)]
        with pytest.raises(LeaseLost):
            self.do(self.real.append(claim.run_id, claim.epoch, (event("zombie"),)))
        with pytest.raises(LeaseLost):
            self.do(self.real.commit(step_commit(claim, consume=False, outbox=(post("zombie"),), end="zombie")))
        with pytest.raises(LeaseLost):
            self.do(self.real.strand(claim.run_id, claim.epoch, reason="zombie", code="c1"))

    def die(self, owner: str) -> None:
        over = self.lose_expired()
        mine = [r for r in self.expected.runs if r.owner == owner]
        assert self.do(self.real.reap(owner)) == len(mine) + over
        for run in mine:
            run.lose(self.expected.now)
            self.lost(run)
        self.give_back(owner)
        self.lose_lanes()
        self.do(enrol(self.real, (owner,)))

    def withdraw(self, owner: str) -> None:
        self.do(self.real.withdraw(owner))
        for run in [r for r in self.expected.runs if r.owner == owner]:
            run.owner, run.wake_at, run.interrupted = None, self.expected.now, False
            self.lost(run)
        self.give_back(owner)
        self.do(enrol(self.real, (owner,)))

    def advance(self, by: int, *, reap: bool) -> None:
        self.expected.now = self.place.clock.advance(ms(by))
        if reap:
            over = self.lose_expired()
            assert self.do(self.real.reap("nobody")) == over
            self.lose_lanes()
