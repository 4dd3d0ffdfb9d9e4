"""Actors of the session tests: a model that is told what to answer, a platform that records, tools that note their runs.

What lives here: fakes with behaviour. What does not: the thread that puts them on a store (kit.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import JsonValue

from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.history import Usage
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.principal import Principal
from bot.tools import Tool, tool
from channels.cards import Card
from channels.contract import Capabilities, Channel, Verified
from channels.events import Author, Click, Ingress, Message, Place, Standing
from channels.http import WebhookRequest
from channels.outbound import Delivery, MessageRef, Outbound
from durable_core import codec

PLACE = Place("channel")
CHANNEL = "fake"
ADDRESS = "fake:v1:thread"


class Killed(BaseException):
    """The worker dies here: nothing is released, nothing is written any more."""


def die() -> None:
    raise Killed


Turn = ModelReply | BaseException | Callable[[ModelRequest, OnText], Awaitable[ModelReply]]


def says(text: str, *, tokens: int = 1) -> ModelReply:
    return ModelReply(text, usage=Usage(tokens, 1), model="told")


def calls(*asked: tuple[str, dict[str, JsonValue] | str], text: str = "", provider_id: str = "p") -> ModelReply:
    wanted = tuple(RequestedCall(name, arguments, provider_id=provider_id) for name, arguments in asked)
    return ModelReply(text, wanted, finish=Finish.TOOLS, usage=Usage(1, 1), model="told")


class ToldModel:
    """Answers what it was told, in order; records what it was asked."""

    name = "told"

    def __init__(self) -> None:
        self.script: list[Turn] = []
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self.requests.append(request)
        if not self.script:
            return says(f"answer {len(self.requests)}")
        turn = self.script.pop(0)
        if isinstance(turn, BaseException):
            raise turn
        if isinstance(turn, ModelReply):
            if turn.text:
                await on_text(turn.text)
            return turn
        return await turn(request, on_text)


@dataclass
class Held:
    """A place in a model or a tool that waits until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.go.wait()

    def model(self, reply: ModelReply, *, shown: str = "") -> Turn:
        async def answer(request: ModelRequest, on_text: OnText) -> ModelReply:
            if shown:
                await on_text(shown)
            await self.wait()
            return reply

        return answer


@dataclass
class Log:
    """What the tools did: (tool, attempt, key, approver) for each run of a body, and what each waits for or fails with."""

    runs: list[tuple[str, int, str, str | None]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    holds: dict[str, Held] = field(default_factory=dict)
    raises: dict[str, BaseException] = field(default_factory=dict)
    accounts: object = None
    """Those that tools act with."""

    async def run(self, name: str, ctx: ToolContext[Log]) -> None:
        self.runs.append((name, ctx.attempt, ctx.idempotency_key, ctx.approval.responder.id if ctx.approval else None))
        if name in self.holds:
            await self.holds[name].wait()
        if name in self.raises:
            raise self.raises[name]
        self.ended.append(name)

    def names(self) -> list[str]:
        return [name for name, *_ in self.runs]


@tool(effect="read")
async def look(ctx: ToolContext[Log], at: str = "x") -> str:
    """Look at something."""
    await ctx.deps.run("look", ctx)
    return f"saw {at}"


@tool(effect="write")
async def put(ctx: ToolContext[Log], what: str = "x") -> str:
    """Put something down; nobody is asked."""
    await ctx.deps.run("put", ctx)
    return f"put {what}"


@tool(effect="write", idempotent=True)
async def put_once(ctx: ToolContext[Log]) -> str:
    """Put something down; twice is once."""
    await ctx.deps.run("put_once", ctx)
    return "put"


@tool(effect="write", on_interrupt="report")
async def put_told(ctx: ToolContext[Log]) -> str:
    """Put something down; when cut off, the model is told."""
    await ctx.deps.run("put_told", ctx)
    return "put"


@tool(effect="write", approval=Approval(ask="Refund {amount}?", expires=timedelta(days=1)))
async def refund(ctx: ToolContext[Log], amount: int) -> str:
    """Refund; the requester is asked."""
    await ctx.deps.run("refund", ctx)
    return f"refunded {amount}"


def finance(call: ToolCall, who: Principal) -> bool:
    if call.arguments["amount"] == 13:
        raise LookupError("the directory is down")
    return "finance" in who.roles


@tool(effect="write", approval=Approval(ask="Pay {amount}?", by=finance))
async def pay(ctx: ToolContext[Log], amount: int) -> str:
    """Pay; finance is asked."""
    await ctx.deps.run("pay", ctx)
    return f"paid {amount}"


TOOLS: tuple[Tool, ...] = (look, put, put_once, put_told, refund, pay)


@dataclass(frozen=True)
class Shown:
    """What the platform was told to show: a post, or an edit of ``edits``."""

    ref: str
    delivery: Delivery
    edits: str | None = None

    @property
    def message(self) -> Outbound:
        return self.delivery.message

    @property
    def card(self) -> Card:
        assert self.message.card is not None
        return self.message.card


class FakeChannel(Channel):
    """A platform that shows what it is given, unless it was told to fail."""

    name: ClassVar[str] = CHANNEL
    capabilities: ClassVar[Capabilities] = Capabilities(buttons=True, edit=True, private=True, find=True)

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        self.attempts: list[str] = []
        self.failures: list[Exception] = []
        self.lost: list[Exception] = []
        """Raised after the post was shown: the answer got lost."""

    async def verify(self, request: WebhookRequest) -> Verified:
        return Verified(request, "fake")

    def parse(self, verified: Verified) -> Ingress:
        data: Any = codec.decode(verified.request.body)
        author = Author(data["who"], data["who"].title(), standing=Standing(data.get("standing", "member")))
        address = data.get("address", ADDRESS)
        if "click" in data:
            return Ingress((Click(address, author, value=data["click"], key=data["key"], place=PLACE),))
        return Ingress((Message(address, author, text=data["text"], key=data["key"], place=PLACE),))

    async def send(self, delivery: Delivery) -> MessageRef:
        self._try(delivery)
        return self._show(delivery, None)

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        self._try(delivery)
        return self._show(delivery, ref.id)

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        found = next((shown for shown in self.shown if shown.delivery.id == delivery_id), None)
        return None if found is None else MessageRef(CHANNEL, address, id=found.ref)

    def _try(self, delivery: Delivery) -> None:
        self.attempts.append(delivery.id)
        if self.failures:
            raise self.failures.pop(0)

    def _show(self, delivery: Delivery, edits: str | None) -> MessageRef:
        shown = Shown(edits or f"m{len(self.shown)}", delivery, edits)
        self.shown.append(shown)
        if self.lost:
            raise self.lost.pop(0)
        return MessageRef(CHANNEL, delivery.address, id=shown.ref)

    @property
    def texts(self) -> list[str]:
        return [shown.message.text for shown in self.shown if shown.message.text]

    @property
    def cards(self) -> list[Shown]:
        return [shown for shown in self.shown if shown.message.card is not None]
