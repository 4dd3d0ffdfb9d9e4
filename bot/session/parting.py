"""The calls of one reply by what is to become of them: run now, asked about, asleep, refused.

What lives here: asking the gates, and what a call is that has no body to run. What does not: running (calls.py), deciding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.errors import BadArguments
from bot.history import Call, ResultItem, ResultStatus, Trust
from bot.session.calls import Due
from bot.session.gates import Ask, Gates, Refused, Run
from bot.session.live import LiveSession
from bot.tools import Tool
from bot.turn.actions import AskLimit
from bot.turn.change import NewPrompt
from bot.turn.questions import Pause, Question, Silence, asleep, limit_prompt, question_prompt
from bot.turn.routes import put
from bot.turn.state import Limits, Pending, Turn
from durable_core.ids import new_id, request_id
from durable_core.model import AnswerPolicy


@dataclass(slots=True)
class Parted:
    """What is to become of the calls of a reply."""

    now: list[Due] = field(default_factory=list)
    asks: list[NewPrompt] = field(default_factory=list)
    asleep: list[Pending] = field(default_factory=list)
    results: dict[str, ResultItem] = field(default_factory=dict)
    """Those that won't begin."""
    flows: list[Call] = field(default_factory=list)
    """Those that start a run of their own."""
    silent: bool = False
    """The model wants the turn to end, and nothing to be said."""


async def part(gates: Gates, session: LiveSession, turn: Turn, calls: Sequence[Call], *, policy: AnswerPolicy) -> Parted:
    """Find out of each call what is to become of it; `policy` is that of questions to who asked."""
    parted = Parted()
    quiet = 0
    for call in calls:
        # one that was let through is not asked about again: with another answer it would run twice
        begun = session.started(call.call_id) or session.result(call.call_id) is not None
        gate = Run() if begun else await gates.check(call, turn, session.history, session.now, grants=session.state.grants)
        wait = _wait(gates.tools, call)
        if isinstance(gate, Ask):
            parted.asks.append(gate.prompt)
        elif isinstance(gate, Refused):
            parted.results[call.call_id] = gate.result
        elif isinstance(wait, Question):
            parted.asks.append(
                question_prompt(
                    call,
                    turn,
                    wait,
                    prompt_id=request_id(),
                    delivery_id=delivery_id(turn),
                    policy=policy,
                    now=session.now,
                )
            )
        elif isinstance(wait, Pause):
            parted.asleep.append(asleep(call, wait, now=session.now))
        elif isinstance(wait, Silence):
            quiet += 1
            parted.results[call.call_id] = _quiet(call)
        elif gates.tools[call.tool].workflow is not None:
            parted.flows.append(call)
        else:
            parted.now.append(Due(call))
    parted.silent = bool(calls) and quiet == len(calls)
    return parted


def placed(turn: Turn, prompts: Sequence[NewPrompt], *, now: int) -> tuple[NewPrompt, ...]:
    """Say where the cards of one step go."""
    return put(turn, prompts, now=now, mint=mint)


def asked_limit(turn: Turn, action: AskLimit, limits: Limits, *, now: int) -> NewPrompt:
    """Make the prompt that asks whether the turn may go on past a limit."""
    prompt = limit_prompt(turn, action, limits, prompt_id=request_id(), delivery_id=delivery_id(turn), now=now)
    (put_somewhere,) = placed(turn, (prompt,), now=now)
    return put_somewhere


def mint() -> str:
    """Make the id of a delivery."""
    return new_id("dlv")


def delivery_id(turn: Turn) -> str | None:
    """Make the id of a card in the turn's own place, if it has one."""
    return mint() if turn.address is not None else None


def _wait(tools: Mapping[str, Tool], call: Call) -> Question | Pause | Silence | None:
    """What a call is that has no body to run. Its arguments are valid: the gates looked at them."""
    tool = tools.get(call.tool)
    if tool is None or tool.waits is None:
        return None
    try:
        return tool.waits(tool.validate(call.raw if call.raw is not None else call.arguments))
    except BadArguments:
        return None


def _quiet(call: Call) -> ResultItem:
    text = "Nothing was said."
    return ResultItem(
        call.call_id, call.tool, status=ResultStatus.COMPLETED, content=text, origin="framework", trust=Trust.SYSTEM
    )
