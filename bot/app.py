"""The app: agents, channels and what they need, put together in one explicit object.

What lives here: the value an author writes and its start-up checks. What does not: running it (runtime.py).
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, TypeAlias

from bot.access import AccessPolicy, members_only
from bot.agent import Agent
from bot.answerers import Resolver, group_problems
from bot.connections.connection import OAuthConnection
from bot.connections.declared import connection_problems, declared
from bot.errors import BadApp
from bot.retention import Retention, RetentionSpec
from bot.settings import Settings
from bot.turn.state import Limits
from channels.contract import Channel, Checked
from durable_core.keys import Keys
from durable_core.model import INTERNAL
from durable_core.registry import Registry, Workflow, WorkflowNameTaken

_CHANNEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_TAKEN: Final = frozenset({"account", "api", "app", "cli", "connect", "delivery", "text", INTERNAL})
"""What else names whose a person is, or where something came from or goes to."""

OpenDeps: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]] | Callable[[Settings], AbstractAsyncContextManager[Any]]


class Bot:
    """Agents on channels.

    With several agents `routes` names the one that answers on each channel. `deps` is a function that returns an async context
    manager (with the settings, if it takes an argument); it is opened once per worker and handed to every tool as `ctx.deps`.
    `retention` says for how many days after its end the content of a session is kept: a number, 0 for none, or "default", which
    is 90. It is written down when a session begins. `keys` takes the place of MOORINGS_ENCRYPTION_KEYS: a provider that asks a
    KMS, say.
    `lifetime` ends a session that long after it began or moved to a new version, once its turn has settled; None never does.
    `groups` says who is in a `group(name)` that may answer: a function of the person, plain or async, or a channel's group.
    `workflows` are those that no agent offers as a tool, but that others start.
    `connections` are the accounts that workflows act with; those that tools name in `connections=` are known by that.
    `inherit_transcript` gives the session that follows one which no version can read any more what was said there, as data.
    """

    def __init__(
        self,
        *,
        agents: Sequence[Agent],
        channels: Sequence[Channel] = (),
        routes: Mapping[str, str] | None = None,
        deps: OpenDeps | None = None,
        access: AccessPolicy = members_only,
        limits: Limits | None = None,
        lifetime: timedelta | None = timedelta(days=30),
        retention: RetentionSpec = "default",
        keys: Keys | None = None,
        inherit_transcript: bool = False,
        groups: Mapping[str, Resolver] | None = None,
        workflows: Sequence[Workflow] = (),
        connections: Sequence[OAuthConnection] = (),
    ) -> None:
        self.agents: tuple[Agent, ...] = _listed(agents, Agent, "agents=[support]")
        self.channels: tuple[Channel, ...] = _listed(channels, Channel, "channels=[Slack()]")
        self.routes = dict(routes or {})
        _check_deps(deps)
        self.deps = deps
        self.access = access
        self.limits = limits or Limits()
        self.lifetime = lifetime
        self.retention = Retention.of(retention)
        self.keys = keys
        self.inherit_transcript = inherit_transcript
        self.groups = dict(groups or {})
        self.workflows = tuple(workflows)
        self.given_connections = tuple(connections)

    @property
    def lifetime_ms(self) -> int | None:
        """The lifetime of a session in milliseconds."""
        return None if self.lifetime is None else int(self.lifetime.total_seconds() * 1000)

    @property
    def registry(self) -> Registry:
        """The workflows of its agents, and those that only workflows start."""
        tools = [workflow for agent in self.agents for workflow in agent.workflows]
        return Registry(dict.fromkeys([*tools, *self.workflows]))

    @property
    def connections(self) -> dict[str, OAuthConnection]:
        """Every connection by its name: those of its tools' needs, and those given for workflows."""
        return declared(self.agents, self.given_connections)

    def check(self, more: Sequence[Channel] = ()) -> None:
        """Look for everything that keeps this app from starting. Raises: BadApp, with all of it."""
        problems: list[str] = []
        if not self.agents:
            problems.append("the bot has no agent: Bot(agents=[…])")
        for agent in self.agents:
            problems += agent.problems()
        names = Counter(agent.name for agent in self.agents)
        problems += [f"{count} agents are named {name!r}" for name, count in names.items() if count > 1]
        channels = [channel.name for channel in (*self.channels, *more)]
        problems += [f"{count} channels are named {name!r}" for name, count in Counter(channels).items() if count > 1]
        problems += [problem for name in dict.fromkeys(channels) for problem in _name_problems(name)]
        for channel in dict.fromkeys(channels):
            agent_name = self.routes.get(channel)
            if agent_name is None and len(names) > 1:
                problems.append(f"channel {channel!r} has several agents to choose from: routes={{{channel!r}: …}}")
            elif agent_name is not None and agent_name not in names:
                problems.append(f"routes[{channel!r}] names {agent_name!r}, which is no agent")
        problems += self._unknown_channels(channels)
        places: tuple[object, ...] = (*self.channels, *more)
        for place in places:
            problems += place.problems() if isinstance(place, Checked) else ()
        problems += connection_problems(self.agents, self.given_connections)
        try:
            _ = self.registry
        except WorkflowNameTaken as error:
            problems.append(str(error))
        if self.lifetime is not None and self.lifetime <= timedelta(0):
            problems.append("lifetime= must be in the future, or None")
        problems += [*self.retention.problems(), *self.limits.problems(), *group_problems(self.groups)]
        if problems:
            raise BadApp(tuple(problems))

    def _unknown_channels(self, channels: Collection[str]) -> list[str]:
        """Say which approvals put their requests on a channel that this app doesn't have."""
        found: list[str] = []
        for agent in self.agents:
            for tool in agent.gated:
                places = tool.approval.addresses if tool.approval is not None else ()
                found += [
                    f"agent {agent.name!r}: tool {tool.name!r} asks at {place.address!r}, on no channel of this bot"
                    for place in places
                    if place.channel not in channels
                ]
        return found

    def agent_of(self, channel: str) -> str:
        """Name the agent that answers on a channel."""
        return self.routes.get(channel) or self.agents[0].name

    def open_deps(self, settings: Settings) -> AbstractAsyncContextManager[Any]:
        """Begin what the tools share."""
        if self.deps is None:
            return nullcontext()
        takes = inspect.signature(self.deps).parameters
        return self.deps(settings) if takes else self.deps()  # type: ignore[call-arg]


