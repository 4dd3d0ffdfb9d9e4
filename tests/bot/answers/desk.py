"""One app on one store, driven by hand, into which people answer over the console, Slack and the HTTP API.

What lives here: the app, ways in, beginning sessions and answering in them. What does not: what is expected (test_table.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from bot.agent import Agent
from bot.answerers import group
from bot.app import Bot
from bot.approvals import Approval, ToolCall
from bot.buttons import button_value
from bot.context import ToolContext
from bot.history import AssistantItem, Usage, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.operate import actions
from bot.principal import Principal
from bot.runtime import CONSOLE_FILE, Runtime, open_runtime
from bot.session_api import Response
from bot.settings import Role, Settings
from bot.telling import explain
from bot.tools import Tool, tool
from channels.console import ConsolePlatform
from channels.console.channel import ADDRESS
from channels.events import Author, Place, Standing
from channels.outbound import Delivery, MessageRef
from channels.slack import Slack
from channels.slack.address import SlackAddress
from durable_core.clock import ManualClock
from durable_core.errors import NotFound
from durable_core.model import Prompt
from durable_core.store import Store
from tests.channels.slack import payloads
from tests.channels.slack.fake import BOT, CHANNEL, NOW, TEAM

START: Final = 1_700_000_000_000
WAYS: Final = ("console", "slack", "api")
FORGED: Final = "prm_" + "a" * 32


def named(principal: str) -> str:
    """The plain name of somebody, over whatever channel they come."""
    return principal.rpartition(":")[2].lower().removeprefix("u")


def everywhere(console: str, *names: str) -> list[str]:
    """Name people as each way in does; `console` is the console's own id."""
    return [id_ for name in names for id_ in (f"console:{console}:{name}", f"slack:{TEAM}:U{name.upper()}", f"api:{name}")]


def by_function(call: ToolCall, who: Principal) -> bool:
    return named(who.id) == "farah"


def in_finance(who: Principal) -> bool:
    return named(who.id) == "farah"


def behind(name: str, approval: Approval) -> Tool:
    @tool(name=name, approval=approval, idempotent=True)
    async def run(ctx: ToolContext[list[str]]) -> str:
        """Do it."""
        ctx.deps.append(ctx.session_id)
        return "done"

    return run


POLICIES: Final = ("requester", "listed", "group", "function", "quorum", "own")


def policies(console: str) -> dict[str, Approval]:
    return {
        "requester": Approval(),
        "listed": Approval(by=everywhere(console, "farah")),
        "group": Approval(by=group("finance")),
        "function": Approval(by=by_function),
        "quorum": Approval(by=everywhere(console, "farah", "bob"), quorum=2),
        "own": Approval(by=everywhere(console, "farah", "alice"), self_ok=True),
    }


class Asks:
    """A model that asks once for the tool that was named, then has nothing to add."""

    name = "asks"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        said = [item.text.split()[-1] for item in request.history if isinstance(item, UserItem) and item.text]
        wanted = [word for word in said if word in POLICIES]
        if wanted and not any(isinstance(item, AssistantItem) for item in request.history):
            return ModelReply("", (RequestedCall(wanted[0], {}, provider_id="p"),), finish=Finish.TOOLS, usage=Usage(1, 1))
        return ModelReply("ok", usage=Usage(1, 1))


class QuietSlack(Slack):
    """Slack as it verifies and reads what comes in; what goes out is taken, and everybody is a member."""

    async def send(self, delivery: Delivery) -> MessageRef:
        return MessageRef("slack", delivery.address, id=delivery.id)

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        return ref

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        return None

    async def look_up(self, address: str, author: Author, place: Place, *, fresh: bool = False) -> tuple[Author, Place]:
        return replace(author, standing=Standing.MEMBER), place


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one answer, for the person."""

    status: str
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class Session:
    """One session, and how to reach it."""

    way: str
    policy: str
    run_id: str = ""
    thread: str = ""
    """The console's thread, or the ts of the one on Slack."""
    prompt: Prompt | None = None


