"""A store in plain Python: what the state machine expects of the real one.

What lives here: the fields that the rules change, and the arithmetic of waking. What does not: rules and checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durable_core.model import Outcome, Phase, PromptOutcome


@dataclass
class ExpectedPrompt:
    """One question."""

    prompt_id: str
    expires_at: int | None
    outcome: PromptOutcome | None = None


@dataclass
class ExpectedRun:
    """One run."""

    run_id: str
    address: str
    deadline_at: int | None
    wake_at: int | None
    open: bool = True
    owner: str | None = None
    epoch: int = 0
    lease_until: int = 0
    phase: Phase = Phase.IDLE
    step_no: int = 0
    charged: int = 0
    crashes: int = 0
    recorded: bool = False
    seen: int = 0
    inbox: list[str] = field(default_factory=list)
    """Submission ids; a command's seq is its place, from 1."""
    consumed: set[int] = field(default_factory=set)
    cancels: set[int] = field(default_factory=set)
    prompts: list[ExpectedPrompt] = field(default_factory=list)
    visible: int = 0

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

    def is_due(self, now: int) -> bool:
        """Whether a worker may take it."""
        return self.open and self.owner is None and self.wake_at is not None and self.wake_at <= now

    def put(self, submission_id: str, now: int) -> int:
        """Take input; its seq."""
        self.inbox.append(submission_id)
        self.wake_at = now if self.wake_at is None else min(self.wake_at, now)
        return len(self.inbox)

    def let_go(self, now: int, *, timer_at: int | None) -> None:
        """Give the run back."""
        self.owner = None
        waits_for_turn = self.phase is not Phase.IDLE and self.deadline_at is not None and self.deadline_at <= now
        times = [t for t in (timer_at, None if waits_for_turn else self.deadline_at) if t is not None]
        self.wake_at = now if len(self.inbox) > self.seen else min(times, default=None)

    def lose(self, now: int) -> None:
        """Die with the claim."""
        self.owner = None
        self.wake_at = now
        if not self.recorded:
            self.charged += 1
            self.crashes += 1

    def finish_step(self) -> None:
        """Start the next step with a clean count."""
        self.step_no += 1
        self.charged = self.crashes = 0
        self.recorded = False


@dataclass
class ExpectedStore:
    """All that was promised so far."""

    now: int
    runs: list[ExpectedRun] = field(default_factory=list)
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    owed: dict[str, list[tuple[str | None, str | None]]] = field(default_factory=dict)
    """What each address is owed, in order: (delivery, None) for a post, (None, delivery) for an edit of it."""
    cards: dict[str, str] = field(default_factory=dict)
    """The delivery that posted a prompt."""

    def at(self, address: str) -> ExpectedRun | None:
        """Return the open run that owns an address."""
        return next((r for r in self.runs if r.open and r.address == address), None)

    def settle(self, run: ExpectedRun, prompt: ExpectedPrompt, outcome: PromptOutcome) -> None:
        """Settle a prompt and owe the edit of its card."""
        prompt.outcome = outcome
        self.owed[run.address].append((None, self.cards[prompt.prompt_id]))

    def end(self, run: ExpectedRun) -> None:
        """End a run."""
        run.open, run.owner, run.wake_at = False, None, None
        for submission_id in run.inbox:
            if self.outcomes[submission_id] is None:
                self.outcomes[submission_id] = Outcome.ABORTED
        for prompt in run.prompts:
            if prompt.outcome is None:
                self.settle(run, prompt, PromptOutcome.CANCELLED)

    def sendable(self, address: str, limit: int) -> int:
        """Return how many items a lane hands out: none behind an edit whose post is still ahead of it."""
        owed = self.owed[address][:limit]
        posts = {delivery for delivery, _ in self.owed[address]}
        return next((n for n, (_, edit_of) in enumerate(owed) if edit_of in posts and edit_of is not None), len(owed))
