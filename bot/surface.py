"""What an app can do and who has a say in it: one row a tool, for a page, a review, or a check in CI.

What lives here: the rows. What does not: printing or comparing them (the command line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.access import AccessPolicy, members_only
from bot.agent import Agent
from bot.answerers import Group, describe_by
from bot.approvals import Approval
from bot.connections.connection import Need
from bot.explain import length
from bot.policies import describe
from bot.routes import describe_route
from bot.tools import Effect, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tool of one agent, in words that a reviewer reads; equal apps give equal rows."""

    agent: str
    tool: str
    effect: str
    starts: str
    """Who may have it called: whoever may talk to the bot."""
    asks: str
    """Which calls wait for a person."""
    approves: str
    """Who may then say yes."""
    untrusted: str
    """What a call does once untrusted content was read."""
    secret: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Where its accounts' tokens may go; where else its body connects to is not limited."""
    scopes: tuple[str, ...] = ()
    """What it may do with each account."""
    accounts: tuple[str, ...] = ()
    """Whose accounts it acts with."""


def surface(
    agents: Iterable[Agent], *, access: AccessPolicy = members_only, groups: Mapping[str, Any] | None = None
) -> tuple[Row, ...]:
    """List every tool of every agent, in order of their names."""
    starts = "full members" if access is members_only else f"whom {_name(access)}() allows"
    rows = [_row(agent, tool, starts, groups or {}) for agent in agents for tool in agent.gated]
    return tuple(sorted(rows, key=lambda row: (row.agent, row.tool)))


def _row(agent: Agent, tool: Tool, starts: str, groups: Mapping[str, Any]) -> Row:
    gate = tool.approval
    return Row(
        agent=agent.name,
        tool=tool.name,
        effect=tool.effect.value,
        starts=starts,
        asks="never" if gate is None else describe(gate.when),
        approves=_approves(gate or Approval(), groups) if gate is not None or tool.asks_after_untrusted else "nobody is asked",
        untrusted=_untrusted(tool),
        secret=tool.secret,
        hosts=tuple(host for need in tool.connections for host in need.connection.hosts),
        scopes=tuple(f"{need.name}: {' '.join(need.scopes)}" for need in tool.connections if need.scopes),
        accounts=tuple(_account(need) for need in tool.connections),
    )


def _approves(approval: Approval, groups: Mapping[str, Any]) -> str:
    who = _people(approval.by, groups)
    words = f"{approval.quorum} of: {who}" if approval.quorum > 1 else who
    if approval.by is not None:
        words += ", the requester too" if approval.self_ok else ", not the requester"
    if approval.edit:
        words += f"; may change {', '.join(approval.edit)}"
    if approval.route != "thread":
        words += f"; asked {describe_route(approval.route)}"
    for level in approval.levels:
        words += f"; then {_people(level.by, groups) if level.by is not None else 'the same'}"
        words += f" {describe_route(level.to)}" if level.to is not None else ""
    return f"{words}; {'no limit of time' if approval.expires is None else 'within ' + length(approval.expires)}"


def _account(need: Need) -> str:
    whose = "the app's own" if need.connection.owner == "app" else "the requester's"
    token = ", given its token" if need.connection.expose_token else ""
    return f"{whose} at {need.connection.title} ({need.name}{token})"


def _people(by: Any, groups: Mapping[str, Any]) -> str:
    if isinstance(by, Group):
        known = groups.get(by.name)
        return f"group {by.name} ({'by role' if known is None else f'by {_name(known)}'})"
    return f"whom {_name(by)}() allows" if callable(by) else describe_by(by)


def _untrusted(tool: Tool) -> str:
    if tool.effect is Effect.READ:
        return "no matter: it reads"
    return "asks" if tool.asks_after_untrusted else "allowed"


def _name(thing: Any) -> str:
    return str(getattr(thing, "__name__", None) or repr(thing))
