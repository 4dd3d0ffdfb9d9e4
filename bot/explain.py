"""What would happen to one call, gate by gate, without making it.

What lives here: the gates in order, each with what it says. What does not: printing them (the command line), passing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pydantic import JsonValue

from bot.answerers import Group, describe_by, listed
from bot.approvals import Approval, ToolCall
from bot.deciding import Deciding, Ruled, Surroundings
from bot.errors import BadArguments
from bot.masks import MASK
from bot.policies import Auto, Once, describe
from bot.principal import Principal
from bot.routes import describe_route
from bot.session.bodies import unreachable
from bot.tools import Effect, Tool

Stand = Literal["passes", "asks", "stops"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: what it is, what it says in a sentence, and whether the call passes, waits for a person, or stops there."""

    name: str
    says: str
    stand: Stand


async def explain(
    tool: Tool,
    principal: Principal,
    arguments: Mapping[str, JsonValue] | str,
    *,
    deciding: Deciding | None = None,
    tainted: bool = False,
    granted: bool = False,
) -> tuple[Gate, ...]:
    """List the gates of a call in order, up to the one that stops it; the author's functions are asked, judges are not.

    ``tool`` is one of `Agent.gated`. ``tainted`` and ``granted`` say what the conversation would add: untrusted content was read,
    an earlier yes to `once` counts.
    """
    try:
        call = tool.call(arguments, "0.0.0", requester=principal)
    except BadArguments as error:
        return (Gate("arguments", "; ".join(error.errors), "stops"),)
    gates = [Gate("arguments", _arguments(call), "passes")]
    ruled = await _ruled(deciding or Deciding(), tool, call, granted=granted)
    gates.append(_policy(tool.approval, ruled))
    if ruled.says == "deny":
        return tuple(gates)
    gates.append(_taint(tool, tainted=tainted))
    if all(gate.stand == "passes" for gate in gates):
        signs_in = _accounts(tool, principal)
        if any(gate.stand != "passes" for gate in signs_in):
            return (*gates, *signs_in)
        return (*gates, *signs_in, Gate("run", f"It runs at once, as {principal.name}.", "passes"))
    approval = tool.approval or Approval()
    nobody = unreachable(approval, principal.id)
    gates.append(
        Gate(
            "answer", f"{_who(approval, call)}." if nobody is None else nobody.capitalize(), "asks" if nobody is None else "stops"
        )
    )
    if nobody is None:
        gates.append(Gate("route", f"It is asked {describe_route(approval.route)}.", "asks"))
        gates.append(Gate("expiry", _expiry(approval), "asks"))
        gates += _accounts(tool, principal)
    return tuple(gates)


async def _ruled(deciding: Deciding, tool: Tool, call: ToolCall, *, granted: bool) -> Ruled:
    # `tainted` keeps a judge from being asked: this makes no model call
    return await deciding.rule(tool.approval, call, Surroundings(granted=granted, tainted=True))


def _accounts(tool: Tool, principal: Principal) -> list[Gate]:
    """Say whose accounts a call acts with; whether they are connected is not looked up."""
    found = []
    for need in tool.connections:
        title, may = need.connection.title, f" ({', '.join(need.scopes)})" if need.scopes else ""
        if need.connection.owner == "app":
            found.append(Gate("account", f"It acts with the app's own account at {title}{may}.", "passes"))
        elif principal.anonymous:
            found.append(Gate("sign-in", f"It acts with the account of whoever asks at {title}, and nobody does.", "stops"))
        else:
            who, within = principal.name, length(need.connection.expires)
            asked = f"Without one, {who} alone is asked to connect it, within {within}."
            found.append(Gate("sign-in", f"It acts with {who}'s account at {title}{may}. {asked}", "asks"))
    return found


def _arguments(call: ToolCall) -> str:
    told = ", ".join(f"{name}={call.text_of(name)}" for name in call.arguments)
    masks = f" {MASK} is secret: nobody is shown it." if call.shown else ""
    return f"Valid: {told or 'none'}.{masks}"


def _policy(approval: Approval | None, ruled: Ruled) -> Gate:
    if approval is None:
        return Gate("policy", "It has none, nor has the agent for it: nobody is asked.", "passes")
    which = f"It asks {describe(approval.when)}"
    if isinstance(approval.when, Auto):
        return Gate("policy", f"{which}. The judge is not asked here.", "asks")
    if isinstance(approval.when, Once) and ruled.says == "allow":
        return Gate("policy", f"{which}: a yes from before counts.", "passes")
    match ruled.says:
        case "deny":
            return Gate("policy", f"{which}: refused, {ruled.why}", "stops")
        case "ask":
            return Gate("policy", f"{which}: this call does.", "asks")
        case _:
            return Gate("policy", f"{which}: this call does not.", "passes")


def _taint(tool: Tool, *, tainted: bool) -> Gate:
    if not tool.asks_after_untrusted:
        why = "it changes nothing" if tool.effect is Effect.READ else 'it says untrusted="allow"'
        return Gate("untrusted content", f"It makes no difference: {why}.", "passes")
    if tainted:
        return Gate("untrusted content", "It was read: a person is asked, whatever the policy says.", "asks")
    return Gate("untrusted content", "None was read. After it a person would be asked, whatever the policy says.", "passes")


def _who(approval: Approval, call: ToolCall) -> str:
    words = f"{approval.answerers(call)} may answer"
    if isinstance(approval.by, Group) or callable(approval.by) or listed(approval.by):
        words += ", the requester among them if it says so" if approval.self_ok else f", but not {call.requester.name}, who asks"
    if approval.quorum > 1:
        words += f"; {approval.quorum} different people have to approve"
    if approval.edit:
        words += f"; whoever approves may change {', '.join(approval.edit)}"
    return words


def _expiry(approval: Approval) -> str:
    if approval.expires is None:
        return "It waits for as long as the session lives."
    remind = approval.remind_after
    words = f"After {length(remind)} they are reminded. " if remind is not None and remind < approval.expires else ""
    if not approval.levels:
        ends = "counts as denied" if approval.on_expiry == "deny" else "is cancelled with its turn"
        return f"{words}After {length(approval.expires)} without an answer it {ends}."
    waited = approval.expires
    for level in approval.levels:
        whom = level.by_text or (describe_by(level.by) if level.by is not None else "the same people")
        where = f" {describe_route(level.to)}" if level.to is not None else ""
        words += f"After {length(waited)} without an answer {whom} will be asked{where}. "
        waited += level.expires or approval.expires
    return f"{words}After {length(waited)} it counts as denied."


def length(time: timedelta) -> str:
    """Say how long a time is, in the two largest units that it fills."""
    seconds = int(time.total_seconds())
    parts = []
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {word}{'' if count == 1 else 's'}")
    return " ".join(parts[:2]) or "no time"
