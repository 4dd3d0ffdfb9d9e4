"""An app that asks in every way there is, on a clock of its own, with the console's page in front of it.

What lives here: its tools, a model that calls what a message names, serving it. What does not: people (browser.py), expectations.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import JsonValue

from bot.agent import Agent
from bot.answerers import group
from bot.app import Bot
from bot.approvals import Approval
from bot.console.page import install_console
from bot.console.security import loopback_guard
from bot.context import ToolContext
from bot.history import ResultItem, UserItem
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.principal import Principal
from bot.ready_tools import ask_question
from bot.routes import escalate
from bot.runtime import Runtime, open_runtime
from bot.server.app import build_app, runner_of
from bot.settings import Settings, sqlite_url
from bot.tools import tool
from durable_core.clock import ManualClock
from durable_core.crypto import new_key_entry
from durable_core.schema import upgrade
from durable_core.worker import WorkerOptions

if TYPE_CHECKING:
    from pathlib import Path

HOUR = timedelta(hours=1)
KEY = "prompts"


def _owns(person: Principal) -> bool:
    return person.name in {"Bob", "Farah"}


def _leads(person: Principal) -> bool:
    return person.name == "Farah"


def _on_call(person: Principal) -> bool:
    return person.name == "Bob"


@tool(approval=Approval(ask="Drop the table {name}?", by=group("owners"), by_text="Two of the owners", quorum=2))
async def drop(ctx: ToolContext[None], name: str) -> str:
    """Drop a table."""
    return f"Dropped {name}."


@tool(
    approval=Approval(
        ask="Wire {amount} to {account}?",
        by=group("on-call"),
        by_text="Whoever is on call",
        remind_after=HOUR,
        expires=4 * HOUR,
        on_expiry=escalate(by=group("leads"), by_text="A team lead", expires=8 * HOUR),
    )
)
async def wire(ctx: ToolContext[None], amount: int, account: str) -> str:
    """Wire money."""
    who = ctx.approval.responder.name if ctx.approval else "nobody"
    return f"Wired {amount} to {account} with {who}'s yes."


@tool(approval=Approval(ask="Archive {project}?", expires=2 * HOUR, remind_after=None))
async def archive(ctx: ToolContext[None], project: str) -> str:
    """Archive a project."""
    return f"Archived {project}."


@tool(approval=Approval(ask="Restart {service}?", expires=2 * HOUR, remind_after=None, on_expiry="cancel"))
async def restart(ctx: ToolContext[None], service: str) -> str:
    """Restart a service."""
    return f"Restarted {service}."


@tool(approval=Approval(ask="Invoice {customer} for {amount}?", edit=["amount", "text"]))
async def invoice(ctx: ToolContext[None], customer: str, amount: int, text: str) -> str:
    """Send an invoice."""
    return f"Invoiced {customer} for {amount}: {text}"


@tool(approval=Approval(ask="Write to {to}?"))
async def mail(ctx: ToolContext[None], to: str, subject: str) -> str:
    """Write a mail."""
    return f"Wrote to {to}."


REGIONS = ("Amsterdam", "Frankfurt", "Helsinki", "Lisbon", "Madrid", "Milan", "Oslo", "Paris")
SCRIPT: dict[str, list[tuple[str, dict[str, JsonValue]]]] = {
    "drop": [("drop", {"name": "orders_2019"})],
    "wire": [("wire", {"amount": 4800, "account": "DE02 1203 0000 0000 2020 51"})],
    "archive": [("archive", {"project": "lighthouse"})],
    "restart": [("restart", {"service": "search"})],
    "invoice": [("invoice", {"customer": "Nordwind", "amount": 1200, "text": "Consulting in May,\nfour days"})],
    "mails": [
        ("mail", {"to": "ann@example.org", "subject": "Your order is on its way"}),
        ("mail", {"to": "ben@example.org", "subject": "Your order is late"}),
    ],
    "where": [("ask_question", {"text": "Where shall it run?", "options": list(REGIONS), "allow_freeform": False})],
    "why": [("ask_question", {"text": "Why is it late?"})],
}
"""Which calls a message leads to."""


class Follower:
    """Calls what the last message names, then says what came of each call."""

    name = "follower"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        last = max(place for place, item in enumerate(request.history) if isinstance(item, UserItem))
        said = request.history[last]
        assert isinstance(said, UserItem)
        results = [item for item in request.history[last:] if isinstance(item, ResultItem)]
        if not results and said.text in SCRIPT:
            calls = [RequestedCall(name, given, provider_id=f"c{place}") for place, (name, given) in enumerate(SCRIPT[said.text])]
            return ModelReply("", tuple(calls), finish=Finish.TOOLS)
        text = "\n\n".join(f"{one.tool}: {one.status.value}, {one.content}" for one in results) or f"You said: {said.text}"
        await on_text(text)
        return ModelReply(text)


def build() -> Bot:
    tools = [drop, wire, archive, restart, invoice, mail, ask_question]
    groups = {"owners": _owns, "leads": _leads, "on-call": _on_call}
    return Bot(agents=[Agent("clerk", Follower(), tools=tools)], groups=groups)


@dataclass(frozen=True, slots=True)
class Served:
    """The running app: where its page is, and its clock."""

    address: str
    clock: ManualClock
    runtime: Runtime

    def later(self, by: timedelta) -> None:
        """Let time pass for the store, and wake the worker."""
        self.clock.advance(by)
        assert self.runtime.worker is not None
        self.runtime.worker.kick()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """Serve the app in this process until the block ends. Its clock stands at the present, where the page's goes on."""
    clock = ManualClock(int(time.time() * 1000))
    settings = Settings(folder, sqlite_url(folder), encryption_keys=new_key_entry(), deployment="test")
    upgrade(settings.database_url)
    runtime = await open_runtime(build(), settings, console=True, clock=clock, options=WorkerOptions(poll=0.05))
    app = build_app(runtime, guards=[loopback_guard()])
    assert runtime.console is not None
    install_console(app, runtime.console, key=KEY, public_port=0)
    runner = runner_of(app, drain=1.0)
    try:
        await runtime.start()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield Served(f"http://127.0.0.1:{port}/console/?k={KEY}", clock, runtime)
    finally:
        await runner.cleanup()
        await runtime.close()
