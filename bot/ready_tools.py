"""Tools that come with the framework: asking the person, waiting, saying nothing, whose calls run no body, and disconnecting.

What lives here: what a model is told of them, and what a call of each waits for. What does not: the waiting (bot/turn/), accounts
(bot/connections/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from bot.context import ToolContext
from bot.policies import never
from bot.tools import Tool, tool
from bot.turn.questions import Pause, Question, Silence

if TYPE_CHECKING:
    from bot.connections.connections import Disconnected

MAX_OPTIONS: Final = 50
MAX_SLEEP_SECONDS: Final = 30 * 24 * 60 * 60

_Option = Annotated[str, Field(pattern=r"\S", max_length=75)]
"""As long as a button may be."""


def _no_body(name: str) -> RuntimeError:
    return RuntimeError(f"{name} has no body: a session waits in place of a run")


@tool(effect="read", name="ask_question")
async def _ask_question(
    ctx: ToolContext[Any],
    text: Annotated[str, Field(pattern=r"\S", max_length=3_000)],
    options: Annotated[list[_Option], Field(max_length=MAX_OPTIONS)] | None = None,
    allow_freeform: bool = True,  # noqa: FBT001, FBT002 - a model gives arguments by name
) -> dict[str, str]:
    """Ask the person you work for a question, and wait for the answer, however long it takes.

    Args:
        ctx: The call.
        text: The question.
        options: Answers to choose from, if there are some; short and all different.
        allow_freeform: Whether they may also answer in their own words.
    """
    del ctx, text, options, allow_freeform
    raise _no_body("ask_question")


@tool(effect="read", name="sleep")
async def _sleep(
    ctx: ToolContext[Any],
    seconds: Annotated[float, Field(ge=0, le=MAX_SLEEP_SECONDS)] = 0,
    minutes: Annotated[float, Field(ge=0, le=MAX_SLEEP_SECONDS / 60)] = 0,
) -> str:
    """Wait for a time before you go on. A new message of the person you work for wakes you early.

    Args:
        ctx: The call.
        seconds: How long.
        minutes: How long, in minutes; added to the seconds.
    """
    del ctx, seconds, minutes
    raise _no_body("sleep")


@tool(effect="read", name="no_reply")
async def _no_reply(ctx: ToolContext[Any]) -> str:
    """End your turn without a message, where none is wanted. Call no other tool beside it."""
    del ctx
    raise _no_body("no_reply")


@tool(effect="write", idempotent=True, approval=never, name="disconnect_account")
async def _disconnect_account(ctx: ToolContext[Any], account: Annotated[str, Field(min_length=1, max_length=100)]) -> str:
    """Disconnect an account of the person you work for: it is revoked at its service and forgotten here.

    Args:
        ctx: The call.
        account: The account's service, as the person calls it.
    """
    return _left(await ctx.disconnect(account), ctx.principal.name)


def _left(left: Disconnected, who: str) -> str:
    """Say what came of it, no better than it did."""
    title = left.title
    if not left.found:
        return f"{who} has no account connected at {title}, so there is nothing to disconnect."
    if left.revoked:
        return f"Disconnected {title}: {who}'s account was revoked there and forgotten here."
    gone = f"Forgot {who}'s account at {title} here."
    if left.revoked is None:
        return f"{gone} {title} has no way to revoke it from here; they can do so in its own settings."
    return f"{gone} It could not be revoked at {title}; they can do so in its own settings."


def _question(arguments: Mapping[str, Any]) -> Question:
    options = tuple(dict.fromkeys(arguments["options"] or ()))
    return Question(text=arguments["text"], options=options, allow_freeform=arguments["allow_freeform"])


def _pause(arguments: Mapping[str, Any]) -> Pause:
    return Pause(ms=int((arguments["seconds"] + arguments["minutes"] * 60) * 1000))


ask_question: Final[Tool] = replace(_ask_question, waits=_question)
"""Asks the person; the result is who answered, the option they chose, and their words."""
sleep: Final[Tool] = replace(_sleep, waits=_pause)
"""Waits on a timer that outlives the process; nothing is held meanwhile."""
no_reply: Final[Tool] = replace(_no_reply, waits=lambda _: Silence())
"""Ends the turn without a message."""
disconnect_account: Final[Tool] = _disconnect_account
"""Revokes and forgets an account that the person has connected, of any of the bot's connections."""
