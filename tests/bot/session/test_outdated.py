"""Approvals that wait for a tool that has changed by the next start are named in the log."""

from __future__ import annotations

import pytest

from bot.agent import Agent
from bot.approvals import always
from bot.context import ToolContext
from bot.outdated import outdated, warn_of_outdated
from bot.session.ready import ReadyAgent, ready
from bot.tools import Tool, tool
from tests.bot.session.actors import Log
from tests.bot.session.gated import ask
from tests.bot.session.kit import Thread


@tool(approval=always)
async def count(ctx: ToolContext[Log], amount: int) -> int:
    """Count."""
    return amount


@tool(name="count", approval=always)
async def newer(ctx: ToolContext[Log], amount: int, *, twice: bool = False) -> int:
    """Count."""
    return amount * (1 + twice)


def agents(*tools: Tool, name: str = "support") -> dict[str, ReadyAgent]:
    return {name: ready(Agent(name, "scripted", tools=tools))}


async def test_only_those_whose_tool_is_another_one_are_named(thread: Thread, caplog: pytest.LogCaptureFixture) -> None:
    await ask(thread, ("count", {"amount": 7}), tools=(count,))
    prompt = await thread.prompt()
    assert await outdated(thread.store, agents(count)) == []
    assert await outdated(thread.store, agents(newer, name="another")) == [], "not this app's to say"
    assert await outdated(thread.store, agents(newer)) == [prompt.prompt_id]
    assert await outdated(thread.store, agents()) == [prompt.prompt_id], "the tool is gone"
    await warn_of_outdated(thread.store, agents(count))
    assert not caplog.messages
    await warn_of_outdated(thread.store, agents(newer))
    assert prompt.prompt_id in caplog.text
    assert "1 approval" in caplog.text
