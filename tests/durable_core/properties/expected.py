"""A store in plain Python: what the state machine expects of the real one.

What lives here: the fields that the rules change, and the arithmetic of waking, lanes and ends. What does not: rules and checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from durable_core.model import Abilities, AnswerPolicy, AnswerStatus, Outcome, Phase, PromptOutcome, RunKind
from durable_core.testing.builders import MINUTE

Place = tuple[str, str]
"""A channel and an address."""


@dataclass(eq=False)
class ExpectedPrompt:
    """One question."""

    prompt_id: str
    policy: AnswerPolicy
    expires_at: int
    card: str
    """The delivery that posts it."""
    lane: Place
    requester: str
    answerers: tuple[str, ...]
    quorum: int = 1
    level: int = 0
    votes: set[str] = field(default_factory=set)
    outcome: PromptOutcome | None = None

    def names(self, by: str) -> bool:
        """Whether somebody may answer, or a worker has to say so."""
        match self.policy:
            case AnswerPolicy.REQUESTER:
                return by == self.requester
            case AnswerPolicy.LISTED:
                return by in self.answerers
            case AnswerPolicy.FUNCTION:
                return True


@dataclass(eq=False)
class ExpectedRun:
    """One run."""

    run_id: str
    home: Place
    """The lane of what it says."""
    deadline_at: int | None
    keep_ms: int | None
    kind: RunKind = RunKind.SESSION
    name: str = "support"
    wake_at: int | None = None
    open: bool = True
    owner: str | None = None
    epoch: int = 0
    lease_until: int = 0
    phase: Phase = Phase.IDLE
    step_no: int = 0
    charged: int = 0
    crashes: int = 0
    recorded: bool = False
    interrupted: bool = False
    seen: int = 0
    stranded_code: str | None = None
    inbox: list[str] = field(default_factory=list)
    """Submission ids; a command's seq is its place, from 1."""
    submissions: list[str] = field(default_factory=list)
    """All that came in, with what needs no place in the inbox."""
    consumed: set[int] = field(default_factory=set)
    cancels: set[int] = field(default_factory=set)
    prompts: list[ExpectedPrompt] = field(default_factory=list)
    visible: int = 0
    ended_at: int | None = None
    purged_at: int | None = None

    @property
    def unconsumed(self) -> list[int]:
        """What nobody has taken, in order."""
        return [n for n in range(1, len(self.inbox) + 1) if n not in self.consumed]

    @property
    def cancel_pending(self) -> bool:
        """Whether a cancel waits."""
        return bool(self.cancels - self.consumed)

    @property
    def has_turn(self) -> bool:
        """Whether there is something to cancel."""
        return self.phase is not Phase.IDLE or bool(self.unconsumed)

    def is_for(self, able: Abilities) -> bool:
        """Whether a worker is able to go on with it, once it is due."""
        takes = able.sessions if self.kind is RunKind.SESSION else self.name in able.workflows
        here = self.stranded_code is None or self.stranded_code != able.code
        return self.open and self.owner is None and self.wake_at is not None and takes and here

    def is_due(self, now: int, able: Abilities) -> bool:
        """Whether a worker may take it."""
        return self.is_for(able) and self.wake_at is not None and self.wake_at <= now

    def wake(self, now: int) -> None:
        """Be due from now on."""
        self.wake_at = now if self.wake_at is None else min(self.wake_at, now)

    def put(self, submission_id: str, now: int) -> int:
        """Take input; its seq."""
        self.inbox.append(submission_id)
        self.wake(now)
        return len(self.inbox)

    def let_go(self, now: int, *, timer_at: int | None) -> None:
        """Give the run back."""
        self.owner = None
        waits_for_turn = self.phase is not Phase.IDLE and self.deadline_at is not None and self.deadline_at <= now
        times = [t for t in (timer_at, None if waits_for_turn else self.deadline_at) if t is not None]
        self.wake_at = now if len(self.inbox) > self.seen else min(times, default=None)

    def lose(self, now: int) -> None:
        """Die with the claim."""
        self.owner, self.wake_at, self.interrupted = None, now, True
        if not self.recorded:
            self.charged += 1
            self.crashes += 1

    def finish_step(self) -> None:
        """Start the next step with a clean count."""
        self.step_no += 1
        self.charged = self.crashes = 0
        self.recorded = self.interrupted = False
        self.stranded_code = None


