"""Agents: every problem of one is listed, and models are found by name."""

from __future__ import annotations

import pytest

from bot.agent import Agent
from bot.context import ToolContext
from bot.errors import BadModel
from bot.models import open_model
from bot.models.direct import DirectModel
from bot.scripted import ScriptedModel
from bot.tools import tool


@tool
async def look(ctx: ToolContext) -> None:
    """Look."""


def test_all_problems_are_listed_together() -> None:
    agent = Agent("Sup port", "gpt", tools=[look, look, print])  # type: ignore[list-item]
    problems = agent.problems()
    assert len(problems) == 4
    assert "a name is" in problems[0]
    assert "'provider:name'" in problems[1]
    assert "@tool" in problems[2]
    assert "2 tools are named 'look'" in problems[3]
    assert Agent("support", "scripted", tools=[look]).problems() == ()


def test_models_are_found_by_name_without_connecting() -> None:
    own = ScriptedModel()
    assert open_model(own) is own
    assert isinstance(open_model("scripted"), ScriptedModel)
    direct = open_model("anthropic:claude-sonnet-5")
    assert isinstance(direct, DirectModel)
    assert direct.name == "anthropic:claude-sonnet-5"


@pytest.mark.parametrize("name", ["", "gpt", ":x", "openai:"])
def test_a_name_of_another_shape_is_refused(name: str) -> None:
    with pytest.raises(BadModel):
        open_model(name)
