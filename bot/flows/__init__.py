"""Workflows as tools: a call starts a run of its own, whose questions and progress show where the conversation is."""

from bot.flows.accounts import AccountRefused, connected
from bot.flows.origin import Conversation, conversation
from bot.flows.tools import workflow_tool

__all__ = ["AccountRefused", "Conversation", "connected", "conversation", "workflow_tool"]
