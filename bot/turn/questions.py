"""Questions that no author words: what a model asks a person, and whether a turn may go on past a limit.

What lives here: their prompts, pure. What does not: approvals (bot/session/gates.py), what becomes of the answer (held.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bot.history import Call
from bot.turn.actions import AskLimit
from bot.turn.change import NewPrompt
from bot.turn.state import NO_CALL, Limits, Pending, Purpose, Stage, Turn
from bot.turn.view import DAY_MS
from durable_core.model import AnswerPolicy

EXPIRES_MS: Final = 3 * DAY_MS
REMIND_MS: Final = 4 * 60 * 60 * 1000
BUTTONS: Final = 5
"""More options than these are shown as a list to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the person who asked; a call that is one ends with their answer."""

    text: str
    options: tuple[str, ...] = ()
    allow_freeform: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A wait for a time; a call that is one holds nothing meanwhile."""

    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The turn ends, and nothing is said."""


Wait = Question | Pause | Silence
"""What a call is instead of a run of its body."""


def question_prompt(
    call: Call, turn: Turn, question: Question, *, prompt_id: str, delivery_id: str | None, policy: AnswerPolicy, now: int
) -> NewPrompt:
    """Ask what the model wants to know."""
    options = [_option(f"option_{place}", label, "plain", "answered") for place, label in enumerate(question.options, start=1)]
    body = _body(turn, prompt_id, Purpose.QUESTION, text=question.text, options=options, now=now)
    action: dict[str, JsonValue] = {"call_id": call.call_id, "tool": call.tool, "input": call.arguments}
    display = "select" if len(options) > BUTTONS else "buttons"
    free = question.allow_freeform or not options
    return NewPrompt(
        prompt_id=prompt_id,
        delivery_id=delivery_id,
        call=call,
        purpose=Purpose.QUESTION,
        body={**body, "action": action, "display": display, "allow_freeform": free},
        policy=policy,
        expires_at=now + EXPIRES_MS,
        for_requester=True,
    )


def limit_prompt(turn: Turn, action: AskLimit, limits: Limits, *, prompt_id: str, delivery_id: str | None, now: int) -> NewPrompt:
    """Ask whether the turn may go on; those who own the budget may answer too."""
    options = [
        _option("continue", "Continue", "primary", "approved"),
        _option("stop", "Stop", "plain", "denied"),
    ]
    text = f"{action.reached[:1].upper()}{action.reached[1:]}. Go on?"
    body = _body(turn, prompt_id, Purpose.LIMIT, text=text, options=options, now=now)
    answerers = tuple(dict.fromkeys([turn.requester.id, *limits.owners])) if limits.owners else ()
    if answerers:
        who = f"{turn.requester.name} or a budget owner"
        body |= {"waiting_for": who, "detail": f"{who} may answer."}
    return NewPrompt(
        prompt_id=prompt_id,
        delivery_id=delivery_id,
        call=NO_CALL,
        purpose=Purpose.LIMIT,
        body=body,
        policy=AnswerPolicy.LISTED if answerers else AnswerPolicy.REQUESTER,
        answerers=answerers,
        expires_at=now + EXPIRES_MS,
        limit=action.code,
    )


def asleep(call: Call, pause: Pause, *, now: int) -> Pending:
    """A call that waits for a time."""
    return Pending(call=call, purpose=Purpose.SLEEP, stage=Stage.ASLEEP, since=now, until=now + pause.ms)


def _option(id_: str, label: str, style: str, outcome: str) -> dict[str, JsonValue]:
    return {"id": id_, "label": label, "style": style, "outcome": outcome}


def _body(
    turn: Turn, prompt_id: str, purpose: Purpose, *, text: str, options: Sequence[Mapping[str, JsonValue]], now: int
) -> dict[str, JsonValue]:
    return {
        "request_id": prompt_id,
        "kind": purpose.value,
        "turn_id": turn.turn_id,
        "text": text,
        "detail": f"{turn.requester.name} may answer.",
        "waiting_for": turn.requester.name,
        "action": None,
        "fields": [],
        "evidence": [],
        "options": [{**option} for option in options],
        "allow_freeform": False,
        "requester": turn.requester.to_json(),
        "expires_at": now + EXPIRES_MS,
        "remind_ms": REMIND_MS,
        "by_approval": False,
    }
