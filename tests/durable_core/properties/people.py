"""People: what comes in from outside, as rules of the state machine.

What lives here: messages, new runs, cancels, clicks, ends, forgetting. What does not: what workers do.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.model import (
    Admission,
    AnswerPolicy,
    AnswerStatus,
    Claim,
    ClaimRequest,
    Outcome,
    PromptOutcome,
    Receipt,
    RunKind,
    ToAddress,
    ToNew,
)
from durable_core.testing.builders import (
    ALICE,
    BOB,
    CHANNEL,
    MINUTE,
    answer,
    cancel,
    event,
    message,
    new_run,
    post,
    to_address,
)
from tests.durable_core.properties.expected import ExpectedAnswer, ExpectedRun
from tests.durable_core.properties.setting import ADDRESSES, HOOKS, WORKFLOWS, Setting

TOLD = frozenset({AnswerStatus.REFUSED, AnswerStatus.ALREADY_SETTLED, AnswerStatus.COUNTED, AnswerStatus.ASIDE})
"""Whoever answered so is owed a word: nothing happens yet, or nothing at all."""
TELL = (CHANNEL, "tell")
"""Where whoever answered in vain is told so."""


class People(Setting):
    """What people do."""

    def admit(
        self,
        address: str,
        lifetime: int | None,
        *,
        later: int | None = None,
        keep: int | None = None,
        taker: ClaimRequest | None = None,
    ) -> tuple[ExpectedRun, Claim | None]:
        now, claim = self.expected.now, None
        wake_at = None if later is None else now + later
        admission = message(to_address(address, new=new_run(lifetime_ms=lifetime, wake_at=wake_at, keep_ms=keep)))
        run = self.expected.addresses.get((CHANNEL, address))
        if run is None or taker is None:
            receipt = self.do(self.real.admit(admission))
        else:
            receipt, claim = self.wake(run, admission, taker)
        assert receipt.created is (run is None)
        if run is None:
            deadline = None if lifetime is None else now + lifetime
            run = self.born(ExpectedRun(receipt.run_id, (CHANNEL, address), deadline, keep, wake_at=deadline))
            self.expected.addresses[CHANNEL, address] = run
            self.came(run, admission.submission_id, receipt.seq)
            run.wake_at = max(now, wake_at or now)
        else:
            assert receipt.run_id == run.run_id
            self.came(run, admission.submission_id, receipt.seq)
        self.accepted.append((admission, receipt))
        return run, claim

    def wake(self, run: ExpectedRun, admission: Admission, taker: ClaimRequest) -> tuple[Receipt, Claim | None]:
        """Write to a run that is there, and have a worker take it if nobody holds it."""
        receipt, claim = self.do(self.real.begin(admission, taker))
        able = taker.abilities
        takes = able.sessions if run.kind is RunKind.SESSION else run.name in able.workflows
        free = run.owner is None and takes and (run.stranded_code is None or run.stranded_code != able.code)
        assert (claim is not None) is (free and run.crashes < 2), "an input took what it may not, or not what it may"
        return receipt, claim

    def begin(
        self, pick: int, later: int | None, keep: int | None, *, empty: bool, taker: ClaimRequest | None = None
    ) -> tuple[ExpectedRun, Claim | None]:
        """Start a run without an address: a workflow, or a session that may have no input yet; a worker may take it at once."""
        now = self.expected.now
        kind = RunKind.SESSION if empty else RunKind.WORKFLOW
        name = "support" if empty else WORKFLOWS[pick % 2]
        wake_at = None if later is None else now + later
        admission = message(ToNew(new=new_run(kind=kind, name=name, keep_ms=keep, wake_at=wake_at)))
        if empty:
            admission = replace(admission, kind=None, body=b"")
        claim = None
        if taker is None:
            receipt = self.do(self.real.admit(admission))
        else:
            receipt, claim = self.do(self.real.begin(admission, taker))
            able = taker.abilities.sessions if empty else name in taker.abilities.workflows
            assert (claim is not None) is (able and not empty and later is None)
        assert receipt.created
        run = self.born(ExpectedRun(receipt.run_id, (CHANNEL, ADDRESSES[pick % 3]), None, keep, kind, name))
        if empty:
            assert receipt.seq == 0
            run.submissions.append(admission.submission_id)
            self.expected.outcomes[admission.submission_id] = Outcome.COMPLETED
        else:
            self.came(run, admission.submission_id, receipt.seq)
            run.wake_at = max(now, wake_at or now)
        self.accepted.append((admission, receipt))
        return run, claim

    def born(self, run: ExpectedRun) -> ExpectedRun:
        self.expected.runs.append(run)
        return run

    def came(self, run: ExpectedRun, submission_id: str, seq: int) -> None:
        assert seq == run.put(submission_id, self.expected.now)
        run.submissions.append(submission_id)
        self.expected.outcomes[submission_id] = None

    def call(self, pick: int, taker: ClaimRequest | None = None) -> tuple[ExpectedRun | None, Claim | None]:
        """Write to an address that no message makes a run for: a hook."""
        channel, address = HOOKS[pick % len(HOOKS)]
        admission = message(ToAddress(channel=channel, address=address, new=None))
        run = self.expected.addresses.get((channel, address))
        if run is None:
            with pytest.raises(NotFound):
                self.do(self.real.admit(admission))
            return None, None
        if taker is None:
            receipt, claim = self.do(self.real.admit(admission)), None
        else:
            receipt, claim = self.wake(run, admission, taker)
        assert receipt.run_id == run.run_id, "an address led to another run"
        self.came(run, admission.submission_id, receipt.seq)
        return run, claim

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
        if run.has_turn:
            self.came(run, admission.submission_id, receipt.seq)
            run.cancels.add(receipt.seq)
        else:
            run.submissions.append(admission.submission_id)
            self.expected.outcomes[admission.submission_id] = Outcome.COMPLETED

    def click(
        self,
        pick: int,
        by: str,
        outcome: PromptOutcome,
        *,
        tell: bool,
        override: bool = False,
        judge: bool = False,
        aside: bool = False,
    ) -> None:
        questions = [(r, p) for r in self.expected.runs for p in r.prompts]
        questions.sort(key=lambda q: q[1].outcome is not None)
        run, question = questions[pick % len(questions)]
        given = answer(
            question.prompt_id,
            by=by,
            outcome=outcome,
            events=(event("settled"),),
            counted=(event("counted"),),
            judge=judge,
            override=override,
        )
        given = replace(given, aside=aside, tell=post(TELL[1]) if tell else None)
        if run.purged_at is not None:
            with pytest.raises(ContentGone):
                self.do(self.real.answer(given))
            return
        receipt = self.do(self.real.answer(given))
        run.submissions.append(given.submission_id)
        waits = judge or (question.policy is AnswerPolicy.FUNCTION and not override)
        status = self.expected.judge(run, question, by, outcome, override=override, waits=waits, aside=aside)
        assert receipt.status is status, "an answer was judged otherwise"
        if status is AnswerStatus.ALREADY_SETTLED:
            assert receipt.prompt is not None
            assert receipt.prompt.outcome is question.outcome
        if status is AnswerStatus.PENDING:
            self.expected.outcomes[given.submission_id] = None
            waiting = ExpectedAnswer(given.submission_id, run, question, outcome, by, override, aside, self.expected.now)
            self.expected.answers.append(waiting)
            return
        self.expected.take(run, question, status, by, outcome, override=override, submission_id=given.submission_id)
        if tell and status in TOLD:
            assert given.tell is not None
            self.expected.owe(run, TELL, given.tell.delivery_id)

    def end(self, pick: int) -> None:
        run = self.open_runs[pick % len(self.open_runs)]
        assert self.do(self.real.end(run.run_id, reason="reset", events=(event("ended"),)))
        assert not self.do(self.other.end(run.run_id, reason="again", events=(event("ended"),)))
        run.visible += 1
        if run.owner is not None:
            self.lost(run)
        self.expected.end(run)

    def forget(self, pick: int) -> None:
        runs = sorted(self.expected.runs, key=lambda r: (r.open, r.purged_at is not None, not self.expected.owes(r)))
        run = runs[pick % min(3, len(runs))]
        forgotten = self.do(self.real.forget(run.run_id))
        assert forgotten is (not run.open and run.purged_at is None)
        if forgotten:
            self.gone(run)

    def purge(self) -> None:
        due = self.expected.to_purge()
        assert sorted(self.do(self.real.purge(limit=100))) == due, "content was kept too long or too short"
        for run in self.expected.runs:
            if run.run_id in due:
                self.gone(run)

    def gone(self, run: ExpectedRun) -> None:
        """Nothing of a forgotten run is to be read, in whatever process."""
        run.purged_at = self.expected.now
        for store in {self.real, self.other}:
            assert self.do(store.run(run.run_id)).header == b""
            reads: list[Coroutine[Any, Any, object]] = [store.events(run.run_id, hidden=True)]
            reads += [store.steps(run.run_id)] if run.step_no else []
            reads += [store.content(run.run_id, ["command:1"])] if run.inbox else []
            for read in reads:
                with pytest.raises(ContentGone):
                    self.do(read)


KEEPS = (None, 0, 2 * MINUTE)
"""How long runs keep their content once they have ended."""
PRINCIPALS = (ALICE, BOB)
