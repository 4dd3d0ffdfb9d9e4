"""Who may do what, asked for every message, steer, click, command and API call.

What lives here: the decision and its default. What does not: how a refusal is told, who may answer a prompt (approvals.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from bot.edge import Threads, limited
from bot.principal import Principal
from channels.events import Place, Standing


class Action(StrEnum):
    """What someone is about to do."""

    MESSAGE = "message"
    STEER = "steer"
    CLICK = "click"
    COMMAND = "command"
    API = "api"


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse. ``reason`` is a stable code for records, ``text`` is told to the refused person alone."""

    reason: str
    text: str = "You can't use this bot here."


Decision: TypeAlias = Allow | Deny
AccessPolicy: TypeAlias = Callable[[Principal, Place, Action], Decision | Awaitable[Decision]]

_BY_STANDING = {
    Standing.GUEST: Deny("guest", "Guests can't use this bot."),
    Standing.OUTSIDER: Deny("outsider", "People from outside can't use this bot."),
    Standing.BOT: Deny("bot", "Other bots can't use this bot."),
    Standing.UNKNOWN: Deny("unknown", "This bot couldn't find out who you are, so it can't answer you."),
}


def members_only(principal: Principal, place: Place, action: Action) -> Decision:
    """Allow full members in places that nobody outside can read; this is the default."""
    if principal.standing is not Standing.MEMBER:
        return _BY_STANDING.get(principal.standing, Deny("unknown"))
    if principal.anonymous:
        return Deny("anonymous", "This bot answers only people it can tell apart.")
    if place.shared_outside:
        return Deny("shared_place", "This bot doesn't work in places shared with people from outside.")
    return Allow()


async def decide(
    policy: AccessPolicy,
    principal: Principal,
    place: Place,
    action: Action,
    *,
    threads: Threads | None = None,
    seconds: float | None = None,
) -> Decision:
    """Ask a policy, a plain one in a thread; whatever isn't a decision refuses.

    What the policy raises is passed on, and so is a TimeoutError: a look-up that failed may be asked again, it is no refusal.
    What would end the process comes as AuthorCodeBroke.
    """
    if policy is members_only:
        return members_only(principal, place, action)
    asked = _asked(policy, principal, place, action, threads if threads is not None else Threads())
    decision = (await limited(asked, seconds)).value()
    return decision if isinstance(decision, Allow | Deny) else Deny("no_decision")


async def _asked(policy: AccessPolicy, principal: Principal, place: Place, action: Action, threads: Threads) -> object:
    if inspect.iscoroutinefunction(policy) or inspect.iscoroutinefunction(getattr(policy, "__call__", None)):  # noqa: B004 - a callable object's own method is looked at
        answer: object = policy(principal, place, action)
    else:
        answer = (await threads.run(policy, principal, place, action)).value()
    return await answer if inspect.isawaitable(answer) else answer
