"""The bodies of prompts about calls: all that a card, an API or a worker reads of them, frozen when they are asked.

What lives here: prompts as values. What does not: whether one is needed (gates.py), how it is drawn (bot/cards.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from bot.answerers import listed
from bot.approvals import Approval, Policy, ToolCall
from bot.bindings import meaning
from bot.deciding import Words
from bot.display import reveal
from bot.history import Call
from bot.routes import Address, route_json
from bot.tools import Tool
from bot.turn.change import NewPrompt
from bot.turn.state import Purpose, Turn
from durable_core.ids import new_id, request_id
from durable_core.model import AnswerPolicy

_LONG: Final = 80
_OPTIONS: Final[dict[Purpose, tuple[tuple[str, str, str, str], ...]]] = {
    Purpose.APPROVAL: (("approve", "Approve", "primary", "approved"), ("deny", "Deny", "plain", "denied")),
    Purpose.RERUN: (("rerun", "Run again", "danger", "approved"), ("skip", "Don't run again", "plain", "denied")),
}


def approval_prompt(
    tool: Tool,
    call: Call,
    shown: ToolCall,
    turn: Turn,
    *,
    approval: Approval,
    words: Words,
    evidence: tuple[str, ...],
    judged_by_code: bool,
    now: int,
) -> NewPrompt:
    """Ask whether a call may run."""
    votes = f", and {approval.quorum} of them have to approve" if approval.quorum > 1 else ""
    prompt = _prompt(
        tool,
        call,
        turn,
        approval,
        purpose=Purpose.APPROVAL,
        question=words.question,
        detail=f"{words.answerers} may answer{votes}. It runs once, as {turn.requester.name}.",
        waiting_for=words.answerers,
        fields=tuple((reveal(name), shown.text_of(name)) for name in shown.arguments),
        judged_by_code=judged_by_code,
        inherits=tool.approval is not None,
        now=now,
    )
    prompt.body["evidence"] = list(evidence)
    prompt.body["edit"] = [_editable(name, call, shown) for name in approval.edit]
    return replace(prompt, means=meaning({name: shown.arguments[name] for name in shown.arguments if name not in tool.secret}))


def rerun_prompt(
    tool: Tool,
    call: Call,
    shown: ToolCall,
    turn: Turn,
    *,
    approval: Approval,
    answerers: str,
    inherits: bool,
    judged_by_code: bool,
    now: int,
    begun: int,
) -> NewPrompt:
    """Ask whether a call that was cut off while it ran may run again."""
    prompt = _prompt(
        tool,
        call,
        turn,
        # one who may is enough to say that it runs again: all of them have let it run
        replace(approval, quorum=1, edit=()),
        purpose=Purpose.RERUN,
        question=f"{tool.name} was cut off while it ran. Run it again?",
        detail=f"It may have taken effect already. {answerers} may answer. It runs as {turn.requester.name}.",
        waiting_for=answerers,
        fields=tuple((reveal(name), shown.text_of(name)) for name in call.arguments if name in shown.arguments),
        judged_by_code=judged_by_code,
        inherits=inherits,
        now=now,
    )
    return replace(prompt, begun=begun)


def _prompt(
    tool: Tool,
    call: Call,
    turn: Turn,
    approval: Approval,
    *,
    purpose: Purpose,
    question: str,
    detail: str,
    waiting_for: str,
    fields: tuple[tuple[str, str], ...],
    judged_by_code: bool,
    inherits: bool,
    now: int,
) -> NewPrompt:
    prompt_id = request_id()
    expires_at = None if approval.expires is None else now + _ms(approval.expires)
    remind_ms = None if approval.remind_after is None else _ms(approval.remind_after)
    if remind_ms is not None and expires_at is not None and now + remind_ms >= expires_at:
        remind_ms = None
    arguments = tool.shown(call.arguments)
    action: dict[str, JsonValue] = {"call_id": call.call_id, "tool": call.tool, "input": arguments}
    options: list[JsonValue] = [
        {"id": id_, "label": label, "style": style, "outcome": outcome} for id_, label, style, outcome in _OPTIONS[purpose]
    ]
    rows: list[JsonValue] = [["Tool", call.tool]]
    rows += [[name, text] for name, text in fields]
    policy = AnswerPolicy.FUNCTION if judged_by_code else _POLICIES[approval.policy]
    body: dict[str, JsonValue] = {
        "request_id": prompt_id,
        "kind": purpose.value,
        "turn_id": turn.turn_id,
        "text": question,
        "detail": detail,
        "waiting_for": waiting_for,
        "action": action,
        "fields": rows,
        "evidence": [],
        "options": options,
        "display": "buttons",
        "allow_freeform": False,
        "note": purpose is Purpose.APPROVAL,
        "edit": [],
        "requester": turn.requester.to_json(),
        "expires_at": expires_at,
        "by_approval": inherits,
        "quorum": approval.quorum,
        "group": None,
        "masked": list[JsonValue](tool.secret),
        "route": route_json(approval.route),
        "binding": tool.binding(arguments),
        "remind_ms": remind_ms,
        **_expiry(approval, turn, waiting_for),
    }
    return NewPrompt(
        prompt_id=prompt_id,
        delivery_id=new_id("dlv") if turn.address is not None else None,
        call=replace(call, raw=None),
        purpose=purpose,
        body=body,
        policy=policy,
        expires_at=expires_at,
        quorum=approval.quorum,
        answerers=(approval.people(turn.requester.id) or ()) if policy is AnswerPolicy.LISTED else (),
        asked=waiting_for,
        remind_at=None if remind_ms is None else now + remind_ms,
        binding=tool.binding(call.arguments),
        for_requester=approval.policy is Policy.REQUESTER,
    )


_POLICIES: Final = {
    Policy.REQUESTER: AnswerPolicy.REQUESTER,
    Policy.LISTED: AnswerPolicy.LISTED,
    Policy.FUNCTION: AnswerPolicy.FUNCTION,
}


def _expiry(approval: Approval, turn: Turn, waiting_for: str) -> dict[str, JsonValue]:
    """What happens when nobody answers in time: to whom the prompt goes, where it is put, and how long each of them has."""
    steps: list[JsonValue] = []
    times: list[JsonValue] = []
    asked = waiting_for
    for number, level in enumerate(approval.levels, 1):
        if level.by_text is not None:
            asked = level.by_text
        elif level.by is not None:
            asked = approval.described(turn.requester, level=number)
        people = approval.people(turn.requester.id, level=number)
        to = level.to or Address("", "")
        steps.append(
            {
                "waiting_for": asked,
                "channel": to.channel or None,
                "address": to.address or None,
                "answerers": None if people is None else list(people),
            }
        )
        times.append(_ms(level.expires or approval.expires or timedelta(0)))
    ending = approval.on_expiry if isinstance(approval.on_expiry, str) else "escalate"
    return {"on_expiry": ending, "levels": steps, "level_ms": times}


def _editable(name: str, call: Call, shown: ToolCall) -> JsonValue:
    value: object = call.arguments[name] if name in call.arguments else shown.arguments[name]
    text = to_json(value, inf_nan_mode="strings", fallback=repr).decode()
    long = isinstance(value, str) and (len(value) > _LONG or "\n" in value)
    return {"name": name, "label": name, "value": text, "multiline": long}


def unreachable(approval: Approval, requester: str) -> str | None:
    """Say why nobody could ever approve: who asked is not counted, and the others are too few."""
    people = approval.people(requester)
    if approval.levels or people is None or listed(approval.by) is None or len(people) >= approval.quorum:
        return None
    who = "nobody" if not people else f"only {len(people)} of the {approval.quorum} people it takes"
    return f"{who} may approve this call, since whoever asks may not approve their own."


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
