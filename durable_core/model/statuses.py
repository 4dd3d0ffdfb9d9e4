"""Words for where things stand, and the numbers that every part agrees on.

What lives here: enums and limits. What does not: values that carry data (the files beside this one).
"""

from __future__ import annotations

from enum import StrEnum

MAX_CHARGED = 4
"""Charged attempts a step gets before it fails (CORE 15)."""


ALONE_AFTER_CRASHES = 2
"""A run that crashed its worker this often is claimed alone."""


class RunKind(StrEnum):
    """Who advances a run: a state machine of the layer above, or an author's code by replay."""

    SESSION = "session"
    WORKFLOW = "workflow"


class RunStatus(StrEnum):
    """Whether a run still takes input."""

    OPEN = "open"
    ENDED = "ended"


class Phase(StrEnum):
    """What a reader of the run sees: nothing to do, at work, or waiting for a person."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"


class CommandKind(StrEnum):
    """What an inbox entry asks for."""

    MESSAGE = "message"
    RESPONSE = "response"
    CANCEL = "cancel"
    SIGNAL = "signal"


class Outcome(StrEnum):
    """How accepted work ended; exactly one for each submission."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class PromptOutcome(StrEnum):
    """How a prompt ended; exactly one for each prompt."""

    ANSWERED = "answered"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    IGNORED = "ignored"


class AnswerStatus(StrEnum):
    """What became of one answer to a prompt."""

    SETTLED = "settled"
    ALREADY_SETTLED = "already_settled"
    REFUSED = "refused"
    PENDING = "pending"
    COUNTED = "counted"
    """It counts, and more people have to say the same before the prompt is settled."""
    ASIDE = "aside"
    """Whoever may answer asked for something beside the answer; the prompt is as it was."""


class AnswerPolicy(StrEnum):
    """Who may answer: data that settles in the admission, or a function that a worker evaluates (CORE 8)."""

    REQUESTER = "requester"
    LISTED = "listed"
    """Whom the prompt's `answerers` name."""
    FUNCTION = "function"


class RecordKind(StrEnum):
    """What an in-step record holds."""

    REPLY = "reply"
    STARTED = "started"
    RESULT = "result"
