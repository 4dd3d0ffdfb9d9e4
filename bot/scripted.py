"""A model that follows a script: the demo and the tests drive every journey with it, by text.

What lives here: from the conversation so far to a reply, with no memory of its own. What does not: the tools it calls (demo.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from pydantic import JsonValue

from bot.display import show
from bot.errors import ModelFailed
from bot.history import AssistantItem, Item, NoteItem, ResultItem, ResultStatus, Usage, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall

MAX_SLOW_S: Final = 600.0
MAX_WORDS: Final = 2_000
MAX_FAILURES: Final = 100
WORD_PAUSE_S: Final = 0.05

_VERSION: Final = re.compile(r"\bYou are (v\d+) of this agent\b")
_MENTION: Final = re.compile(r"^(?:<@[^>\s]+>|@\S+)[\s,:]*")
_AMOUNT: Final = re.compile(r"[$€£]?(?P<amount>\d{1,9}(?:\.\d{1,2})?)")
_REFUND: Final = re.compile(r"refund\s+(?P<amount>\S+)\s+for\s+(?P<charge>\S+)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_WORDS: Final = ("harbour", "anchor", "rope", "tide", "keel", "mast", "sail", "wind", "buoy", "pier", "lantern", "chart")
_NOT_DONE: Final = {
    ResultStatus.FAILED: "failed",
    ResultStatus.REJECTED: "was not run: it was denied",
    ResultStatus.EXPIRED: "was not run: nobody answered in time",
    ResultStatus.CANCELLED: "was cancelled",
    ResultStatus.UNKNOWN: "was interrupted; whether it took effect is not known",
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do: say something, call a tool, or fail first."""

    text: str = ""
    call: tuple[str, dict[str, JsonValue]] | None = None
    failures: int = 0
    slowly: bool = False


class ScriptedModel:
    """The scripted model; ``pause`` waits between the words of ``stream``, so that tests need no clock."""

    def __init__(self, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._pause = pause

    @property
    def name(self) -> str:
        """Return the name agents ask for it by."""
        return "scripted"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Follow the script for the last thing a person said.

        Raises:
            ModelFailed: The script says that this attempt fails; retryable.
        """
        plan = plan_reply(request)
        if request.attempt <= plan.failures:
            raise ModelFailed(
                "scripted_failure", f"attempt {request.attempt} of {plan.failures} that fail by script", retryable=True
            )
        if plan.slowly:
            for word in re.findall(r"\S+\s*", plan.text):
                await on_text(word)
                await self._pause(WORD_PAUSE_S)
        elif plan.text:
            await on_text(plan.text)
        calls = () if plan.call is None else (RequestedCall(*plan.call, provider_id=f"scripted_{request.sequence}"),)
        return ModelReply(
            plan.text,
            calls,
            finish=Finish.TOOLS if calls else Finish.STOP,
            usage=Usage(sum(map(_words_in, request.history)), len(plan.text.split()) + len(calls)),
            model=self.name,
        )


def plan_reply(request: ModelRequest) -> _Plan:
    """Decide from the request alone, so that every attempt and every replica decides the same."""
    history = request.history
    last = next((place for place in range(len(history) - 1, -1, -1) if isinstance(history[place], UserItem)), None)
    if last is None:
        return _Plan("Nobody has said anything yet.")
    said = history[last]
    results = [item for item in history[last:] if isinstance(item, ResultItem)]
    if results:
        return _Plan("\n".join(_told(result) for result in results))
    assert isinstance(said, UserItem)  # noqa: S101 - narrows for the type checker what the search found
    count = sum(isinstance(item, UserItem) for item in history)
    version = _VERSION.search(request.instructions)
    plan = _for_command(
        _MENTION.sub("", said.text.strip()),
        said.author,
        count,
        request.attempt,
        version=version[1] if version is not None else "",
    )
    if plan.call is not None and all(spec.name != plan.call[0] for spec in request.tools):
        return _Plan(f"I would call {plan.call[0]}, but this agent has no such tool.")
    return plan


def _for_command(text: str, author: str, count: int, attempt: int, *, version: str) -> _Plan:
    command, _, rest = text.partition(" ")
    rest = rest.strip()
    match command.casefold().rstrip("!.,?"):
        case "hello":
            by = f", answered by {version}" if version else ""
            return _Plan(f"Hello {show(author)}! This is message {count} of this conversation{by}.")
        case "refund":
            return _refund(text)
        case "deploy":
            return _deploy(rest)
        case "issue":
            return _issue(rest)
        case "disconnect":
            return _Plan(call=("disconnect_account", {"account": rest or "tracker"}))
        case "slow":
            return _slow(rest)
        case "stream":
            return _stream(rest)
        case "fail":
            return _fail(rest, attempt)
        case _:
            return _Plan(f"You said: {text}\nThat makes {_messages(count)} so far.")


def _refund(text: str) -> _Plan:
    usage = "Say it like this: refund 20 for ch_1042"
    found = _REFUND.fullmatch(text)
    if found is None:
        return _Plan(f"I can't tell what to refund. {usage}")
    amount = _AMOUNT.fullmatch(found["amount"])
    if amount is None or not float(amount["amount"]):
        return _Plan(f"{show(found['amount'])} is not an amount I can refund. {usage}")
    return _Plan(call=("refund_charge", {"charge_id": found["charge"], "amount": amount["amount"]}))


def _deploy(rest: str) -> _Plan:
    if not rest:
        return _Plan("What shall I deploy? Say it like this: deploy api")
    return _Plan(call=("deploy", {"service": rest}))


def _issue(rest: str) -> _Plan:
    if not rest:
        return _Plan("What is the issue? Say it like this: issue Broken link")
    return _Plan(call=("open_issue", {"title": rest}))


def _slow(rest: str) -> _Plan:
    if not _NUMBER.fullmatch(rest):
        return _Plan("How many seconds? Say it like this: slow 20")
    return _Plan(call=("slow", {"seconds": min(float(rest), MAX_SLOW_S)}))


def _stream(rest: str) -> _Plan:
    if not rest.isdecimal() or not int(rest[:9]):
        return _Plan("How many words? Say it like this: stream 100")
    count = min(int(rest[:9]), MAX_WORDS)
    return _Plan(" ".join(islice(cycle(_WORDS), count)), slowly=True)


def _fail(rest: str, attempt: int) -> _Plan:
    if not rest.isdecimal():
        return _Plan("How many times? Say it like this: fail 2")
    failures = min(int(rest[:9]), MAX_FAILURES)
    return _Plan(f"Answered at attempt {attempt}.", failures=failures)


def _told(result: ResultItem) -> str:
    """Say how a call ended, no better than it did."""
    detail = result.content if isinstance(result.content, str) else show(result.content)
    if result.status is ResultStatus.COMPLETED:
        return detail or f"{result.tool} is done."
    ending = f"{result.tool} {_NOT_DONE[result.status]}"
    return f"{ending}. {detail}" if detail and result.content is not None else f"{ending}."


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _words_in(item: Item) -> int:
    match item:
        case UserItem() | AssistantItem() | NoteItem():
            return len(item.text.split())
        case ResultItem():
            return len(str(item.content).split())
