"""An agent: a name, a model, instructions and tools.

What lives here: the value an author writes. What does not: running it (turn.py), putting agents together (app.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from bot.errors import BadModel
from bot.model import Model
from bot.models import open_model
from bot.tools import Tool

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers in a conversation.

    ``model`` is ``scripted``, a provider's model as ``provider:name``, or an object. The name is recorded with every
    session: keep it when the variable is renamed.
    """

    name: str
    model: str | Model
    _: KW_ONLY
    instructions: str = ""
    tools: Sequence[Tool] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tuple(self.tools))

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
        names = Counter(entry.name for entry in entries if isinstance(entry, Tool))
        found += [f"agent {self.name!r}: {count} tools are named {name!r}" for name, count in names.items() if count > 1]
        return tuple(found)

    def tool(self, name: str) -> Tool | None:
        """Find a tool by the name a model or a record uses."""
        return next((entry for entry in self.tools if entry.name == name), None)
