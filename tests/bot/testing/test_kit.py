"""The kit as an author meets it: its example runs, and importing it costs little.

What lives here: what is promised of the kit as a whole. What does not: the simulated Slack, running bots.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import Any

from bot import Agent, Bot, ToolContext, always, tool
from bot.testing import FakeSlack, running
from channels.slack import Slack


@tool(approval=always)
async def refund_charge(ctx: ToolContext[None], charge_id: str, amount: str) -> str:
    """Refund a charge."""
    return f"Refunded {amount} for {charge_id}."


async def test_the_example_of_the_simulated_slack_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", textwrap.dedent(FakeSlack.__doc__ or ""), re.DOTALL)
    code = "async def example():\n" + textwrap.indent(textwrap.dedent(example), "    ")
    assert len(code.splitlines()) < 15
    agent = Agent("support", "scripted", instructions="", tools=[refund_charge])
    names: dict[str, Any] = {"FakeSlack": FakeSlack, "Slack": Slack, "Bot": Bot, "running": running, "agent": agent}
    exec(compile(code, "FakeSlack", "exec"), names)  # noqa: S102 - our own example
    await names["example"]()


def test_the_simulated_slack_needs_neither_engine_nor_sdk() -> None:
    code = (
        "import sys, bot.testing.slack; print([n for n in ('sqlalchemy', 'pydantic', 'slack_sdk', 'pytest') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
