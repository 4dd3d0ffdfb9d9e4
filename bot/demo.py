"""The demo's agent and what its tools act on.

What lives here: tools, a workflow, a small payments ledger, a connection, the agent, the app. What does not: the script that
drives them (scripted.py), the provider of its accounts (demo_provider/), the page and the command.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from bot.agent import Agent
from bot.app import Bot
from bot.approvals import Approval, ToolCall
from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.demo_provider.registered import CLIENT_ID, CLIENT_SECRET
from bot.principal import Principal
from bot.ready_tools import disconnect_account
from bot.tools import tool
from channels.contract import Channel
from durable_core.context import WorkflowContext
from durable_core.operations import Option
from durable_core.registry import workflow

SELF_SERVICE_LIMIT: Final = Decimal(100)
FINANCE: Final = "finance"

_CREATE = """
CREATE TABLE IF NOT EXISTS refund (
    number INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    charge_id TEXT NOT NULL,
    amount TEXT NOT NULL,
    requested_by TEXT NOT NULL
)
"""
_INSERT = """
INSERT INTO refund (idempotency_key, charge_id, amount, requested_by) VALUES (?, ?, ?, ?)
ON CONFLICT (idempotency_key) DO NOTHING
"""
_COLUMNS = "SELECT number, idempotency_key, charge_id, amount, requested_by FROM refund"


class KeyReused(Exception):
    """The idempotency key belongs to another refund."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency key {key} was used for another refund")
        self.key = key


@dataclass(frozen=True, slots=True)
class Receipt:
    """One refund that was made."""

    id: str
    idempotency_key: str
    _: KW_ONLY
    charge_id: str
    amount: Decimal
    requested_by: str


class Payments:
    """A payment service as good ones are: a repeated idempotency key returns the first receipt and moves no money."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._database = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_CREATE)

    async def refund(self, charge_id: str, amount: Decimal, *, idempotency_key: str, requested_by: str) -> Receipt:
        """Refund once per key.

        Raises:
            KeyReused: The key came before, with another charge or amount.
        """
        return await asyncio.to_thread(self._refund, charge_id, amount, idempotency_key, requested_by)

    async def refunds(self) -> list[Receipt]:
        """List every refund ever made, oldest first."""
        return await asyncio.to_thread(self._refunds)

    def close(self) -> None:
        """Close the ledger; a call still running in its thread ends first."""
        with self._lock:
            self._database.close()

    def _refund(self, charge_id: str, amount: Decimal, key: str, requested_by: str) -> Receipt:
        with self._lock:
            self._database.execute(_INSERT, (key, charge_id, str(amount), requested_by))
            receipt = _receipt(self._database.execute(f"{_COLUMNS} WHERE idempotency_key = ?", (key,)).fetchone())
        if (receipt.charge_id, receipt.amount) != (charge_id, amount):
            raise KeyReused(key)
        return receipt

    def _refunds(self) -> list[Receipt]:
        with self._lock:
            return [_receipt(row) for row in self._database.execute(f"{_COLUMNS} ORDER BY number")]


def _receipt(row: tuple[int, str, str, str, str]) -> Receipt:
    number, key, charge_id, amount, requested_by = row
    return Receipt(f"rf_{number:04d}", key, charge_id=charge_id, amount=Decimal(amount), requested_by=requested_by)


@dataclass(frozen=True, slots=True)
class DemoDeps:
    """What the demo's tools use. ``sleep`` is how they wait."""

    payments: Payments
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@asynccontextmanager
async def open_deps(folder: Path | None = None) -> AsyncIterator[DemoDeps]:
    """Open the demo's dependencies, with the ledger in a folder, or in memory."""
    payments = await asyncio.to_thread(Payments, folder / "payments.db" if folder else None)
    try:
        yield DemoDeps(payments)
    finally:
        payments.close()


def may_approve_refund(call: ToolCall, responder: Principal) -> bool:
    """Let the requester approve small refunds, and only finance large ones."""
    if call.arguments["amount"] <= SELF_SERVICE_LIMIT:
        return responder.id == call.requester.id
    return FINANCE in responder.roles


def who_may_approve(call: ToolCall) -> str:
    """Name who may approve a refund, as the card says it."""
    return call.requester.name if call.arguments["amount"] <= SELF_SERVICE_LIMIT else "Finance"


@tool(
    effect="write",
    idempotent=True,  # the ledger refuses a second refund under the same key
    approval=Approval(
        ask="Refund {amount} for {charge_id}?",
        by=may_approve_refund,
        by_text=who_may_approve,
        self_ok=True,
    ),
)
async def refund_charge(
    ctx: ToolContext[DemoDeps],
    charge_id: Annotated[str, Field(min_length=1, max_length=64)],
    amount: Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)],
) -> str:
    """Refund a charge, in full or in part.

    Args:
        ctx: The call.
        charge_id: The charge to refund, for example ch_1042.
        amount: How much to refund.
    """
    receipt = await ctx.deps.payments.refund(
        charge_id, amount, idempotency_key=ctx.idempotency_key, requested_by=ctx.principal.id
    )
    return f"Refunded {receipt.amount} for {receipt.charge_id}, receipt {receipt.id}."


