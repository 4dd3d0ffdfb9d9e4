"""The bot under measurement: a model that answers at once, a tool that says when it started, one that takes long.

What lives here: the app that `start` loads. What does not: measuring.
"""

from __future__ import annotations

import asyncio
import os
import time

from bot.agent import Agent
from bot.app import Bot
from bot.approvals import Approval, always
from bot.context import ToolContext
from bot.history import ResultItem, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.tools import tool
from channels.slack.channel import Slack
from channels.slack.settings import SECRET

VOTERS = 21
"""How many have to agree to `agree`."""
_ANSWER = "Thank you, that is noted. " * 8


class InstantModel:
    """Answers by the last word of a person: `mark`, `agree` and `wait` call that tool, anything else gets a sentence."""

    @property
    def name(self) -> str:
        """How replies name it."""
        return "instant"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Answer without a pause, at a cost that doesn't depend on the history."""
        last = request.history[-1]
        if isinstance(last, ResultItem):
            return await _say(str(last.content), on_text)
        if isinstance(last, UserItem) and last.text in {"mark", "agree", "wait"}:
            return ModelReply("", (RequestedCall(last.text, {}, provider_id=f"call_{request.sequence}"),), finish=Finish.TOOLS)
        return await _say(_ANSWER, on_text)


async def _say(text: str, on_text: OnText) -> ModelReply:
    await on_text(text)
    return ModelReply(text, finish=Finish.STOP, model="instant")


@tool(effect="write", approval=always)
async def mark(ctx: ToolContext[None]) -> str:
    """Say when it started."""
    now = time.monotonic_ns()
    print(f"mark {ctx.session_id} {now}", flush=True)
    return "done"


@tool(effect="write", approval=Approval(by=[f"api:v{number}" for number in range(VOTERS)], quorum=VOTERS))
async def agree(ctx: ToolContext[None]) -> str:
    """Run once everybody has said yes."""
    return f"done, {ctx.call_id}"


@tool(effect="read")
async def wait(ctx: ToolContext[None]) -> str:
    """Say when it started, then take a minute."""
    print(f"wait {ctx.session_id} {time.monotonic_ns()}", flush=True)
    await asyncio.sleep(60)
    return "done"


bot = Bot(
    agents=[Agent("bench", InstantModel(), instructions="Be brief.", tools=[mark, agree, wait])],
    channels=[Slack()] if os.environ.get(SECRET) else [],
)
