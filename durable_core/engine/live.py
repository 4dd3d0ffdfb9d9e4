"""A run while this worker has it: its body, its inbox, its attempts, as far as they are known.

What lives here: what is known, and taking in what a claim, a commit or a refresh says. What does not: reading the log
(loading.py), deciding what comes next (inbox.py), writing (commits.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from durable_core.clock import Clock
from durable_core.engine.starts import Start
from durable_core.engine.steps import Steps
from durable_core.model import Claim, Command, CommandKind, Committed, Prompt
from durable_core.operations import Operation, OpKind
from durable_core.replay import Replay
from durable_core.worker import Held

GRACE_MS: Final = 30_000
"""How long a cancelled run may go on before it is ended whatever it does."""
WRITTEN: Final = (OpKind.ASK, OpKind.CHILD, OpKind.SIGNAL)
"""What has to be written down in the commit that asks for it."""
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
    """An open question."""

    prompt_id: str
    expires_at: int | None


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
    wanted: dict[str, Operation] = field(default_factory=dict)
    _by_kind: dict[OpKind, list[Operation]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Operations whose question, hook or child was written down."""
    prompts: dict[str, Asked] = field(default_factory=dict)
    """Open questions by operation."""
    settled: dict[str, Prompt] = field(default_factory=dict)
    """Answered ones by id, until their answer is delivered."""
    children: dict[str, str] = field(default_factory=dict)
    """Open children by operation, those that end with their parent."""
    results: dict[str, tuple[bool, Any]] = field(default_factory=dict)
    """How children ended, by their id: a second operation with the same key gets the same."""
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
            prompt.call_id: Asked(prompt.prompt_id, prompt.expires_at)
            for prompt in claim.prompts
            if prompt.outcome is None and prompt.call_id is not None
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
        self.wanted = {op.id: op for op in self.replay.wanted} if self.replay.outcome is None else {}
        self._by_kind = {}
        for op in self.wanted.values():
            self._by_kind.setdefault(op.kind, []).append(op)
        self.steps.keep_only(self.wanted)

    def wanted_of(self, *kinds: OpKind) -> Sequence[Operation]:
        """What the body wants, of some kinds: hundreds of steps at once needn't be looked through for a timer."""
        found = self._by_kind
        if len(kinds) == 1:
            return found.get(kinds[0], ())
        return [op for kind in kinds if kind in found for op in found[kind]]

    # ── what is due ──

    @property
    def unwritten(self) -> bool:
        """Whether the body asked for what has to be written down before anything may come of it."""
        return any(op.id not in self.known for op in self.wanted_of(*WRITTEN))

    def begin_steps(self) -> None:
        """Begin what is wanted and neither running nor waiting for its next attempt."""
        now = self.now()
        ended = {attempted.op.id for attempted in self.steps.ended}
        for op in self.wanted_of(OpKind.STEP):
            if op.id in self.steps.tasks or op.id in ended:
                continue
            tries = self.steps.tries.get(op.id)
            if tries is None or tries.again_at is None or tries.again_at <= now:
                self.worked = True
                self.steps.begin(op)

    def wake_at(self) -> int | None:
        """When the run has to be looked at again, if nothing else happens."""
        times = [op.due_at for op in self.wanted_of(OpKind.TIMER) if op.due_at is not None]
        times += [at for op_id, prompt in self.prompts.items() if (at := prompt.expires_at) is not None and op_id in self.wanted]
        times += [at for op_id, tries in self.steps.tries.items() if (at := tries.again_at) is not None and op_id in self.wanted]
        if self.cancel_at is not None:
            times.append(self.cancel_at + GRACE_MS)
        return min(times, default=None)

    def parks(self, wake_at: int | None) -> bool:
        """Whether nothing runs, nothing is due or to be begun, and no attempt follows within moments."""
        now = self.now()
        if self.steps.tasks or self.steps.ended or (wake_at is not None and wake_at <= now):
            return False
        soon = now + IN_MEMORY_MS
        for op in self.wanted_of(OpKind.WEBHOOK, OpKind.CHILD):
            if op.child is None or op.child.run_id in self.results:
                return False
        for op in self.wanted_of(OpKind.STEP):
            tries = self.steps.tries.get(op.id)
            if tries is None or tries.again_at is None or tries.again_at < soon:
                return False
        return True


def is_start(command: Command) -> bool:
    """Whether an inbox entry is the start of its run."""
    return command.kind is CommandKind.MESSAGE
