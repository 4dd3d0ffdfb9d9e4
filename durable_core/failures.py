"""Failures: what a workflow's body can be told, and what stops a body that can't be replayed.

What lives here: exceptions of steps, children and replay. What does not: errors of the store (`errors`).

Exception
├── Fatal                  raised by a step's author: don't try again
└── DurableError
    ├── StepFailed         raised in the body: a step failed for good
    ├── ChildFailed        raised in the body: a child workflow failed
    └── HookTaken          raised in the body: another open run owns the hook
BaseException
└── Poison                 the body can't go on; no handler of the author's can swallow it
    ├── NonDeterminism     the code asks something else than what is recorded
    ├── NotDurable         the body waits for something that nobody records
    ├── BodyBlocked        the body holds its thread instead of awaiting
    └── Evicted            the body was dropped from memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from durable_core.errors import DurableError

_SHOWN = 5


class Fatal(Exception):
    """Raise it in a step to fail the step for good, whatever attempts are left."""

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class StepFailed(DurableError):
    """A step failed for good; the same live and replayed, so it carries text, never the original exception."""

    def __init__(self, *, step: str, type_name: str, message: str, attempts: int = 1, code: str | None = None) -> None:
        super().__init__(f"step {step} failed after {attempts} attempt(s): {type_name}: {message}")
        self.step = step
        self.type_name = type_name
        self.message = message
        self.attempts = attempts
        self.code = code

    def stored(self) -> dict[str, Any]:
        """Return what the log keeps of it."""
        return {"type": self.type_name, "message": self.message, "attempts": self.attempts, "code": self.code}

    @classmethod
    def of(cls, step: str, error: Mapping[str, Any]) -> StepFailed:
        """Return it from what the log keeps: `type`, `message`, `attempts`, `code`."""
        return cls(
            step=step,
            type_name=str(error.get("type", "Exception")),
            message=str(error.get("message", "")),
            attempts=int(error.get("attempts", 1)),
            code=error.get("code"),
        )


class ChildFailed(DurableError):
    """A child workflow ended with an exception or was cancelled."""

    def __init__(self, *, workflow: str, run_id: str, type_name: str, message: str, code: str | None = None) -> None:
        super().__init__(f"child workflow {workflow} ({run_id}) failed: {type_name}: {message}")
        self.workflow = workflow
        self.run_id = run_id
        self.type_name = type_name
        self.message = message
        self.code = code

    @classmethod
    def of(cls, workflow: str, run_id: str, error: Mapping[str, Any]) -> ChildFailed:
        """Return it from what the log keeps: `type`, `message`, `code`."""
        return cls(
            workflow=workflow,
            run_id=run_id,
            type_name=str(error.get("type", "Exception")),
            message=str(error.get("message", "")),
            code=error.get("code"),
        )


class HookTaken(DurableError):
    """Another open run waits by the same hook; a later `ctx.wait_for` tries anew."""

    code = "hook_taken"

    def __init__(self, hook: str) -> None:
        super().__init__(f"the hook {hook!r} belongs to another open run")
        self.hook = hook


class Poison(BaseException):
    """Root of what stops a body: set on its loop first and raised second, so that swallowing it changes nothing."""


class NonDeterminism(Poison):
    """What is recorded and what the code asks differ."""

    def __init__(self, *, position: int | None, recorded: str, asked: Sequence[str], reason: str) -> None:
        shown = ", ".join(asked[:_SHOWN]) + (f" and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else "")
        where = "the log" if position is None else f"entry {position} of the log"
        super().__init__(f"{where} has {recorded}, {reason}; the code asks {shown or 'nothing'}")
        self.position = position
        self.recorded = recorded
        self.asked = tuple(asked)
        self.reason = reason


class NotDurable(Poison):
    """The body awaited, or scheduled, something that isn't recorded."""

    def __init__(self, *, what: str, line: str | None, use: str) -> None:
        super().__init__(f"{line or 'a workflow body'}: {what}; {use}")
        self.what = what
        self.line = line
        self.use = use


class BodyBlocked(Poison):
    """The body held its thread for longer than the limit."""

    def __init__(self, *, line: str | None, seconds: float, limit: float) -> None:
        super().__init__(
            f"{line or 'a workflow body'}: the body held its thread for {seconds:.1f} s (limit {limit:g} s); "
            "blocking calls and long computations belong in ctx.step(...)"
        )
        self.line = line
        self.seconds = seconds
        self.limit = limit


class Evicted(Poison):
    """The body was dropped from memory: raised where it waits, and by whoever drives it afterwards."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the body of {run_id} was dropped from memory; build it anew from the log")
        self.run_id = run_id
