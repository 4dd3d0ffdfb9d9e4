"""The gates before a tool's body: arguments, the author's policy, content that nobody vouches for.

What lives here: whether a call may run now, and the prompt it waits for otherwise. What does not: running it (calls.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from pydantic import JsonValue

from bot.access import AccessPolicy, members_only
from bot.approvals import Approval, Over, Policy, ToolCall
from bot.display import reveal, show
from bot.edge import Threads, limited
from bot.errors import BadArguments
from bot.history import Call, Item, ResultItem, ResultStatus, Trust, UserItem
from bot.tools import Tool
from bot.turn.change import NewPrompt
from bot.turn.state import Purpose, Turn
from durable_core import codec
from durable_core.errors import TooLarge
from durable_core.ids import new_id, request_id
from durable_core.model import AnswerPolicy

POLICY_SECONDS = 10.0
"""How long an author's approval functions may take; then the call asks."""


@dataclass(frozen=True, slots=True)
class Run:
    """The call may run now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The call can't run; the model is told why."""

    result: ResultItem


@dataclass(frozen=True, slots=True)
class Ask:
    """The call waits for a person."""

    prompt: NewPrompt


Gate: TypeAlias = Run | Refused | Ask


class _Words(NamedTuple):
    """What an approval says of a call; the texts are empty if it doesn't ask."""

    gated: bool
    question: str = ""
    answerers: str = ""


