"""An agent ready to run: its model opened, its tools by name.

What lives here: what is made once at start. What does not: the author's value (bot/agent.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.agent import Agent
from bot.model import Model, ToolSpec
from bot.models import open_model
from bot.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyAgent:
    """One agent as the session runner needs it."""

    name: str
    model: Model
    instructions: str
    tools: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]


def ready(agent: Agent, *, model: str | Model | None = None) -> ReadyAgent:
    """Open an agent's model, or another one in its place. Raises: BadModel."""
    return ReadyAgent(
        name=agent.name,
        model=open_model(model if model is not None else agent.model),
        instructions=agent.instructions,
        tools={tool.name: tool for tool in agent.gated},
        specs=tuple(tool.spec for tool in agent.offered),
    )
