"""What a body wants, by what is asked about it: kept up by what changed, since thousands of things may be open at once.

What lives here: the bookkeeping. What does not: what is done about any of it (live.py, inbox.py, commits.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from durable_core.operations import Operation, OpKind

WRITTEN: Final = (OpKind.ASK, OpKind.CHILD, OpKind.SIGNAL)
"""What has to be written down in the commit that asks for it."""
_SWEEP_ABOVE: Final = 64


class Times:
    """Operations by when they are due; of two at once, the one that was set first."""

    __slots__ = ("_at", "_count", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._count = 0

    def set(self, op_id: str, at: int) -> None:
        """Note when one is due."""
        self._at[op_id] = at
        self._count += 1
        if len(self._heap) > _SWEEP_ABOVE + 2 * len(self._at):
            self._heap = [one for one in self._heap if self._at.get(one[2]) == one[0]]
            heapify(self._heap)
        heappush(self._heap, (at, self._count, op_id))

    def drop(self, op_id: str) -> None:
        """Forget one."""
        self._at.pop(op_id, None)

    def first(self) -> tuple[int, str] | None:
        """Return the time and the id of the earliest."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return (self._heap[0][0], self._heap[0][2]) if self._heap else None

    def first_at(self) -> int | None:
        """Return the time of the earliest."""
        first = self.first()
        return None if first is None else first[0]


@dataclass(slots=True)
class Wants:
    """What a body wants."""

    ops: dict[str, Operation] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    """Operations whose question, hook or child was written down."""
    unwritten: dict[str, Operation] = field(default_factory=dict)
    """Those that have to be, before anything may come of them."""
    webhooks: dict[str, Operation] = field(default_factory=dict)
    children: dict[str, dict[str, Operation]] = field(default_factory=dict)
    """By the id of the child: several wait for the same where they gave its key."""
    results: dict[str, bytes] = field(default_factory=dict)
    """How children ended, by their id: a second operation with the same key gets the same."""
    known: dict[str, Operation] = field(default_factory=dict)
    """Operations whose child ended before they asked, or for another one."""
    timers: Times = field(default_factory=Times)
    fresh: dict[str, Operation] = field(default_factory=dict)
    """Steps to begin."""
    resting: Times = field(default_factory=Times)
    """Steps that failed, until their next attempt."""

    def open(self, op: Operation) -> None:
        """Note what the body asked for."""
        if op.kind in WRITTEN and op.id not in self.written:
            self.unwritten[op.id] = op
        if op.id in self.ops:
            return
        self.ops[op.id] = op
        if op.kind is OpKind.STEP:
            self.fresh[op.id] = op
        elif op.kind is OpKind.TIMER and op.due_at is not None:
            self.timers.set(op.id, op.due_at)
        elif op.kind is OpKind.WEBHOOK:
            self.webhooks[op.id] = op
        elif op.child is not None:
            self.children.setdefault(op.child.run_id, {})[op.id] = op
            if op.child.run_id in self.results:
                self.known[op.id] = op

    def close(self, op_id: str) -> None:
        """Note what it has, or doesn't want any more."""
        op = self.ops.pop(op_id, None)
        if op is None:
            return
        for some in (self.unwritten, self.webhooks, self.known, self.fresh):
            some.pop(op_id, None)
        self.timers.drop(op_id)
        self.resting.drop(op_id)
        if op.child is not None:
            waiting = self.children[op.child.run_id]
            del waiting[op_id]
            if not waiting:
                del self.children[op.child.run_id]

    def write_down(self, op: Operation) -> None:
        """Note that an operation is written down."""
        self.written.add(op.id)
        self.unwritten.pop(op.id, None)

    def ask_again(self, op_id: str) -> None:
        """Note that an operation could not be written down."""
        self.written.discard(op_id)
        self.unwritten[op_id] = self.ops[op_id]

    def end_child(self, run_id: str, result: bytes) -> None:
        """Note how a child ended."""
        self.results[run_id] = result
        self.known.update(self.children.get(run_id, {}))

    def rest(self, op_id: str, until: int) -> None:
        """Note when a step that failed is tried again."""
        self.fresh.pop(op_id, None)
        self.resting.set(op_id, until)

    def take_startable(self, now: int) -> Iterator[Operation]:
        """Take the steps that are to begin."""
        fresh, self.fresh = self.fresh, {}
        yield from fresh.values()
        while (first := self.resting.first()) is not None and first[0] <= now:
            self.resting.drop(first[1])
            yield self.ops[first[1]]

    def waiting_for(self, run_id: str) -> Operation | None:
        """Return the first operation that waits for a child."""
        return next(iter(self.children.get(run_id, {}).values()), None)

    def outlives(self, run_id: str) -> bool:
        """Whether a child was started to go on by itself."""
        return any(op.child is not None and op.child.detached for op in self.children.get(run_id, {}).values())