def _words(tool: Tool, call: ToolCall, always: bool) -> _Words:  # noqa: FBT001 - run in a thread, by position
    approval = tool.approval or Approval()
    gated = tool.gated(call)
    return _Words(gated, approval.question(call), approval.answerers(call)) if gated or always else _Words(gated=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The gates of one agent's tools."""

    tools: Mapping[str, Tool]
    access: AccessPolicy = members_only
    threads: Threads = field(default_factory=Threads)
    """Where an author's approval functions run."""
    policy_seconds: float = POLICY_SECONDS

    async def check(self, call: Call, turn: Turn, history: Sequence[Item], now: int) -> Gate:
        """Say whether a call that the model asked for may run."""
        tool = self.tools.get(call.tool)
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            return _refused(call, f"There is no tool {call.tool!r}. The tools are: {known}.")
        try:
            tool_call = tool.call(call.raw if call.raw is not None else call.arguments, call.call_id, requester=turn.requester)
        except BadArguments as error:
            return _refused(call, str(error))
        untrusted = tool.asks_after_untrusted and any(item.trust is Trust.UNTRUSTED for item in history)
        words = await self._words(tool, tool_call, always=untrusted)
        if not words.gated and not untrusted:
            return Run()
        approval = tool.approval or Approval()
        prompt = _prompt(
            call,
            turn,
            purpose=Purpose.APPROVAL,
            question=words.question,
            detail=f"{words.answerers} may answer. It runs once, as {turn.requester.name}.",
            waiting_for=words.answerers,
            fields=_fields(tool_call.arguments),
            evidence=evidence(history),
            options=(("approve", "Approve", "primary", "approved"), ("deny", "Deny", "plain", "denied")),
            policy=AnswerPolicy.FUNCTION if self._takes_code(approval) else AnswerPolicy.REQUESTER,
            expires_at=now + _ms(approval.expires),
            inherits=tool.approval is not None,
        )
        if not _storable(prompt):  # whoever approves sees all that will run, or is not asked
            return _refused(
                call, "The arguments are too large to be shown to whoever would have to approve. The call did not run."
            )
        return Ask(prompt)

    async def rerun(
        self, tool: Tool, call: Call, turn: Turn, now: int, *, approved: bool = False, begun: int = 1
    ) -> NewPrompt | None:
        """Ask whether a call that was cut off while it ran may run again: those who may answer are those who let it run.

        ``approved`` says that somebody did. None if the call no longer fits its tool, or is too large to be shown, so that nobody
        can be asked.
        """
        try:
            tool_call = tool.call(call.raw if call.raw is not None else call.arguments, call.call_id, requester=turn.requester)
        except BadArguments:
            return None
        words = await self._words(tool, tool_call, always=approved)
        inherits = tool.approval is not None and (approved or words.gated)
        approval = tool.approval if tool.approval is not None and inherits else Approval()
        answerers = words.answerers if inherits else turn.requester.name
        prompt = _prompt(
            call,
            turn,
            purpose=Purpose.RERUN,
            question=f"{tool.name} was cut off while it ran. Run it again?",
            detail=f"It may have taken effect already. {answerers} may answer. It runs as {turn.requester.name}.",
            waiting_for=answerers,
            fields=_fields(call.arguments),
            evidence=(),
            options=(("rerun", "Run again", "danger", "approved"), ("skip", "Don't run again", "plain", "denied")),
            policy=AnswerPolicy.FUNCTION if self._takes_code(approval) else AnswerPolicy.REQUESTER,
            expires_at=now + _ms(approval.expires),
            inherits=inherits,
        )
        return replace(prompt, begun=begun) if _storable(prompt) else None

    async def _words(self, tool: Tool, call: ToolCall, *, always: bool) -> _Words:
        """Ask the author's functions, in a thread; if they give no answer in time, the call asks."""
        approval = tool.approval or Approval()
        authors = callable(approval.ask) or callable(approval.by_text) or not isinstance(approval.when, Over | None)
        if not authors:
            return _words(tool, call, always)
        running = self.threads.run(_words, tool, call, always)
        ended = await limited(running, self.policy_seconds)
        words = ended.result.result if ended.result is not None else None
        plain = Approval(by=approval.by)
        return words or _Words(gated=True, question=plain.question(call), answerers=plain.answerers(call))

    def _takes_code(self, approval: Approval) -> bool:
        """Whether who may answer needs an author's function, so that a worker has to decide."""
        return approval.policy is Policy.FUNCTION or self.access is not members_only


def evidence(history: Sequence[Item]) -> tuple[str, ...]:
    """List what was read since the request, and everything that nobody vouches for."""
    request = max((place for place, item in enumerate(history) if isinstance(item, UserItem)), default=-1)
    read = [
        f"Read since the request: {item.tool} ({reveal(item.origin)})"
        for item in history[request + 1 :]
        if isinstance(item, ResultItem) and item.status is ResultStatus.COMPLETED
    ]
    outside = [f"From outside, not vouched for: {reveal(item.origin)}" for item in history if item.trust is Trust.UNTRUSTED]
    return tuple(dict.fromkeys([*read, *outside]))


def _prompt(
    call: Call,
    turn: Turn,
    *,
    purpose: Purpose,
    question: str,
    detail: str,
    waiting_for: str,
    fields: tuple[tuple[str, str], ...],
    evidence: tuple[str, ...],
    options: tuple[tuple[str, str, str, str], ...],
    policy: AnswerPolicy,
    expires_at: int,
    inherits: bool,
) -> NewPrompt:
    prompt_id = request_id()
    choices: list[JsonValue] = [
        {"id": id_, "label": label, "style": style, "outcome": outcome} for id_, label, style, outcome in options
    ]
    rows: list[JsonValue] = [["Tool", call.tool]]
    rows += [[name, text] for name, text in fields]
    action: dict[str, JsonValue] = {"call_id": call.call_id, "tool": call.tool, "input": call.arguments}
    body: dict[str, JsonValue] = {
        "request_id": prompt_id,
        "kind": purpose.value,
        "turn_id": turn.turn_id,
        "text": question,
        "detail": detail,
        "waiting_for": waiting_for,
        "action": action,
        "fields": rows,
        "evidence": list(evidence),
        "options": choices,
        "allow_freeform": False,
        "requester": turn.requester.to_json(),
        "expires_at": expires_at,
        "by_approval": inherits,
    }
    return NewPrompt(
        prompt_id=prompt_id,
        delivery_id=new_id("dlv") if turn.address is not None else None,
        call=replace(call, raw=None),
        purpose=purpose,
        body=body,
        policy=policy,
        expires_at=expires_at,
    )


def _storable(prompt: NewPrompt) -> bool:
    try:
        codec.encode(prompt.body)
    except TooLarge:
        return False
    return True


def _fields(arguments: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Every argument in full; what can't be seen is made visible."""
    return tuple((reveal(name), show(value)) for name, value in arguments.items())


def _refused(call: Call, reason: str) -> Refused:
    result = ResultItem(
        call.call_id, call.tool, status=ResultStatus.FAILED, content=reason, origin="framework", trust=Trust.SYSTEM
    )
    return Refused(result)


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
