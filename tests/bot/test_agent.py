"""Agents: every problem of one is listed, and models are found by name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import pytest

from bot import preflight
from bot.agent import Agent, gate_of
from bot.app import Bot
from bot.approvals import Approval, always
from bot.context import ToolContext
from bot.errors import BadApp, BadModel, BadTool, NotReady
from bot.models import open_model
from bot.models.direct import DirectModel
from bot.policies import never, once
from bot.routes import address, escalate
from bot.scripted import ScriptedModel
from bot.settings import Settings
from bot.tools import tool
from durable_core.model import INTERNAL
from tests.bot.session.actors import FakeChannel


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


async def note(ctx: ToolContext, text: str) -> None:
    """Note something."""


def test_an_agents_approval_is_checked_for_each_write_it_holds_for() -> None:
    tools = [
        tool(name="a")(note),
        tool(name="b", approval=never)(note),
        tool(name="c", effect="read")(note),
        tool(name="d")(note),
    ]
    agent = Agent("shop", "scripted", tools=tools, approval=Approval(ask="{sum}?", quorum=0))
    assert agent.problems() == (
        "agent 'shop': approval: ask='{sum}?' names 'sum', which is no parameter (tool a, d)",
        "agent 'shop': approval: quorum=0 must be at least 1 (tool a, d)",
    )
    held = Agent("shop", "scripted", tools=tools, approval=once())
    assert held.problems() == ()
    assert [found.approval for found in held.gated] == [Approval(when=once()), Approval(when=never), None, Approval(when=once())]


def test_of_several_defaults_the_first_that_is_given_holds() -> None:
    free = tool(name="a")(note)
    assert gate_of(free, None, never, always) == Approval(when=never)
    assert gate_of(free, None, None) is None
    assert gate_of(tool(name="b", approval=always)(note), never) is always


def test_a_request_that_would_be_put_on_no_channel_keeps_the_app_from_starting() -> None:
    gate = Approval(route=address("slack:v1:x"), on_expiry=escalate(to=address("mail:v1:y")))
    with pytest.raises(BadApp) as caught:
        Bot(agents=[Agent("shop", "scripted", tools=[tool(name="a", approval=gate)(note)])]).check()
    assert caught.value.problems == (
        "agent 'shop': tool 'a' asks at 'slack:v1:x', on no channel of this bot",
        "agent 'shop': tool 'a' asks at 'mail:v1:y', on no channel of this bot",
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("api", "the framework uses this name itself; choose another one"),  # its people would be those of API tokens
        (INTERNAL, "the framework uses this name itself; choose another one"),  # nothing would ever be sent
        ("a:b", "a name is 1 to 32 lower-case letters, digits, '_' or '-', a letter first"),
        ("", "a name is 1 to 32 lower-case letters, digits, '_' or '-', a letter first"),
    ],
)
def test_a_channel_has_a_name_of_its_own(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeChannel, "name", name)
    with pytest.raises(BadApp) as caught:
        Bot(agents=[Agent("shop", "scripted")], channels=[FakeChannel()]).check()
    assert caught.value.problems == (f"channel {name!r}: {said}",)
    monkeypatch.setattr(FakeChannel, "name", "our-chat_2")
    Bot(agents=[Agent("shop", "scripted")], channels=[FakeChannel()]).check()


async def opening() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"agents": Agent("a", "scripted")}, "write agents=[support], a list of Agent objects; a value of type Agent is given"),
        ({"agents": "a"}, "write agents=[support], a list of Agent objects; a value of type str is given"),
        ({"channels": [FakeChannel]}, "write channels=[Slack()], a list of Channel objects; the class FakeChannel is given"),
        ({"channels": ["slack"]}, "write channels=[Slack()], a list of Channel objects; a value of type str is given"),
        ({"deps": 5}, "deps= takes a function that opens what tools share; a value of type int is given"),
        (
            {"deps": opening},
            "deps= takes an async context manager: decorate this function with @asynccontextmanager, of contextlib",
        ),
    ],
)
def test_what_is_not_even_of_the_right_kind_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadApp) as caught:
        Bot(**{"agents": [Agent("a", "scripted")], **given})
    assert caught.value.problems == (said,)


@pytest.mark.parametrize("model", [None, DirectModel, 5])
def test_what_answers_nothing_is_no_model(model: Any) -> None:
    (problem,) = Agent("shop", model).problems()
    assert "a model is 'scripted', 'provider:name' or a Model" in problem


def test_a_provider_that_nobody_knows_keeps_a_bot_from_starting() -> None:
    with pytest.raises(NotReady, match="agent 'shop': no provider of models is called 'antropic'; write the model as in"):
        preflight.check_models(Bot(agents=[Agent("shop", "antropic:claude-sonnet-5")]))
    settings = Settings(Path(), "sqlite://", model="opnai:gpt")
    with pytest.raises(NotReady, match="MOORINGS_MODEL: no provider of models is called 'opnai'"):
        preflight.check_drivers(settings)
    preflight.check_models(Bot(agents=[Agent("shop", "scripted")]))


def anything(*_: object) -> bool:
    return True


def of_none() -> bool:
    return True


def of_one(_: object, more: str = "") -> bool:
    return not more


def given_more(function: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(function)
    def called(*given: object) -> bool:
        return function("more", *given)

    return called


class Rule:
    async def __call__(self, call: object, person: object = None) -> bool:
        return bool(call or person)

    @staticmethod
    def fixed(_call: object, *more: object, **named: object) -> bool:
        return not (more or named)


@given_more
def of_three(_more: str, _call: object, _person: object = None) -> bool:
    return True


@pytest.mark.parametrize(
    "fitting", [of_three, Rule(), Rule().fixed, partial(of_one, more="x"), lru_cache(of_one), lambda *_: True]
)
def test_whatever_can_be_called_is_taken(fitting: Any) -> None:
    """What a decorator adds to a call is nothing that its caller has to give."""
    for name in ("when", "ask", "by_text"):
        given: dict[str, Any] = {name: fitting}
        assert not any("is called with" in problem for problem in Approval(**given).problems([]))


@pytest.mark.parametrize(
    ("approval", "said"),
    [
        ({"by": of_none}, "by= is called with (call, person), which this function does not take"),
        ({"when": of_none}, "when= is called with (call), which this function does not take"),
        ({"ask": of_none}, "ask= is called with (call), which this function does not take"),
        ({"by_text": of_none}, "by_text= is called with (call), which this function does not take"),
        ({"expires": 5}, "expires= takes a timedelta, as in timedelta(hours=4), not 5"),
    ],
)
def test_a_function_that_could_not_be_called_is_told_at_once(approval: dict[str, Any], said: str) -> None:
    """Called, it would refuse everybody, and the log alone would say why."""
    with pytest.raises(BadTool, match=re.escape(said)):
        tool(name="a", approval=Approval(**approval))(note)
    fitting: dict[str, Any] = {name: anything for name in approval if name != "expires"}
    tool(name="a", approval=Approval(**fitting))(note)


def test_so_is_one_of_the_app_s() -> None:
    given: dict[str, Any] = {"access": of_one, "groups": {"staff": of_none}}
    with pytest.raises(BadApp) as caught:
        Bot(agents=[Agent("shop", "scripted")], **given).check()
    assert caught.value.problems == (
        "access= is called with (person, place, action), which this function does not take",
        "groups['staff'] is called with (person), which this function does not take",
    )
    fitting: dict[str, Any] = {"access": anything, "groups": {"staff": of_one}}
    Bot(agents=[Agent("shop", "scripted")], **fitting).check()
