"""Agents, tools and approvals: what an author writes and runs.

What lives here: the names an author imports, each loaded when it is first used, so that a command starts quickly. What does
not: anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.access import Action, Allow, Deny
    from bot.agent import Agent
    from bot.answerers import group
    from bot.app import Bot
    from bot.approvals import Approval, ApprovalRecord, ToolCall, always, over
    from bot.connections.connection import OAuthConnection
    from bot.connections.errors import Unauthorized
    from bot.context import ToolContext
    from bot.environment import env
    from bot.errors import BotError, ModelFailed
    from bot.masks import Secret
    from bot.model import Model, ModelReply, ModelRequest, RequestedCall
    from bot.policies import auto, deny, never, once
    from bot.principal import Principal
    from bot.routes import address, escalate
    from bot.scripted import ScriptedModel
    from bot.tools import Tool, tool
    from bot.turn.state import Limits

__all__ = [
    "Action",
    "Agent",
    "Allow",
    "Approval",
    "ApprovalRecord",
    "Bot",
    "BotError",
    "Deny",
    "Limits",
    "Model",
    "ModelFailed",
    "ModelReply",
    "ModelRequest",
    "OAuthConnection",
    "Principal",
    "RequestedCall",
    "ScriptedModel",
    "Secret",
    "Tool",
    "ToolCall",
    "ToolContext",
    "Unauthorized",
    "address",
    "always",
    "auto",
    "deny",
    "env",
    "escalate",
    "group",
    "never",
    "once",
    "over",
    "tool",
]

_HOMES = {
    "access": ("Action", "Allow", "Deny"),
    "agent": ("Agent",),
    "answerers": ("group",),
    "app": ("Bot",),
    "approvals": ("Approval", "ApprovalRecord", "ToolCall", "always", "over"),
    "connections.connection": ("OAuthConnection",),
    "connections.errors": ("Unauthorized",),
    "context": ("ToolContext",),
    "environment": ("env",),
    "errors": ("BotError", "ModelFailed"),
    "masks": ("Secret",),
    "model": ("Model", "ModelReply", "ModelRequest", "RequestedCall"),
    "policies": ("auto", "deny", "never", "once"),
    "principal": ("Principal",),
    "routes": ("address", "escalate"),
    "scripted": ("ScriptedModel",),
    "tools": ("Tool", "tool"),
    "turn.state": ("Limits",),
}


def __getattr__(name: str) -> Any:
    """Load an exported name from its home, once."""
    from importlib import import_module  # noqa: PLC0415 - only where a name is asked for

    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(f"bot.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'bot' has no attribute {name!r}")
