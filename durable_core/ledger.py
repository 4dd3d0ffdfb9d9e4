"""Ledger: which operations a body asked for, which are open, which signals wait.

What lives here: identities, occurrences, buffers. What does not: running callbacks (`loop`), checking the log (`replay`).
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from durable_core.operations import Hook, Operation, OpKind

if TYPE_CHECKING:
    from durable_core.awaitables import DetTimer, OpFuture


class State(Enum):
    """What became of an operation that is no longer open."""

    OPEN = auto()
    DONE = auto()
    DROPPED = auto()
    """The body cancelled it; a completion that comes late is ignored, live and replayed."""


class Ledger:
    """The operations of one body."""

    __slots__ = ("_occurrences", "_signals", "_targets", "_waiters", "open", "states", "touched")

    def __init__(self) -> None:
        self.open: dict[str, Operation] = {}
        """In the order they were asked for."""
        self.states: dict[str, State] = {}
        self.touched: dict[str, None] = {}
        """What was opened or closed since somebody last looked, in that order; thousands may be open and one of them change."""
        self._targets: dict[str, OpFuture | DetTimer] = {}
        self._occurrences: dict[str, int] = {}
        self._signals: dict[str, deque[Any]] = {}
        self._waiters: dict[str, deque[OpFuture]] = {}

    def next_id(self, kind: OpKind, name: str) -> str:
        """Return the identity of the next operation of that kind and name (CORE, Replay 2)."""
        stem = f"{kind.value}:{name}"
        occurrence = self._occurrences.get(stem, 0)
        self._occurrences[stem] = occurrence + 1
        return f"{stem}#{occurrence}"

    def add(self, operation: Operation, target: OpFuture | DetTimer) -> None:
        """Open an operation; `target` is what its completion wakes."""
        target.op = operation.id
        self.open[operation.id] = operation
        self.states[operation.id] = State.OPEN
        self.touched[operation.id] = None
        self._targets[operation.id] = target

    def complete(self, op: str) -> tuple[Operation, OpFuture | DetTimer]:
        """Close an open operation as done."""
        self.states[op] = State.DONE
        self.touched[op] = None
        return self.open.pop(op), self._targets.pop(op)

    def drop(self, op: str) -> None:
        """Close an operation that the body cancelled, if it is open."""
        if self.open.pop(op, None) is not None:
            self.states[op] = State.DROPPED
            self.touched[op] = None
            del self._targets[op]

    def wait(self, hook: Hook, future: OpFuture) -> bool:
        """Give a waiter the oldest buffered payload, or let it wait; return whether it got one."""
        signals = self._signals.get(hook.name)
        if signals:
            future.set_result(signals.popleft())
            return True
        future.op = op = f"{OpKind.SIGNAL.value}:{hook.name}"
        self._waiters.setdefault(hook.name, deque()).append(future)
        if op not in self.open:
            self.open[op] = Operation(id=op, kind=OpKind.SIGNAL, name=hook.name, hook=hook)
            self.touched[op] = None
        return False

    def signal(self, name: str, payload: Any) -> None:
        """Hand a payload to the first waiter, or keep it until somebody waits."""
        waiters = self._waiters.get(name)
        while waiters:
            future = waiters.popleft()
            self._close_hook(name)
            if not future.done():
                future.set_result(payload)
                return
        self._signals.setdefault(name, deque()).append(payload)

    def refuse(self, name: str, error: Exception) -> None:
        """Raise an error in all who wait for a hook."""
        for future in list(self._waiters.get(name, ())):
            self.leave(future)
            if not future.done():
                future.set_exception(error)

    def leave(self, future: OpFuture) -> None:
        """Take a cancelled waiter out of its hook's queue."""
        name = future.op.partition(":")[2]
        waiters = self._waiters.get(name)
        if waiters and future in waiters:
            waiters.remove(future)
            self._close_hook(name)

    def _close_hook(self, name: str) -> None:
        """Close the operation that stands for all waiters of a hook, with the last of them."""
        if not self._waiters[name]:
            del self._waiters[name]
            op = f"{OpKind.SIGNAL.value}:{name}"
            del self.open[op]
            self.touched[op] = None
