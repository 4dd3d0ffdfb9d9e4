"""A run while this worker has it: its body, its inbox, its attempts, as far as they are known.

What lives here: what is known, and taking in what a claim, a commit or a refresh says. What does not: reading the log
(loading.py), deciding what comes next (inbox.py), writing (commits.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from durable_core.clock import Clock
from durable_core.engine.starts import Start
from durable_core.engine.steps import Steps
from durable_core.engine.wants import Wants
from durable_core.model import Claim, Command, CommandKind, Committed, Prompt, PromptDraft
from durable_core.operations import Operation
from durable_core.replay import Replay
from durable_core.worker import Held

GRACE_MS: Final = 30_000
"""How long a cancelled run may go on before it is ended whatever it does."""
IN_MEMORY_MS: Final = 5_000
"""A shorter wait for the next attempt holds the run."""


class Bell(asyncio.Event):
    """A run's flag that something about it changed; it wakes whoever waits for the run to move."""

    def __init__(self, moved: asyncio.Event) -> None:
        super().__init__()
        self._moved = moved

    def set(self) -> None:
        """Raise it."""
        super().set()
        self._moved.set()


@dataclass(frozen=True, slots=True)
class Asked:
    """An open question, as it was written down."""

    prompt: Prompt | PromptDraft

    @property
    def prompt_id(self) -> str:
        """Its id."""
        return self.prompt.prompt_id

    @property
    def expires_at(self) -> int | None:
        """When it is over."""
        return self.prompt.expires_at

    @property
    def remind_at(self) -> int | None:
        """When people are reminded of it; None once they were."""
        return self.prompt.remind_at

    def reminded(self) -> Asked:
        """Return it as it is after people were reminded."""
        return Asked(replace(self.prompt, remind_at=None))


@dataclass(slots=True)
class Live:
    """What is known of a run under one claim, and kept warm between two."""

    held: Held
    start: Start
    replay: Replay
    steps: Steps
    clock: Clock
    step_no: int
    at: int
    """The body's clock at the last entry."""
    wants: Wants = field(default_factory=Wants)
    dropped: list[str] = field(default_factory=list)
    """What it wants no more since the last commit."""
    taken: set[str] = field(default_factory=set)
    """Hooks that it asked for and another run owns, until it is told."""
    prompts: dict[str, Asked] = field(default_factory=dict)
    """Open questions by operation."""
    settled: dict[str, Prompt] = field(default_factory=dict)
    """Answered ones by id, until their answer is delivered."""
    children: dict[str, str] = field(default_factory=dict)
    """Open children by operation, those that end with their parent."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Hooks by the token in their address."""
    inbox: dict[int, Command] = field(default_factory=dict)
    seen: int = 0
    cancel_at: int | None = None
    """When the body was told that it is cancelled."""
    worked: bool = False
    """Something was begun or written under this claim."""
    _base: tuple[int, float] = (0, 0.0)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.held.claim.run_id

    @property
    def epoch(self) -> int:
        """The claim's fence."""
        return self.held.claim.epoch

    @property
    def wanted(self) -> dict[str, Operation]:
        """What the body wants, by id."""
        return self.wants.ops

    @property
    def over(self) -> bool:
        """Whether the body has ended, or its grace has."""
        if self.replay.outcome is not None:
            return True
        return self.cancel_at is not None and self.now() >= self.cancel_at + GRACE_MS

    # ── time ──

    def now(self) -> int:
        """The store's time as far as it is known; never ahead of it."""
        override = self.clock.override()
        if override is not None:
            return override
        base, since = self._base
        return base + int((time.monotonic() - since) * 1000)

    def hear_time(self, now: int) -> None:
        """Take over the store's time."""
        self._base = (now, time.monotonic())

    # ── what comes in ──

    def take_in(self, claim: Claim) -> None:
        """Take over what a claim or a refresh read."""
        self.hear_time(claim.now)
        self.inbox = {command.seq: command for command in claim.commands}
        self.seen = max(self.seen, claim.signals.inbox_seq)
        self.prompts = {
            prompt.call_id: Asked(prompt) for prompt in claim.prompts if prompt.outcome is None and prompt.call_id is not None
        }
        self.settled = {prompt.prompt_id: prompt for prompt in claim.prompts if prompt.outcome is not None}

    def take_over(self, committed: Committed, consumed: Iterable[int]) -> None:
        """Take over what a commit says."""
        self.hear_time(committed.now)
        self.step_no = committed.step_no
        self.worked = True
        for seq in consumed:
            self.inbox.pop(seq, None)
        self.inbox.update({command.seq: command for command in committed.commands})
        self.seen = max(self.seen, committed.signals.inbox_seq)

    def look(self) -> None:
        """See what the body wants now; attempts of what it doesn't want any more are stopped."""
        for op_id, op in self.replay.take_touched():
            if op is None:
                self._drop(op_id)
            else:
                self.wants.open(op)
        if self.replay.outcome is not None:  # what it started last goes on by itself, nobody waits for the rest
            for op in [op for op in self.wanted.values() if op.child is None or not op.child.detached]:
                self._drop(op.id)

    def _drop(self, op_id: str) -> None:
        self.wants.close(op_id)
        self.steps.stop(op_id)
        self.dropped.append(op_id)

    def unanswered(self) -> tuple[str, ...]:
        """Return the questions that are open, as far as is known."""
        return tuple(prompt.prompt_id for prompt in self.prompts.values() if prompt.prompt_id not in self.settled)

    # ── what is due ──

    def begin_steps(self) -> None:
        """Begin what is wanted and neither running nor waiting for its next attempt."""
        for op in self.wants.take_startable(self.now()):
            self.worked = True
            self.steps.begin(op)

    def wake_at(self) -> int | None:
        """When the run has to be looked at again, if nothing else happens."""
        times = [self.wants.timers.first_at(), self.wants.resting.first_at()]
        asked = [prompt for op_id, prompt in self.prompts.items() if op_id in self.wanted]
        times += [at for prompt in asked for at in (prompt.expires_at, prompt.remind_at)]
        if self.cancel_at is not None:
            times.append(self.cancel_at + GRACE_MS)
        return min((at for at in times if at is not None), default=None)

    def parks(self, wake_at: int | None) -> bool:
        """Whether nothing runs, nothing is due or to be begun, and no attempt follows within moments."""
        now, wants = self.now(), self.wants
        if self.steps.tasks or self.steps.ended or (wake_at is not None and wake_at <= now):
            return False
        if wants.fresh or wants.webhooks or wants.known or self.taken:
            return False
        again_at = wants.resting.first_at()
        return again_at is None or again_at >= now + IN_MEMORY_MS


def is_start(command: Command) -> bool:
    """Whether an inbox entry is the start of its run."""
    return command.kind is CommandKind.MESSAGE