@dataclass(eq=False)
class ExpectedAnswer:
    """An answer that waits for a worker."""

    submission_id: str
    run: ExpectedRun
    prompt: ExpectedPrompt
    outcome: PromptOutcome
    by: str
    override: bool
    aside: bool
    due_at: int
    owner: str | None = None
    epoch: int = 0
    decided: bool = False


@dataclass(eq=False)
class ExpectedItem:
    """Something owed: an edit's own id is the store's choice."""

    delivery_id: str | None
    edit_of: str | None
    run: ExpectedRun
    attempts: int = 0


@dataclass(eq=False)
class ExpectedLane:
    """What one address is owed, in order."""

    items: list[ExpectedItem] = field(default_factory=list)
    due_at: int | None = None
    owner: str | None = None
    epoch: int = 0
    lease_until: int = 0
    skipped: bool = False
    """The last who asked for lanes got rid of what was forgotten, and no more."""

    def give_back(self, now: int) -> None:
        """Be free for any sender again."""
        self.owner = None
        self.due_at = max(self.due_at or now, now) if self.items else None

    def lose(self, now: int) -> None:
        """Lose the sender: its head may have been sent."""
        self.give_back(now)
        self.epoch += 1
        if self.items:
            self.items[0].attempts += 1


@dataclass
class ExpectedStore:
    """All that was promised so far."""

    now: int
    runs: list[ExpectedRun] = field(default_factory=list)
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    lanes: dict[Place, ExpectedLane] = field(default_factory=dict)
    sent: dict[str, str | None] = field(default_factory=dict)
    """Posts that are no longer owed, and the platform's reference; None for a dead letter."""
    addresses: dict[Place, ExpectedRun] = field(default_factory=dict)
    answers: list[ExpectedAnswer] = field(default_factory=list)
    audit: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)
    """Act, prompt and person."""

    def owe(self, run: ExpectedRun, lane: Place, delivery_id: str | None, *, edit_of: str | None = None) -> None:
        """Owe something to an address."""
        owed = self.lanes.setdefault(lane, ExpectedLane())
        owed.items.append(ExpectedItem(delivery_id, edit_of, run))
        owed.due_at = self.now if owed.due_at is None else owed.due_at

    def settle(self, prompts: Sequence[ExpectedPrompt], outcome: PromptOutcome) -> None:
        """Settle prompts from within their run."""
        for prompt in prompts:
            prompt.outcome = outcome
            self.audit["settled", prompt.prompt_id, None] += 1

    def edit(self, run: ExpectedRun, prompts: Sequence[ExpectedPrompt], done: Sequence[ExpectedPrompt] = ()) -> None:
        """Owe an edit to each card once, but for those that were edited with others: in the order in which they were posted."""
        cards = {prompt.card: prompt.lane for prompt in run.prompts if prompt in prompts}
        for card, lane in cards.items():
            if card not in {prompt.card for prompt in done}:
                self.owe(run, lane, None, edit_of=card)

    def judge(
        self,
        run: ExpectedRun,
        prompt: ExpectedPrompt,
        by: str,
        outcome: PromptOutcome,
        *,
        override: bool,
        waits: bool,
        aside: bool,
    ) -> AnswerStatus:
        """Say what becomes of an answer; `waits` where a worker has to look at it."""
        if prompt.outcome is not None:
            return AnswerStatus.ALREADY_SETTLED
        again = by in prompt.votes and outcome is not PromptOutcome.DENIED and not aside
        if self.refusal(run, prompt) or (not override and (not prompt.names(by) or again)):
            return AnswerStatus.REFUSED
        if waits:
            return AnswerStatus.PENDING
        if aside:
            return AnswerStatus.ASIDE
        stand = sum(prompt.names(voter) for voter in prompt.votes)
        more = outcome is PromptOutcome.APPROVED and not override and stand + 1 < prompt.quorum
        return AnswerStatus.COUNTED if more else AnswerStatus.SETTLED

    def take(
        self,
        run: ExpectedRun,
        prompt: ExpectedPrompt,
        status: AnswerStatus,
        by: str,
        outcome: PromptOutcome,
        *,
        override: bool,
        submission_id: str,
    ) -> None:
        """Do what was decided of an answer."""
        act = "overridden" if override and status is AnswerStatus.SETTLED else status.value
        if status is not AnswerStatus.ALREADY_SETTLED:
            self.audit[act, prompt.prompt_id, by] += 1
        self.outcomes[submission_id] = Outcome.COMPLETED
        if status not in {AnswerStatus.COUNTED, AnswerStatus.SETTLED}:
            return
        run.visible += 1
        if prompt.quorum > 1 and outcome is PromptOutcome.APPROVED and not override:
            for gone in [voter for voter in prompt.votes if not prompt.names(voter)]:
                prompt.votes.remove(gone)
                self.audit["lapsed", prompt.prompt_id, gone] += 1
            prompt.votes.add(by)
        if status is AnswerStatus.SETTLED:
            prompt.outcome = outcome
            run.put(submission_id, self.now)
        self.edit(run, (prompt,))

    def end(self, run: ExpectedRun, done: Sequence[ExpectedPrompt] = ()) -> None:
        """End a run; the cards of `done` are edited already."""
        run.open, run.owner, run.wake_at, run.phase, run.stranded_code = False, None, None, Phase.IDLE, None
        run.ended_at = self.now
        self.addresses = {place: owner for place, owner in self.addresses.items() if owner is not run}
        for submission_id in run.submissions:
            self.outcomes[submission_id] = self.outcomes[submission_id] or Outcome.ABORTED
        for answer in self.answers:
            if answer.run is run and not answer.decided:
                answer.decided, answer.owner = True, None
                self.audit["refused", answer.prompt.prompt_id, answer.by] += answer.prompt.outcome is None
        left = [prompt for prompt in run.prompts if prompt.outcome is None]
        self.settle(left, PromptOutcome.CANCELLED)
        self.edit(run, left, done)

    def owes(self, run: ExpectedRun) -> bool:
        """Whether something of a run is still to be sent."""
        return any(item.run is run for lane in self.lanes.values() for item in lane.items)

    def to_purge(self) -> list[str]:
        """Return the runs whose content has been kept long enough."""
        due = []
        for run in self.runs:
            if run.ended_at is not None and run.purged_at is None and run.keep_ms is not None:
                kept = run.ended_at + max(run.keep_ms, MINUTE)
                if kept <= self.now and not self.owes(run):
                    due.append(run.run_id)
        return sorted(due)

    def refusal(self, run: ExpectedRun, prompt: ExpectedPrompt) -> bool:
        """Whether nobody may settle a prompt any more."""
        return not run.open or prompt.expires_at <= self.now or run.cancel_pending

    def next_run(self, able: Abilities) -> int | None:
        """Return when a run is due next; one whose lease is over is due to be taken back."""
        over = [r.lease_until for r in self.runs if r.owner is not None and r.lease_until < self.now]
        return min([*over, *(r.wake_at for r in self.runs if r.is_for(able) and r.wake_at is not None)], default=None)

    def next_lane(self, channels: Sequence[str] | None) -> int | None:
        """Return when a lane is due next; one whose lease is over is due to be taken back."""
        over = [lane.lease_until for lane in self.lanes.values() if lane.owner is not None and lane.lease_until < self.now]
        waiting = [lane for (channel, _), lane in self.lanes.items() if lane.owner is None and _of(channel, channels)]
        return min([*over, *(lane.due_at for lane in waiting if lane.due_at is not None)], default=None)

    def next_answer(self) -> int | None:
        """Return when an answer is to be looked at next."""
        return min((a.due_at for a in self.answers if not a.decided), default=None)

    def lanes_due(self, channels: Sequence[str] | None) -> dict[Place, ExpectedLane]:
        """Return the lanes that a sender may take."""
        return {
            place: lane
            for place, lane in self.lanes.items()
            if lane.owner is None and lane.due_at is not None and lane.due_at <= self.now and _of(place[0], channels)
        }

    def forgotten(self, lane: ExpectedLane) -> int:
        """Return how many items at the head of a lane nobody can read any more, since their run is forgotten."""
        return next((n for n, item in enumerate(lane.items) if item.run.purged_at is None), len(lane.items))

    def done(self, lane: ExpectedLane, ref: str | None) -> None:
        """Take the head off a lane; with a reference it was sent."""
        head = lane.items.pop(0)
        if head.delivery_id is not None:
            self.sent[head.delivery_id] = ref

    def sendable(self, lane: ExpectedLane, limit: int) -> list[ExpectedItem]:
        """Return what a lane hands out: nothing behind an edit whose post is still ahead, or behind what can't be read."""
        found: list[ExpectedItem] = []
        for item in lane.items[:limit]:
            waits = item.edit_of is not None and item.edit_of not in self.sent
            if found and (waits or item.run.purged_at is not None):
                break
            found.append(item)
        return found


def _of(channel: str, channels: Sequence[str] | None) -> bool:
    return channels is None or channel in channels