@dataclass(slots=True, kw_only=True)
class Desk:
    """The app as one process runs it; it may be started anew."""

    runtime: Runtime
    clock: ManualClock
    ran: list[str]
    """Sessions whose tool ran, once for each run."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def store(self) -> Store:
        return self.runtime.store

    async def begin(self, way: str, policy: str) -> Session:
        """Have Alice ask for what a policy guards."""
        session = Session(way=way, policy=policy)
        number = next(self.numbers)
        match way:
            case "console":
                posted = await self._board().post(None, "alice", policy, f"c{number}")
                session.thread = posted["thread_id"]
                run = await self.store.run_at("console", ADDRESS.encode(session.thread))
                assert run is not None
                session.run_id = run.run_id
            case "slack":
                session.thread = f"17{number:08d}.000100"
                await self._slack(payloads.mention(f"<@{BOT}> {policy}", ts=session.thread), number)
                run = await self.store.run_at("slack", self._address(session))
                assert run is not None
                session.run_id = run.run_id
            case _:
                alice = person("alice")
                session.run_id = (
                    await self.runtime.sessions.create(alice, message=policy, agent=None, metadata=None, key=None)
                ).session_id
        return session

    async def say(self, session: Session, who: str, text: str) -> None:
        """Write into a session, as far as somebody can."""
        number = next(self.numbers)
        match session.way:
            case "console":
                await self._board().post(session.thread, who, text, f"c{number}")
            case "slack":
                about = {"user": f"U{who.upper()}", "ts": f"18{number:08d}.000100", "thread_ts": session.thread}
                await self._slack(payloads.message(text, **about), number)
            case _:
                with contextlib.suppress(NotFound):
                    await self.runtime.sessions.message(person(who), session.run_id, message=text, turn_policy=None, key=None)

    async def asked(self, session: Session) -> None:
        """Learn the open prompt of a session."""
        (session.prompt,) = await self.store.open_prompts(session.run_id)

    async def answer(self, session: Session, who: str, option: str = "approve", *, key: str | None = None) -> Seen:
        """Press a button, or call the API."""
        prompt_id = session.prompt.prompt_id if session.prompt is not None else FORGED
        key = key or f"k{next(self.numbers)}"
        match session.way:
            case "console":
                shown = await self.runtime.platform.messages(session.thread, viewer=who)  # type: ignore[union-attr]
                card = next((one.id for one in shown if one.card is not None), "none")
                value = button_value(prompt_id, option)
                return _seen(await self._board().click(session.thread, card, who, value, key, fields={}))
            case "slack":
                pressed = payloads.click(button_value(prompt_id, option))
                pressed["user"] = {**pressed["user"], "id": f"U{who.upper()}", "name": who}
                pressed["container"] = {**pressed["container"], "thread_ts": session.thread, "message_ts": f"19{key:>0}"}
                pressed["container"]["message_ts"] = "1799999001.000100"
                pressed["actions"][0]["action_ts"] = f"{int.from_bytes(key.encode(), 'big') % 10**10:010d}.000100"
                pressed["message"] = {**pressed["message"], "thread_ts": session.thread}
                taken = await self.runtime.take("slack", payloads.signed(payloads.as_form(pressed)))
                (result,) = taken.clicks
                if result.receipt is None:
                    return Seen(result.status, result.reason or "")
                decided = await self.runtime.answers.result(result.receipt)
                return Seen(decided.status.value, explain(decided) or "")
            case _:
                response = Response(prompt_id, option_id=option)
                try:
                    (told,) = await self.runtime.sessions.respond(person(who), session.run_id, responses=[response], key=key)
                except NotFound:
                    return Seen("not_found")
                return Seen(told.status.value, told.reason or "")

    async def cancel(self, session: Session) -> None:
        await actions.cancel(self.store, session.run_id)

    async def work(self) -> None:
        """Do all that is due."""
        await self.runtime.run_due()

    async def later(self, days: int) -> None:
        self.clock.advance(timedelta(days=days))

    async def _slack(self, event: dict[str, Any], number: int) -> None:
        body = payloads.as_json(payloads.envelope(event, event_id=f"Ev{number}"))
        assert (await self.runtime.ingress("slack", payloads.signed(body))).status == 200

    def _address(self, session: Session) -> str:
        return SlackAddress("", TEAM, CHANNEL, session.thread).encode()

    def _board(self) -> Any:
        assert self.runtime.console is not None
        return self.runtime.console


def person(name: str) -> Principal:
    return Principal(f"api:{name}", name, Standing.MEMBER, channel="api")


def _seen(answer: Mapping[str, Any]) -> Seen:
    return Seen(answer["status"], answer.get("reason") or "")


@asynccontextmanager
async def opened(settings: Settings, clock: ManualClock, ran: list[str]) -> AsyncIterator[Desk]:
    """Start a process of the app. Answers are decided at once; sessions wait for `work`."""

    @asynccontextmanager
    async def deps() -> AsyncIterator[list[str]]:
        yield ran

    slack = QuietSlack(bot_token="xoxb-test", signing_secret=payloads.SECRET, now=lambda: NOW)
    platform = ConsolePlatform(settings.data / CONSOLE_FILE)
    tools = [behind(name, approval) for name, approval in policies(await platform.platform_id()).items()]
    await platform.close()
    agent = Agent("support", Asks(), tools=tools)
    bot = Bot(agents=[agent], channels=[slack], deps=deps, groups={"finance": in_finance})
    runtime = await open_runtime(bot, settings, role=Role.WEB, console=True, clock=clock)
    judge = asyncio.create_task(_judge(runtime))
    try:
        yield Desk(runtime=runtime, clock=clock, ran=ran)
    finally:
        judge.cancel()
        await asyncio.wait({judge})
        await runtime.close()


async def _judge(runtime: Runtime) -> None:
    """Decide answers as they come, as any worker does, without a run's lease."""
    changed = asyncio.Event()
    unwatch: Callable[[], None] = runtime.store.watch(lambda _: changed.set())
    try:
        while True:
            changed.clear()
            for interaction in await runtime.store.take_interactions("judge", limit=10, lease_ms=60_000):
                await runtime.answers.evaluate(interaction)
            await changed.wait()
    finally:
        unwatch()
