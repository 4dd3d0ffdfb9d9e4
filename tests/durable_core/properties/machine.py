"""The state machine: stores against a model of them in plain Python, one call a rule.

What lives here: choosing what happens, and what is compared after each. What does not: the rules' own modules, the model
(`expected`), where the stores live (`world`), running it (`test_store_machine`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from durable_core.model import SESSIONS, Abilities, AnswerPolicy, Claim, ClaimRequest, PromptOutcome
from durable_core.store import Store
from durable_core.testing.acts import WORKERS
from durable_core.testing.builders import LEASE, MINUTE
from durable_core.testing.histories import check_store
from tests.durable_core.properties.expected import ExpectedRun
from tests.durable_core.properties.people import KEEPS, PRINCIPALS
from tests.durable_core.properties.senders import Senders
from tests.durable_core.properties.setting import ABLE, ADDRESSES
from tests.durable_core.properties.workers import Plan, Workers

HELD = frozenset(
    {"let go", "ask", "go on", "work", "fail", "release", "own", "start", "expire", "move", "strand", "die", "withdraw"}
)
"""What needs a run in somebody's hands."""
KINDS = (
    *("claim", "claim", "claim", "admit", "admit", "admit", "new", "let go", "let go", "ask", "ask", "ask", "go on", "work"),
    *("work", "click", "click", "click", "click", "take", "judge", "judge", "send", "send", "keep sending", "advance", "advance"),
    *(
        "zombie",
        "fail",
        "release",
        "die",
        "withdraw",
        "cancel",
        "end",
        "redeliver",
        "own",
        "own",
        "call",
        "start",
        "expire",
        "move",
    ),
    *("strand", "unstrand", "purge", "forget", "crash"),
)
MANY = 6
"""Open runs; more would leave each with little."""
picks = st.integers(min_value=0, max_value=1_000)

_TABLES = (
    "SELECT submission_id, outcome FROM moor_admission",
    """SELECT run_id, status, phase, step_no, event_index, inbox_seq, owner, epoch, wake_at, charged, crashes, progressed,
        stranded_code, ended_at, purged_at FROM moor_run""",
    "SELECT prompt_id, outcome, expires_at, level FROM moor_prompt",
    "SELECT channel, address, run_id FROM moor_address",
    "SELECT v.prompt_id, v.principal FROM moor_vote v",
    "SELECT act, prompt_id, principal FROM moor_audit",
)


