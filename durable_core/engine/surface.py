"""Where a run shows itself: what it asks people, and how far it is.

What lives here: the port that a layer above fills, and what an engine without one does. What does not: answering (engine.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from durable_core import codec
from durable_core.clock import milliseconds
from durable_core.model import AnswerPolicy, OutboxDraft, Prompt, PromptDraft, PromptOutcome
from durable_core.operations import AskOptions

ANYONE: Final = "*"
"""Whom a question is asked that anybody may answer; who did stands in the answer's name."""
PROMPT_KIND: Final = "question"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """A run that asks or shows something: `origin` is what its starter said of where it comes from."""

    run_id: str
    workflow: str
    origin: Any
    now: int
    """The body's clock, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A question as it is opened, with what is owed for it."""

    prompt: PromptDraft
    outbox: tuple[OutboxDraft, ...] = ()


class Surface(Protocol):
    """What it returns is part of the run's commit: it does nothing itself, and gives the same whenever it is asked again."""

    def ask(self, asker: Asker, op: str, question: AskOptions, prompt_id: str) -> Put:
        """Open a question under this id."""

    def remind(self, asker: Asker, prompt: Prompt | PromptDraft) -> tuple[OutboxDraft, ...]:
        """Remind of a question that nobody has answered yet."""

    def resolve(self, asker: Asker, prompt_id: str, outcome: PromptOutcome, by: str | None) -> tuple[OutboxDraft, ...]:
        """Tell that a question has ended; its posted copies are edited anyway."""

    def show(self, asker: Asker, values: Sequence[Any]) -> tuple[OutboxDraft, ...]:
        """Tell what the body showed by `ctx.progress` since the last commit."""

    def end(self, asker: Asker, reason: str) -> tuple[OutboxDraft, ...]:
        """Tell that the run ends; its parent is told anyway."""


class Alone:
    """Of an engine without a layer above: anybody who gets at the engine may answer, nobody is told."""

    def ask(self, asker: Asker, op: str, question: AskOptions, prompt_id: str) -> Put:
        """Open a question that names in its body who may answer it."""
        body: dict[str, Any] = {
            "op": op,
            "text": question.text,
            "options": [
                {"id": option.id, "label": option.label, "description": option.description, "style": option.style}
                for option in question.options
            ],
            "allow_freeform": question.allow_freeform,
            "on_expiry": question.on_expiry,
            "by": question.by,
        }
        prompt = PromptDraft(
            prompt_id=prompt_id,
            kind=PROMPT_KIND,
            call_id=op,
            body=codec.encode(body),
            requester=ANYONE,
            policy=AnswerPolicy.REQUESTER,
            expires_at=expires_at(asker, question),
            remind_at=remind_at(asker, question),
        )
        return Put(prompt=prompt)

    def remind(self, asker: Asker, prompt: Prompt | PromptDraft) -> tuple[OutboxDraft, ...]:
        """Owe nothing; an event tells whoever follows the run."""
        return ()

    def resolve(self, asker: Asker, prompt_id: str, outcome: PromptOutcome, by: str | None) -> tuple[OutboxDraft, ...]:
        """Owe nothing."""
        return ()

    def show(self, asker: Asker, values: Sequence[Any]) -> tuple[OutboxDraft, ...]:
        """Owe nothing."""
        return ()

    def end(self, asker: Asker, reason: str) -> tuple[OutboxDraft, ...]:
        """Owe nothing."""
        return ()


def expires_at(asker: Asker, question: AskOptions) -> int | None:
    """When a question that is asked now is over."""
    return None if question.expires is None else asker.now + milliseconds(question.expires)


def remind_at(asker: Asker, question: AskOptions) -> int | None:
    """When people are reminded of a question that is asked now; never once it is over."""
    if question.remind_after is None or (question.expires is not None and question.remind_after >= question.expires):
        return None
    return asker.now + milliseconds(question.remind_after)
