"""Where a prompt is put, and to whom it goes when nobody answers in time.

What lives here: the values an author declares, and their checks. What does not: posting, and what happens when (bot/turn/).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from pydantic import JsonValue

from bot.answerers import By, by_problems, listed

MOST_LEVELS: Final = 10


@dataclass(frozen=True, slots=True)
class Address:
    """A place of one channel, as the channel writes it."""

    channel: str
    address: str


def address(place: str, *, channel: str | None = None) -> Address:
    """Name a place by its address, for example ``slack:v1:-:T01:C02:1690000000.000100``; the channel is its first part."""
    return Address(channel if channel is not None else place.partition(":")[0], place)


Route: TypeAlias = Literal["thread", "direct"] | Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """Hand an unanswered prompt to others, or put it elsewhere, for another while."""

    by: By | None = None
    to: Address | None = None
    expires: timedelta | None = None
    """None: as long as before."""
    by_text: str | None = None


def escalate(
    *, by: By | None = None, to: Address | None = None, expires: timedelta | None = None, by_text: str | None = None
) -> Escalation:
    """Hand an unanswered prompt to those who ``by`` names, put it ``to`` another address, or both."""
    return Escalation(by=by, to=to, expires=expires, by_text=by_text)


OnExpiry: TypeAlias = "Literal['deny', 'cancel'] | Escalation | Iterable[Escalation]"


def levels(on_expiry: Any) -> tuple[Escalation, ...]:
    """The escalations in order; none for what denies or cancels."""
    if isinstance(on_expiry, str):
        return ()
    return (on_expiry,) if isinstance(on_expiry, Escalation) else tuple(on_expiry)


def route_problems(route: Any) -> list[str]:
    """Say what can't be meant by a ``route``."""
    if route in ("thread", "direct"):
        return []
    if isinstance(route, Address):
        complete = route.channel and route.address.partition(":")[2]
        return [] if complete else [f"route=address({route.address!r}) is no address (like 'slack:v1:…')"]
    return [f'route= must be "thread", "direct" or address("…"), not {route!r}']


def expiry_problems(on_expiry: Any, *, quorum: int) -> list[str]:
    """Say what can't be meant by an ``on_expiry``."""
    if isinstance(on_expiry, str):
        return (
            [] if on_expiry in ("deny", "cancel") else [f'on_expiry= must be "deny", "cancel" or escalate(…), not {on_expiry!r}']
        )
    try:
        steps = levels(on_expiry)
    except TypeError:
        return [f'on_expiry= must be "deny", "cancel" or escalate(…), not {on_expiry!r}']
    if not steps or not all(isinstance(step, Escalation) for step in steps):
        return ["on_expiry= must list what escalate(…) returns"]
    found = [f"on_expiry= escalates more than {MOST_LEVELS} times"] if len(steps) > MOST_LEVELS else []
    for step in steps:
        found += by_problems(step.by, of="escalate(by=…)")
        found += route_problems(step.to) if step.to is not None else []
        if step.by is None and step.to is None:
            found.append("escalate() needs by= or to=")
        if step.expires is not None and step.expires <= timedelta(0):
            found.append("escalate(expires=…) must be in the future")
        names = listed(step.by)
        if names and quorum > len(names):
            found.append(f"escalate(by=…) lists {len(names)}, and quorum={quorum} different people have to approve")
    return found


def route_json(route: Route) -> dict[str, JsonValue]:
    """A route as the prompt's body has it."""
    if isinstance(route, Address):
        return {"to": "address", "channel": route.channel, "address": route.address}
    return {"to": route}


def describe_route(route: Route) -> str:
    """Say in words where a prompt is put."""
    if isinstance(route, Address):
        return f"at {route.address}"
    return "in the thread" if route == "thread" else "in a direct message"
