"""Agents, tools and approvals: what an author writes and runs.

What lives here: the names an author imports. What does not: their modules, loaded when a name is first asked for, since the
command checks for packages that would shadow ours before it imports any.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.access import Action, Allow, Decision, Deny, members_only
    from bot.agent import Agent
    from bot.app import Bot
    from bot.approvals import Approval, ApprovalRecord, ToolCall, always, over
    from bot.context import ToolContext
    from bot.errors import BadApp, BotError, ModelFailed
    from bot.model import Model, ModelReply, ModelRequest, RequestedCall
    from bot.principal import Principal
    from bot.settings import Settings
    from bot.tools import Tool, tool
    from bot.turn.state import Limits

_HOMES = {
    "bot.access": ("Action", "Allow", "Decision", "Deny", "members_only"),
    "bot.agent": ("Agent",),
    "bot.app": ("Bot",),
    "bot.approvals": ("Approval", "ApprovalRecord", "ToolCall", "always", "over"),
    "bot.context": ("ToolContext",),
    "bot.errors": ("BadApp", "BotError", "ModelFailed"),
    "bot.model": ("Model", "ModelReply", "ModelRequest", "RequestedCall"),
    "bot.principal": ("Principal",),
    "bot.settings": ("Settings",),
    "bot.tools": ("Tool", "tool"),
    "bot.turn.state": ("Limits",),
}

__all__ = [
    "Action",
    "Agent",
    "Allow",
    "Approval",
    "ApprovalRecord",
    "BadApp",
    "Bot",
    "BotError",
    "Decision",
    "Deny",
    "Limits",
    "Model",
    "ModelFailed",
    "ModelReply",
    "ModelRequest",
    "Principal",
    "RequestedCall",
    "Settings",
    "Tool",
    "ToolCall",
    "ToolContext",
    "always",
    "members_only",
    "over",
    "tool",
]


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
