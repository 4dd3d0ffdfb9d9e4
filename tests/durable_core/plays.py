"""A play: one workflow driven by hand over a log in a list, as an engine drives it over a store.

What lives here: writing entries as they happen and building the body anew from them. What does not: what is expected of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from durable_core.codec import decode, encode
from durable_core.failures import Poison
from durable_core.operations import Entry, EntryKind, Operation, OpKind, Raised, Returned
from durable_core.registry import Workflow
from durable_core.replay import Replay

RUN = "run_01hzy3v9k2m4n6p8q0r2s4t6v8"
START_MS = 1_700_000_000_000


class Play:
    """A body and its log; what is delivered is logged with the marks that it brought about."""

    def __init__(
        self,
        workflow: Workflow,
        *args: Any,
        log: Sequence[Entry] = (),
        run_id: str = RUN,
        block_limit: float = 60.0,
    ) -> None:
        self.workflow = workflow
        self.args = args
        self.log = list(log)
        self.run_id = run_id
        self.block_limit = block_limit
        self.progress: list[Any] = []
        self.built = False
        self.replay = self.build()

    def build(self) -> Replay:
        self.replay = Replay(
            self.workflow,
            self.args,
            run_id=self.run_id,
            started_at=START_MS,
            block_limit=self.block_limit,
            marks=[mark for entry in self.log for mark in entry.marks],
        )
        self.replay.replaying = bool(self.log)
        try:
            self.replay.start()
            for entry in self.log:
                self.replay.deliver(replace(entry, value=decode(encode(entry.value))))
            self.replay.finish_replay()
        except Poison:
            self.replay.close()
            raise
        shown = self.replay.take_progress()
        self.progress += () if self.built and not self.log else shown  # nothing was committed: it is shown anew
        self.built = True
        return self.replay

    def again(self) -> Play:
        """Drop the body and build it from the log: it wants the same, at the same time."""
        before = (self.wanted, self.replay.now, repr(self.outcome))
        self.replay.close()
        self.build()
        assert (self.wanted, self.replay.now, repr(self.outcome)) == before
        return self

    def deliver(self, kind: EntryKind, op: str = "", value: Any = None, *, ok: bool = True, after_ms: int = 0) -> Play:
        entry = Entry(n=len(self.log), kind=kind, op=op, ok=ok, value=decode(encode(value)), at=self.replay.now + after_ms)
        try:
            self.replay.deliver(replace(entry, value=decode(encode(value))))
        except Poison:
            self.replay.close()
            raise
        self.log.append(replace(entry, marks=self.replay.take_marks()))
        self.progress += self.replay.take_progress()
        return self

    def done(self, op: str, value: Any = None, *, after_ms: int = 0) -> Play:
        """Complete a step, or a child."""
        return self.deliver(EntryKind(op.partition(":")[0]), op, value, after_ms=after_ms)

    def fails(self, op: str, type_name: str = "ValueError", message: str = "no", *, attempts: int = 4) -> Play:
        error = {"type": type_name, "message": message, "attempts": attempts, "code": None}
        return self.deliver(EntryKind(op.partition(":")[0]), op, error, ok=False)

    def fire(self) -> Play:
        """Fire the timer that is due first."""
        due = min(self.timers, key=lambda one: one.due_at or 0)
        assert due.due_at is not None
        return self.deliver(EntryKind.TIMER, due.id, after_ms=max(0, due.due_at - self.replay.now))

    def answer(self, op: str = "ask:#0", option_id: str | None = None, **fields: Any) -> Play:
        return self.deliver(EntryKind.ANSWER, op, {"option_id": option_id, **fields})

    def signal(self, name: str, value: Any = None) -> Play:
        return self.deliver(EntryKind.SIGNAL, f"signal:{name}", value)

    def cancel(self) -> Play:
        return self.deliver(EntryKind.CANCEL)

    @property
    def wanted(self) -> list[str]:
        return [one.id for one in self.replay.wanted]

    @property
    def timers(self) -> list[Operation]:
        return [one for one in self.replay.wanted if one.kind is OpKind.TIMER]

    @property
    def outcome(self) -> Returned | Raised | None:
        return self.replay.outcome

    @property
    def result(self) -> Any:
        assert isinstance(self.outcome, Returned), self.outcome
        return self.outcome.value

    @property
    def error(self) -> BaseException:
        assert isinstance(self.outcome, Raised), self.outcome
        return self.outcome.error


async def fetch(place: str) -> str:
    """Be a step; plays don't run it."""
    return place


def add(one: int, two: int) -> int:
    """Be a step that is not async."""
    return one + two