def _listed(given: object, kind: type, example: str) -> tuple[Any, ...]:
    """Return what was given as a list. Raises: BadApp, where it is written, for anything else."""
    listed = isinstance(given, Iterable) and not isinstance(given, str)
    found: tuple[object, ...] = tuple(given) if isinstance(given, Iterable) and listed else (given,)
    for one in found:
        if not listed or not isinstance(one, kind):
            what = f"the class {one.__name__}" if isinstance(one, type) else f"a value of type {type(one).__name__}"
            raise BadApp((f"write {example}, a list of {kind.__name__} objects; {what} is given",))
    return found


def _check_deps(deps: object) -> None:
    """Refuse what opens nothing. Raises: BadApp."""
    if deps is not None and not callable(deps):
        raise BadApp((f"deps= takes a function that opens what tools share; a value of type {type(deps).__name__} is given",))
    if inspect.isasyncgenfunction(deps):
        raise BadApp(("deps= takes an async context manager: decorate this function with @asynccontextmanager, of contextlib",))


def _name_problems(channel: str) -> list[str]:
    """Say what is wrong with a channel's name: people are known by it, and it stands in the address of its webhook."""
    if not _CHANNEL.fullmatch(channel):
        return [f"channel {channel!r}: a name is 1 to 32 lower-case letters, digits, '_' or '-', a letter first"]
    return [f"channel {channel!r}: the framework uses this name itself; choose another one"] if channel in _TAKEN else []