class StoreMachine(Workers, Senders):
    """Every rule does one call on both, every invariant compares what can be read."""

    focus: ClassVar[tuple[str, ...]] = ()
    """What is to happen more often than else."""

    @initialize()
    def open(self) -> None:
        self.admit("a", None)
        self.claim("w1", 1, SESSIONS, alone=False)

    def teardown(self) -> None:
        try:
            self.do(check_store(self.real))
        finally:
            self.place.end()
            if self.world is None:
                self.place.close()

    # one weighted rule: separate ones are switched off for whole examples and leave little work
    @rule(kind=st.sampled_from(KINDS), pick=picks, size=st.integers(min_value=0, max_value=3), flag=st.booleans())
    def happen(self, *, kind: str, pick: int, size: int, flag: bool) -> None:
        self.at = size % len(self.place.stores)
        if self.focus and pick % 3 == 0:
            kind = self.focus[pick // 3 % len(self.focus)]
        if kind in HELD and not self.any_held():
            kind = "claim"
        able = self.able(pick)
        if kind == "claim" and not any(r.is_due(self.expected.now, able) for r in self.expected.runs):
            kind = "let go" if self.any_held() else "admit"
        if kind == "new" and len(self.open_runs) > MANY:
            kind = "admit"
        if kind in HELD:
            self.happen_to_held(kind, pick, size, flag=flag)
        elif kind == "claim":
            self.claim(WORKERS[pick % 2], size + 1, able, alone=flag, recovering=None if flag or pick % 3 else size % 3)
        elif kind == "admit":
            later = 2 * MINUTE if flag and size == 1 else None
            lifetime, taker = 5 * MINUTE if flag and size == 0 else None, self.taker(pick, able)
            self.took_with_input(*self.admit(ADDRESSES[pick % 3], lifetime, later=later, keep=KEEPS[pick % 3], taker=taker))
        elif kind == "call":
            self.took_with_input(*self.call(pick, self.taker(pick, able)))
        elif kind == "new":
            later, taker = MINUTE if flag and size else None, self.taker(pick, able)
            self.took_with_input(*self.begin(pick, later, KEEPS[size % 3], empty=size == 0, taker=taker))
        elif kind == "advance":
            self.advance((1, 1_003, LEASE // 2 + 1, LEASE + 1, MINUTE, 6 * MINUTE)[pick % 6], reap=flag)
        elif kind == "crash":
            self.place.crash(self.at)
        else:
            self.happen_among_people(kind, pick, size, flag=flag)

    def taker(self, pick: int, able: Abilities) -> ClaimRequest | None:
        """Choose a worker that takes the run with its input, or none."""
        return ClaimRequest(owner=WORKERS[pick % 2], lease_ms=LEASE, limit=1, abilities=able) if pick % 4 < 3 else None

    def took_with_input(self, run: ExpectedRun | None, claim: Claim | None) -> None:
        """Take down that a run was taken with its input."""
        if run is not None and claim is not None:
            self.took(run, claim, claim.owner)

    def able(self, pick: int) -> Abilities:
        """Choose a worker's abilities; one of those that find something to do, if there is any."""
        turned = ABLE[pick % len(ABLE) :] + ABLE[: pick % len(ABLE)]
        return next((a for a in turned if any(r.is_due(self.expected.now, a) for r in self.expected.runs)), turned[0])

    def happen_to_held(self, kind: str, pick: int, size: int, *, flag: bool) -> None:
        if kind == "let go":
            self.commit(pick, Plan(release=True, timer=(None, None, 0, MINUTE)[size], visible=size % 3, post=flag, two=size == 1))
        elif kind == "ask":
            policy = (AnswerPolicy.REQUESTER, AnswerPolicy.FUNCTION, AnswerPolicy.LISTED)[size % 3]
            shared = 2 if pick % 5 == 0 else 1
            self.commit(pick, Plan(release=flag, ask=policy, quorum=1 + (pick % 3 == 0), shared=shared))
        elif kind == "go on":
            self.commit(pick, Plan(ends=flag, visible=size % 3, post=bool(size % 2), two=size > 1))
        elif kind == "release":
            self.release(pick, unused=flag)
        elif kind == "start":
            self.start(pick, later=flag)
        elif kind == "move":
            self.move(pick, ends=flag and size == 0)
        elif kind == "own":
            self.own(pick, ends=flag and size == 0)
        elif kind == "withdraw":
            self.withdraw(self.held(pick)[0].owner or "")
        elif kind == "die":
            self.die(self.held(pick)[0].owner or "")
        elif kind == "work":
            (self.record, self.append, self.renew, self.refresh)[size](pick)
        else:
            {"fail": self.fail, "expire": self.expire, "strand": self.strand}[kind](pick)

    def happen_among_people(self, kind: str, pick: int, size: int, *, flag: bool) -> None:
        if kind == "click" and any(r.prompts for r in self.expected.runs):
            outcome = PromptOutcome.DENIED if size == 3 else PromptOutcome.APPROVED
            by = PRINCIPALS[not flag]
            self.click(pick, by, outcome, tell=size > 1, override=pick % 13 == 0, judge=pick % 7 == 0, aside=pick % 11 == 5)
        elif kind == "take" or (kind == "judge" and not self.taken):
            self.take_answers(pick)
        elif kind == "judge":
            self.judge(pick, allowed=size > 0, tell=flag)
        elif kind == "zombie" and self.stale:
            self.act_as_zombie(pick)
        elif kind == "keep sending" and self.lanes:
            self.go_on_sending(pick)
        elif kind in {"send", "keep sending"}:
            self.take_lanes(pick, size + 1, keep=kind == "keep sending" or (flag and size == 0))
        elif kind == "cancel" and flag:
            self.cancel(pick)
        elif kind == "end" and flag and len(self.open_runs) > 1:
            self.end(pick)
        elif kind == "forget" and flag:
            self.forget(pick)
        else:
            act = self.unstrand if kind == "unstrand" else self.redeliver
            if kind == "purge":
                self.tidy(flag=flag)
            else:
                act(pick)

    def tidy(self, *, flag: bool) -> None:
        """Delete what was kept long enough; now and then send all that is owed before, which it waits for."""
        if flag:
            self.take_lanes(8, 100, keep=False)
            self.advance(3 * MINUTE, reap=True)
            self.take_lanes(8, 100, keep=False)
        self.purge()

    # ── what must be true after each ──
    @invariant()
    def all_that_can_be_read_agrees(self) -> None:
        if self.place.stores:
            self.do(self.compare(self.other))

    async def compare(self, store: Store) -> None:
        expected, able = self.expected, ABLE[self.at]
        # together: a store answers what is asked in one turn of the loop in one go
        tables, due = await asyncio.gather(asyncio.gather(*(store.rows(sql, {}) for sql in _TABLES)), store.due("w1", able))
        submissions, found, prompts, addresses, votes, audit = tables
        assert {str(s): o for s, o in submissions} == expected.outcomes, "not exactly one outcome"
        self.compare_runs({str(row[0]): tuple(row[1:]) for row in found})
        questions = [p for r in expected.runs for p in r.prompts]
        assert set(prompts) == {(p.prompt_id, p.outcome, p.expires_at, p.level) for p in questions}, "a prompt is another one"
        assert set(votes) == {(p.prompt_id, by) for p in questions for by in p.votes}, "a vote was lost or made up"
        assert Counter(audit) == +expected.audit, "the audit tells of something else"
        assert {(c, a): r for c, a, r in addresses} == {place: r.run_id for place, r in expected.addresses.items()}
        assert due.run_at == expected.next_run(able), "what is due next is not looked for"
        assert due.lane_at == expected.next_lane(able.channels), "a lane that is due is not looked for"
        assert due.interaction_at == expected.next_answer(), "an answer that is due is not looked for"

    def compare_runs(self, found: dict[str, tuple[Any, ...]]) -> None:
        assert set(found) == {r.run_id for r in self.expected.runs}, "runs were made or lost"
        for run in self.expected.runs:
            status, phase, step_no, visible, inbox, owner, epoch, wake_at, charged, crashes, progressed, *rest = found[run.run_id]
            assert (status == "open", phase, step_no, visible) == (run.open, run.phase, run.step_no, run.visible)
            assert (inbox, owner, wake_at) == (len(run.inbox), run.owner, run.wake_at), "a wake-up is wrong"
            assert rest == [run.stranded_code, run.ended_at, run.purged_at]
            if run.open:
                assert (charged, crashes) == (run.charged, run.crashes), "charges disagree"
            if run.owner is not None:
                assert (epoch, progressed) == (run.epoch, run.recorded)
