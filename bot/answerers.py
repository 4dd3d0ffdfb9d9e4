"""Who may answer a prompt: lists, groups and functions, as an author declares them.

What lives here: the values, their checks and their words, groups and who is in them. What does not: asking (deciding.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bot.display import reveal
from bot.edge import Threads, asked, misfit
from bot.people import as_author
from bot.principal import Principal
from channels.contract import Membership

if TYPE_CHECKING:
    from bot.approvals import ToolCall

log = logging.getLogger("moorings.answers")

POLICY_SECONDS: Final = 10.0
"""How long an author's functions around an approval may take each."""
RIGHT_TO: Final = "Somebody with the right to"


@dataclass(frozen=True, slots=True)
class Group:
    """Whoever a group of this name includes."""

    name: str


def group(name: str) -> Group:
    """Let a group answer: the resolver of `Bot(groups=…)` says who is in it; without one, the roles of a person do."""
    return Group(name)


By: TypeAlias = "Callable[[ToolCall, Principal], bool | Awaitable[bool]] | Sequence[str] | Group"
Resolver: TypeAlias = "Callable[[Principal], bool | Awaitable[bool]] | Membership"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of an app. Every doubt excludes: a resolver that fails, is silent for 10 s, or says anything but True."""

    resolvers: Mapping[str, Resolver] = field(default_factory=dict)
    threads: Threads = field(default_factory=Threads)
    seconds: float = POLICY_SECONDS

    async def includes(self, name: str, principal: Principal) -> bool:
        """Tell whether somebody is in a group."""
        resolver = self.resolvers.get(name)
        if principal.anonymous:
            return False
        if resolver is None:
            return name in principal.roles
        if isinstance(resolver, Membership):
            if principal.channel != resolver.channel:
                return False
            author, includes = as_author(principal), resolver.includes

            async def answer() -> bool:
                return await includes(author)

            ended = await asked(answer, threads=self.threads, seconds=self.seconds)
        else:
            ended = await asked(resolver, principal, threads=self.threads, seconds=self.seconds)
        if ended.error is not None:
            log.warning("group %r did not say whether %s is in it (%s); refused", name, principal.id, type(ended.error).__name__)
        return ended.error is None and ended.result is True


def group_problems(groups: Mapping[str, Any]) -> list[str]:
    """Say which resolvers can't be meant."""
    found = [
        f"groups[{name!r}] must be a function of a principal, or a channel's group, not {resolver!r}"
        for name, resolver in groups.items()
        if not (callable(resolver) or isinstance(resolver, Membership))
    ]
    functions = {name: resolver for name, resolver in groups.items() if not isinstance(resolver, Membership)}
    return found + [f"groups[{name!r}] {wrong}" for name, one in functions.items() if (wrong := misfit(one, "person"))]


def by_problems(by: Any, *, of: str = "by=") -> list[str]:
    """Say what can't be meant by a ``by``."""
    match by:
        case None:
            return []
        case Group(name=name):
            return [] if name.strip() else [f"{of} group() needs a name"]
        case str():
            return [f"{of} takes a list of principal ids, not one text; write [{by!r}], or group({by!r})"]
        case _ if callable(by):
            wrong = misfit(by, "call", "person")
            return [f"{of} {wrong}"] if wrong else []
        case Sequence():
            if not by:
                return [f"{of} lists nobody"]
            odd = [entry for entry in by if not isinstance(entry, str) or ":" not in entry]
            return [f"{of} lists {entry!r}, which is no principal id (like 'slack:T01:U02')" for entry in odd]
        case _:
            return [f"{of} must be a function, a list of principal ids or a group, not {by!r}"]


def listed(by: Any) -> tuple[str, ...] | None:
    """The people that a list names, each once; None if it isn't one."""
    if not isinstance(by, Sequence) or isinstance(by, str):
        return None
    return tuple(name for place, name in enumerate(by) if name not in by[:place])


def describe_by(by: Any, *, requester: str = "whoever asked") -> str:
    """Name who may answer, as the subject of a sentence."""
    names = listed(by)
    if by is None:
        return requester
    if names is not None:
        shown = [reveal(name) for name in names]
        return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    return f"Somebody in {reveal(by.name)}" if isinstance(by, Group) else RIGHT_TO
