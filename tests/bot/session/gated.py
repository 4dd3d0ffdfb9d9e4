"""Tools behind every kind of approval, and the ways to ask for them.

What lives here: tools and short ways through a turn. What does not: tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bot.history import ResultItem, ResultStatus
from bot.tools import Tool
from durable_core import codec
from durable_core.model import AnswerReceipt, Prompt
from tests.bot.session.actors import calls
from tests.bot.session.kit import ALICE, Thread

Asked = tuple[str, dict[str, Any]]


async def ask(thread: Thread, *asked: Asked, tools: Sequence[Tool] | None = None, owner: str = "w1") -> None:
    """Have a turn of Alice's ask for calls; with tools, on a worker that has just these."""
    if tools is not None:
        thread.tools = tuple(tools)
        thread.hire(owner)
    thread.model.script.insert(0, calls(*asked))
    await thread.say("go")
    await thread.work()


async def prompts(thread: Thread) -> list[Prompt]:
    """Open prompts, in the order of their calls."""
    return sorted(await thread.store.open_prompts(thread.run_id), key=lambda prompt: prompt.call_id or "")


def body(prompt: Prompt) -> Any:
    return codec.decode(prompt.body)


async def answered(thread: Thread, option: str, who: Any = ALICE, **more: Any) -> AnswerReceipt:
    """Answer, and let a worker do what follows."""
    receipt = await thread.click(option, who, **more)
    await thread.work()
    return await thread.answers.result(receipt)


def results(thread: Thread, request: int = -1) -> list[tuple[ResultStatus, Any]]:
    """What the model was told of the calls of the turn before its last request."""
    history = thread.model.requests[request].history
    return [(item.status, item.content) for item in history if isinstance(item, ResultItem)]
