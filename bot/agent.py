"""An agent: a name, a model, instructions and tools.

What lives here: the value an author writes. What does not: running it (turn.py), putting agents together (app.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from bot.approvals import Approval
from bot.errors import BadModel
from bot.flows.tools import workflow_tool
from bot.model import Model
from bot.models import open_model
from bot.policies import When
from bot.tools import Effect, Tool
from durable_core.registry import Workflow

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def gate_of(tool: Tool, *defaults: Approval | When | None) -> Approval | None:
    """Choose the approval that holds for a tool: its own, else, of one that writes, the first of the defaults that is given."""
    if tool.approval is not None or tool.effect is not Effect.WRITE:
        return tool.approval
    given = next((default for default in defaults if default is not None), None)
    return given if given is None or isinstance(given, Approval) else Approval(when=given)


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers in a conversation.

    ``model`` is ``scripted``, a provider's model as ``provider:name``, or an object. The name is recorded with every
    session: keep it when the variable is renamed. ``approval`` holds for every tool that writes and declares none; a tool opts
    out with ``approval=never``.
    """

    name: str
    model: str | Model
    _: KW_ONLY
    instructions: str = ""
    tools: Sequence[Tool | Workflow] = ()
    approval: Approval | When | None = None

    def __post_init__(self) -> None:
        offered = tuple(workflow_tool(entry) if isinstance(entry, Workflow) else entry for entry in self.tools)
        object.__setattr__(self, "tools", offered)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """Its tools; a workflow is one by now."""
        return tuple(entry for entry in self.tools if isinstance(entry, Tool))

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """The workflows that its tools start."""
        return tuple(tool.workflow for tool in self.offered if tool.workflow is not None)

    @property
    def gated(self) -> tuple[Tool, ...]:
        """The tools with the approval that holds for each: its own, else, of one that writes, its connection's or the agent's."""
        return tuple(replace(tool, approval=self._gate(tool)) for tool in self.offered)

    def _gate(self, tool: Tool) -> Approval | None:
        return gate_of(tool, *(need.connection.approval for need in tool.connections), self.approval)

    def problems(self) -> tuple[str, ...]:
        """List everything that keeps this agent from starting."""
        found: list[str] = []
        if not _NAME.fullmatch(self.name):
            found.append(f"agent {self.name!r}: a name is 1 to 64 lower-case letters, digits, '_' or '-', a letter first")
        try:
            open_model(self.model)
        except BadModel as error:
            found.append(f"agent {self.name!r}: {error}")
        entries: tuple[object, ...] = tuple(self.tools)
        strangers = [entry for entry in entries if not isinstance(entry, Tool)]
        found += [f"agent {self.name!r}: {entry!r} is no tool; declare it with @tool" for entry in strangers]
        found += self._approval_problems()
        names = Counter(entry.name for entry in entries if isinstance(entry, Tool))
        found += [f"agent {self.name!r}: {count} tools are named {name!r}" for name, count in names.items() if count > 1]
        return tuple(found)

    def _approval_problems(self) -> list[str]:
        """What the agent's approval, or a connection's, can't mean, for each tool that it holds for."""
        found: dict[str, list[str]] = {}
        entries: tuple[object, ...] = tuple(self.tools)
        tools = [tool for tool in entries if isinstance(tool, Tool) and tool.approval is None and tool.effect is Effect.WRITE]
        for tool in tools:
            approval = self._gate(tool)
            for problem in approval.problems(tool.parameters, masked=tool.secret) if approval is not None else ():
                found.setdefault(problem, []).append(tool.name)
        return [f"agent {self.name!r}: approval: {problem} (tool {', '.join(names)})" for problem, names in found.items()]

    def tool(self, name: str) -> Tool | None:
        """Find a tool by the name a model or a record uses."""
        return next((entry for entry in self.offered if entry.name == name), None)
