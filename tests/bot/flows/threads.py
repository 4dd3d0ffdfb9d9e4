"""A Slack thread whose agent has workflows as tools, and looking at what became of their runs.

What lives here: opening it, a model that does what it is told, reading rows and events. What does not: expectations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from bot.agent import Agent
from bot.app import Bot
from bot.demo import deploy
from bot.history import ResultItem, Usage, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.principal import Principal
from bot.runtime import Runtime
from bot.settings import Settings
from bot.testing import FakeSlack, running
from bot.testing.app import App
from bot.testing.slack import Said
from bot.testing.slack.values import Message
from channels.events import Standing
from channels.slack import Slack
from durable_core.streams import EventView

PARKED = "SELECT run_id FROM moor_run WHERE kind = 'workflow' AND owner IS NULL AND wake_at > last_at AND status = 'open'"
ENDED = "SELECT run_id FROM moor_run WHERE kind = 'workflow' AND status = 'ended'"
FLOWS = "SELECT run_id FROM moor_run WHERE kind = 'workflow'"
ENDS = {"turn.completed", "turn.failed", "turn.cancelled"}


class Obeying:
    """Calls what it is told to (`first a + second b`), says what came of it, echoes the rest."""

    name = "obeying"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        last = max(place for place, item in enumerate(request.history) if isinstance(item, UserItem))
        said = request.history[last]
        assert isinstance(said, UserItem)
        results = [item for item in request.history[last:] if isinstance(item, ResultItem)]
        known = {spec.name for spec in request.tools}
        wanted = [one.split() for one in said.text.split("> ")[-1].split(" + ")]
        if not results and all(words and words[0] in known for words in wanted):
            calls = tuple(RequestedCall(words[0], {"service": " ".join(words[1:])}) for words in wanted)
            return ModelReply("", calls, finish=Finish.TOOLS, usage=Usage(1, 1), model=self.name)
        told = "; ".join(f"{one.tool}: {one.status.value}: {one.content}" for one in results)
        earlier = [item for item in request.history[:last] if isinstance(item, ResultItem)]
        before = f" (before: {earlier[-1].status.value}: {earlier[-1].content})" if earlier else ""
        return ModelReply(told or f"You said: {said.text}{before}", usage=Usage(1, 1), model=self.name)


@asynccontextmanager
async def thread(
    *tools: Any,
    model: Any = "scripted",
    slack: FakeSlack | None = None,
    data: Path | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> AsyncIterator[tuple[FakeSlack, App]]:
    """Run a bot with these tools; with `slack` and `data` it goes on where another one stopped."""
    if slack is None:
        given: dict[str, Any] = {"model": model, "data": data, "settings": settings, **options}
        async with FakeSlack() as fresh, thread(*tools, slack=fresh, **given) as opened:
            yield opened
        return
    agent = Agent("support", model, tools=tools or [deploy])
    home = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
    bot = Bot(agents=[agent], channels=[home], **options)
    async with running(bot, slack=slack, clock=slack.clock, data=data, settings=settings) as app:
        yield slack, app


class Running(Protocol):
    """Something with a running bot in it."""

    @property
    def runtime(self) -> Runtime: ...


async def until(app: Running, sql: str) -> list[str]:
    """Wait until a statement finds something; the store tells of changes."""
    changed = asyncio.Event()
    unwatch = app.runtime.store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(10):
            while not (found := await app.runtime.store.rows(sql, {})):
                await changed.wait()
                changed.clear()
        return [str(row[0]) for row in found]
    finally:
        unwatch()


async def session_of(app: App) -> tuple[str, Principal]:
    """Return the one session and who began it."""
    [[session, creator]] = await app.runtime.store.rows("SELECT run_id, creator FROM moor_run WHERE kind = 'session'", {})
    return str(session), Principal(str(creator), "Alice", Standing.MEMBER, frozenset(), "slack")


async def events(app: App) -> list[EventView]:
    session, _ = await session_of(app)
    return await app.runtime.streams.read(session, start=0)


async def posted(slack: FakeSlack, said: Said, words: str) -> Message:
    """Wait for a message of the bot with these words."""
    return (await slack.until(lambda: [one for one in slack.replies(said) if words in one.words]))[0]


def check_balance(seen: Sequence[EventView]) -> None:
    """Whatever was begun or asked for is told to be over, before its turn is."""
    open_: Counter[str] = Counter()
    for event in seen:
        match event.type:
            case "task.started":
                open_[event.data["run_id"]] += 1
            case "task.settled":
                open_[event.data["run_id"]] -= 1
            case "input.requested":
                open_.update(request["request_id"] for request in event.data["requests"])
            case "input.resolved":
                open_.subtract(resolution["request_id"] for resolution in event.data["resolutions"])
            case _ if event.type in ENDS:
                assert not +open_, event.type
        assert not -open_, event.type
    assert not +open_


async def all_settled(app: App) -> None:
    """Nothing that came in waits for anything."""
    left = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM moor_admission WHERE outcome IS NULL)"
    await until(app, left)