@tool(effect="read")
async def slow(ctx: ToolContext[DemoDeps], seconds: Annotated[float, Field(ge=0, le=600)]) -> str:
    """Take a while, and say on the terminal when it starts and ends.

    Args:
        ctx: The call.
        seconds: How long to take.
    """
    print(f"slow: start, {seconds:g} s, key {ctx.idempotency_key}, attempt {ctx.attempt}", flush=True)
    waited = 0.0
    while waited < seconds:
        slice_s = min(seconds - waited, 1.0 if seconds > 10 else 0.25)
        await ctx.deps.sleep(slice_s)
        waited = min(waited + slice_s, seconds)
        await ctx.progress(f"{waited:.1f} of {seconds:g} s")
    print(f"slow: end, {seconds:g} s, key {ctx.idempotency_key}, attempt {ctx.attempt}", flush=True)
    return f"That took {seconds:g} s."


def compute_plan(service: str) -> dict[str, str]:
    """Say what a deployment would do; the demo deploys nothing."""
    version = sum(service.encode()) % 90 + 10
    return {"service": service, "version": f"1.{version}", "change": "replace 3 of 3 instances, one after the other"}


def roll_out(plan: dict[str, str]) -> str:
    """Carry a plan out, as far as a demo does."""
    return f"{plan['service']} {plan['version']} is deployed."


@workflow
async def deploy(ctx: WorkflowContext, service: Annotated[str, Field(min_length=1, max_length=64)]) -> str:
    """Deploy a service: plan, ask, wait a moment, roll out.

    Args:
        ctx: The run.
        service: The service to deploy, for example api.
    """
    plan = await ctx.step(compute_plan, service)
    ctx.progress(f"Planned {plan['service']} {plan['version']}: {plan['change']}.")
    answer = await ctx.ask(
        f"Deploy {plan['service']} {plan['version']}?",
        options=[Option("go", "Deploy", style="primary"), Option("stop", "Cancel")],
        expires=timedelta(days=3),
    )
    if answer.option_id != "go":
        reason = "nobody answered in time" if answer.expired else f"{answer.name or 'somebody'} said no"
        return f"{service} was not deployed: {reason}."
    ctx.progress("Waiting 5 seconds before the roll-out.")
    await ctx.sleep(5)
    return await ctx.step(roll_out, plan)


tracker = OAuthConnection(
    "tracker",
    title="Demo tracker",
    client_id=CLIENT_ID,
    client_secret=CLIENT_SECRET,
    authorize_url="/demo/authorize",  # on this app's own address: the demo serves its provider itself
    token_url="/demo/token",  # noqa: S106 - an address
    userinfo_url="/demo/userinfo",
    revoke_url="/demo/revoke",
    scopes=("issues",),
    hosts=("/demo/api",),
    verifies_email=True,
)


@tool(effect="write", idempotent=True, connections=[tracker])  # the tracker knows the key, so it opens no second issue
async def open_issue(ctx: ToolContext[DemoDeps], title: Annotated[str, Field(min_length=1, max_length=200)]) -> str:
    """Open an issue in the demo's tracker, in the name of whoever asks; they sign in to their account first.

    Args:
        ctx: The call.
        title: What the issue is about, in a few words.
    """
    http = ctx.http(tracker)
    reply = await http.post("/issues", json={"title": title}, headers={"Idempotency-Key": ctx.idempotency_key})
    issue = reply.raise_for_status().json()
    return f"Opened issue #{issue['number']} “{issue['title']}” as {issue['author']}."


def greeting_of(deployment: str) -> str:
    """What a later deployment of the demo does otherwise, so that a deploy can be seen: it says which one it is."""
    later = deployment.startswith("v") and deployment[1:].isdecimal() and int(deployment[1:]) > 1
    return f" You are {deployment} of this agent: say so when you greet somebody." if later else ""


support = Agent(
    "support",
    "scripted",
    instructions=(
        "You help the people of a small shop. Be brief and friendly. Use refund_charge when somebody asks for a refund; "
        "a person is asked before it runs. Use deploy when they want a service deployed, open_issue when they want an issue "
        "opened in the tracker, which asks them to sign in. Say plainly when something did not happen."
        + greeting_of(os.environ.get("MOORINGS_DEPLOYMENT", ""))
    ),
    tools=[refund_charge, slow, deploy, open_issue, disconnect_account],
)


def channels() -> list[Channel]:
    """Add Slack where its token or its secret is set, which then wants both; the console is always there."""
    if not (os.environ.get("SLACK_BOT_TOKEN") or os.environ.get("SLACK_SIGNING_SECRET")):
        return []
    from channels.slack import Slack  # noqa: PLC0415 - only where it is used

    return [Slack()]


bot = Bot(agents=[support], channels=channels(), deps=lambda settings: open_deps(settings.data))
