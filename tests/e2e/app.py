"""The app that is killed: a model and tools that note in the ledger what they do.

What lives here: one tool for each way a cut-off call is treated, and the script that calls them. What does not: killing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.agent import Agent
from bot.app import Bot
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.flows import conversation
from bot.history import ResultItem, Usage, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.principal import Principal
from bot.tools import tool
from durable_core.context import WorkflowContext, step_context
from durable_core.operations import Option
from durable_core.registry import workflow
from tests.e2e.account import acting, tracker_at
from tests.e2e.ledger import Ledger
from tests.e2e.plain import Plain

MODEL = "model"
BEGIN = "begin"
EFFECT = "effect"
STEP = "step"
"""The body of a workflow's step."""
GATE = "gate.sock"
"""A socket in the process's folder at which a tool's body waits, as long as a test listens there."""

PAUSE = 0.05
WORD_PAUSE = 0.03
WORDS = 12


@dataclass(frozen=True, slots=True)
class Outside:
    """What tools act on."""

    ledger: Ledger
    folder: Path

    async def act(self, ctx: ToolContext[Outside], charge: str) -> str:
        """Begin, wait at the gate, take effect."""
        self.ledger.add(BEGIN, ctx.idempotency_key, attempt=ctx.attempt, note=charge.partition(" ")[0])
        await self._gate(ctx.idempotency_key)
        self.ledger.add(EFFECT, ctx.idempotency_key, attempt=ctx.attempt, note=charge.partition(" ")[0])
        return f"Done for {ctx.principal.name}."

    async def _gate(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            reader, writer = await asyncio.open_unix_connection(self.folder / GATE)
            try:
                writer.write(f"{key}\n".encode())
                await reader.read()
            finally:
                writer.close()


def anyone_here(call: ToolCall, responder: Principal) -> bool:
    return responder.id == call.requester.id


@tool(effect="write", idempotent=True, approval=Approval(ask="Refund {charge}?", by=anyone_here, self_ok=True))
async def refund(ctx: ToolContext[Outside], charge: str) -> str:
    """Refund a charge; a worker decides who may answer."""
    return await ctx.deps.act(ctx, charge)


@tool(effect="write", approval=Approval(ask="Pay {charge}?"))
async def pay(ctx: ToolContext[Outside], charge: str) -> str:
    """Pay a charge, after the requester's yes, never by itself twice."""
    return await ctx.deps.act(ctx, charge)


@tool(effect="read")
async def read(ctx: ToolContext[Outside], charge: str) -> str:
    """Read a charge."""
    return await ctx.deps.act(ctx, charge)


@tool(effect="write", idempotent=True)
async def write(ctx: ToolContext[Outside], charge: str) -> str:
    """Write a charge; a second run changes nothing."""
    return await ctx.deps.act(ctx, charge)


@tool(effect="write")
async def once(ctx: ToolContext[Outside], charge: str) -> str:
    """Write a charge; a second run would write a second one."""
    return await ctx.deps.act(ctx, charge)


def _in_step(name: str) -> str:
    here, home = step_context(), conversation()
    assert home is not None
    here.deps.ledger.add(STEP, f"{here.run_id}:{name}", attempt=here.attempt, note=home.call_id)
    return f"{name} for {home.requester.name}"


def compute_plan(charge: str) -> str:
    return _in_step("compute_plan")


def roll_out(plan: str) -> str:
    return _in_step("roll_out")


@workflow
async def deploy(ctx: WorkflowContext, charge: str) -> str:
    """Plan, ask, wait a moment, roll out."""
    plan = await ctx.step(compute_plan, charge)
    ctx.progress("planned")
    answer = await ctx.ask("Deploy?", [Option("go", "Deploy"), Option("stop", "Cancel")])
    if answer.option_id != "go":
        return "not deployed"
    await ctx.sleep(PAUSE)
    return await ctx.step(roll_out, plan)


TOOLS = (refund, pay, read, write, once)
FLOW_STEPS = {"deploy": ("compute_plan", "roll_out"), "visit": ("fetch",)}
FLOW_LOGS = {
    "deploy": ("step:compute_plan#0", "ask:#0", "timer:50#0", "step:roll_out#0", ""),
    "visit": (*(f"step:authorize tracker#{place}" for place in range(4)), "ask:authorize tracker#0", "step:fetch#0", ""),
}
"""What the log of a workflow holds in the end, whatever its order."""


class CountingModel:
    """Calls the tool a message names, says each result, streams for `stream`, echoes the rest; notes each call."""

    name = "counting"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self._ledger.add(MODEL, f"{request.session_id}:{request.sequence}", attempt=request.attempt)
        last = max(place for place, item in enumerate(request.history) if isinstance(item, UserItem))
        said = request.history[last]
        assert isinstance(said, UserItem)
        results = [item for item in request.history[last:] if isinstance(item, ResultItem)]
        word = said.text.partition(" ")[0]
        if not results and word in {spec.name for spec in request.tools}:
            call = RequestedCall(word, {"charge": said.text}, provider_id=f"p{request.sequence}")
            return ModelReply("", (call,), finish=Finish.TOOLS, usage=Usage(1, 1), model=self.name)
        text = f"{said.text}: {results[-1].status.value}" if results else f"You said: {said.text}"
        if word == "stream":
            text = " ".join(f"w{place}" for place in range(WORDS))
            for piece in text.split(" "):
                await on_text(piece if piece == "w0" else f" {piece}")
                await asyncio.sleep(WORD_PAUSE)
        else:
            await on_text(text)
        return ModelReply(text, usage=Usage(1, 1), model=self.name)


def build(folder: Path) -> Bot:
    """Put the app together for one folder."""
    ledger = Ledger(folder)

    @asynccontextmanager
    async def deps() -> AsyncIterator[Outside]:
        yield Outside(ledger, folder)

    tracker = tracker_at(folder)
    tools = [*TOOLS, deploy, *(acting(tracker, ledger) if tracker is not None else ())]
    return Bot(
        agents=[Agent("crash", CountingModel(ledger), tools=tools)],
        channels=[Plain(folder)],
        connections=[tracker] if tracker is not None else [],
        deps=deps,
    )
