"""A stand-in for the accounts that calls act with, strict about what it is asked; tools that use it, and people who connect.

What lives here: accounts in memory, tools, ways to connect one. What does not: tests, the real ones (tests/bot/connections).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bot.answers import Way
from bot.approvals import Approval
from bot.connections.client import Access
from bot.connections.connection import Need, OAuthConnection
from bot.connections.connections import Barred, Check, NeedsSignIn, Ready
from bot.connections.errors import Unauthorized
from bot.connections.lent import Lent
from bot.context import ToolContext
from bot.principal import Principal
from bot.settling import settled_events
from bot.tools import Tool, tool
from durable_core import codec
from durable_core.ids import new_id
from durable_core.model import AnswerReceipt, Prompt, PromptAnswer, PromptOutcome
from tests.bot.session.actors import ADDRESS, CHANNEL, PLACE, Log
from tests.bot.session.kit import ALICE, Thread

HUB = OAuthConnection(
    "hub",
    title="GitHub",
    client_id="c",
    authorize_url="https://hub.test/a",
    token_url="https://hub.test/t",
    scopes=("repo",),
    expose_token=True,
)
DRIVE = OAuthConnection(
    "drive",
    title="Drive",
    client_id="c",
    authorize_url="https://drive.test/a",
    token_url="https://drive.test/t",
    expose_token=True,
)
SHOP = OAuthConnection(
    "shop",
    title="Shop",
    client_id="c",
    authorize_url="https://shop.test/a",
    token_url="https://shop.test/t",
    owner="app",
    expose_token=True,
)


@dataclass(frozen=True)
class Kept:
    """A credential: its version and what it may."""

    version: int
    scopes: tuple[str, ...]

    @property
    def token(self) -> str:
        return f"token-{self.version}"


@dataclass
class StandIn:
    """Accounts in memory. Refuses to be asked about nobody's, or to drop what it never lent."""

    kept: dict[tuple[str, str], Kept] = field(default_factory=dict)
    versions: int = 0
    lent_versions: set[int] = field(default_factory=set)
    dropped: list[int] = field(default_factory=list)
    checks: list[tuple[str, ...]] = field(default_factory=list)
    refusing: set[str] = field(default_factory=set)
    """Tokens that the services don't take."""

    def owner_of(self, connection: OAuthConnection, requester: Principal) -> str:
        return requester.id if connection.owner == "user" else "app:"

    async def check(self, needs: Sequence[Need], requester: Principal) -> Check:
        assert needs, "a call without accounts has nothing to be checked"
        self.checks.append(tuple(need.name for need in needs))
        for need in needs:
            if need.connection.owner == "user" and requester.anonymous:
                return Barred("principal_required", f"{need.connection.title} works with the account of whoever asks.")
            kept = self.kept.get((need.name, self.owner_of(need.connection, requester)))
            if kept is None and need.connection.owner == "app":
                return Barred("app_not_connected", "Run: moorings connections connect shop.")
            if kept is None:
                return NeedsSignIn(need, "missing", need.scopes)
            if not set(need.scopes) <= set(kept.scopes):
                return NeedsSignIn(need, "scopes", tuple(dict.fromkeys((*need.scopes, *kept.scopes))))
        return Ready()

    def lend(self, needs: Sequence[Need], requester: Principal) -> Lent:
        async def access(need: Need, refused: int | None) -> Access:
            kept = self.kept.get((need.name, self.owner_of(need.connection, requester)))
            if kept is None or kept.version == refused:
                raise Unauthorized(need)
            self.lent_versions.add(kept.version)
            return Access(token=kept.token, version=kept.version)

        async def refuse(need: Need, version: int) -> None:
            await self.drop(need.connection, self.owner_of(need.connection, requester), version)

        loop, outgoing = asyncio.get_running_loop(), cast("Any", None)
        return Lent(needs=tuple(needs), access=access, refuse=refuse, outgoing=outgoing, loop=loop)

    async def drop(self, connection: OAuthConnection, owner: str, version: int) -> bool:
        assert version in self.lent_versions, "nobody was lent this version"
        kept = self.kept.get((connection.name, owner))
        if kept is None or kept.version != version:
            return False
        del self.kept[connection.name, owner]
        self.dropped.append(version)
        return True

    def keep(self, connection: OAuthConnection, owner: Principal | str = ALICE, scopes: Sequence[str] | None = None) -> Kept:
        self.versions += 1
        kept = Kept(self.versions, tuple(connection.scopes if scopes is None else scopes))
        self.kept[connection.name, owner if isinstance(owner, str) else owner.id] = kept
        return kept

    async def use(self, ctx: ToolContext[Any], connection: OAuthConnection) -> str:
        """Do what a tool does: take the token, have the service refuse it or not."""
        token = await ctx.token(connection)
        if token in self.refusing:
            raise Unauthorized(connection)
        return token


def accounts_of(thread: Thread) -> StandIn:
    assert isinstance(thread.accounts, StandIn)
    return thread.accounts


async def _act(ctx: ToolContext[Log], name: str, *connections: OAuthConnection) -> str:
    used = [await cast("StandIn", ctx.deps.accounts).use(ctx, one) for one in connections]
    await ctx.deps.run(name, ctx)
    return f"{name} as {ctx.principal.name} with {' '.join(used)}"


@tool(effect="write", connections=[HUB])
async def open_issue(ctx: ToolContext[Log], title: str = "x") -> str:
    """Open an issue as the person."""
    return await _act(ctx, "open_issue", HUB)


@tool(effect="read", connections=[HUB])
async def read_issue(ctx: ToolContext[Log], number: int = 1) -> str:
    """Read an issue as the person."""
    return await _act(ctx, "read_issue", HUB)


@tool(effect="write", connections=[HUB.scoped("admin")])
async def delete_repo(ctx: ToolContext[Log], repo: str = "r") -> str:
    """Delete a repository as the person."""
    return await _act(ctx, "delete_repo", HUB)


@tool(effect="write", connections=[HUB], approval=Approval(ask="Close {number}?", edit=["number"]))
async def close_issue(ctx: ToolContext[Log], number: int = 1) -> str:
    """Close an issue as the person; they are asked first."""
    return await _act(ctx, "close_issue", HUB)


@tool(effect="write", connections=[HUB, DRIVE])
async def export(ctx: ToolContext[Log], to: str = "x") -> str:
    """Copy an issue into a file as the person."""
    return await _act(ctx, "export", HUB, DRIVE)


@tool(effect="write", connections=[SHOP])
async def order(ctx: ToolContext[Log], what: str = "x") -> str:
    """Order something as the app."""
    return await _act(ctx, "order", SHOP)


TOOLS: tuple[Tool, ...] = (open_issue, read_issue, delete_repo, close_issue, export, order)


def with_accounts(thread: Thread, *more: Tool) -> StandIn:
    """Give a thread tools that act with accounts, and accounts."""
    accounts = StandIn()
    thread.accounts, thread.log.accounts = accounts, accounts
    thread.tools = (*thread.tools, *TOOLS, *more)
    thread.hire(thread.owner)
    return accounts


async def press(thread: Thread, option: str, who: Principal = ALICE, *, prompt: Prompt | None = None) -> AnswerReceipt:
    """Press a button on a card where it stands."""
    asked = prompt or await thread.prompt()
    at = (CHANNEL, ADDRESS)
    way = Way(via="button", source=CHANNEL, key=new_id("key"), at=at, tell_at=at)
    return await thread.answers.admit(asked.prompt_id, option, principal=who, place=PLACE, way=way)


async def connect(
    thread: Thread, connection: OAuthConnection = HUB, who: Principal = ALICE, *, scopes: Sequence[str] | None = None
) -> AnswerReceipt:
    """Finish in the browser: the account is kept, then the request is settled, and the session goes on."""
    asked = next(one for one in await thread.store.open_prompts(thread.run_id) if body(one).get("connection") == connection.name)
    accounts_of(thread).keep(connection, who, body(asked)["scopes"] if scopes is None else scopes)
    return await settle(thread, asked, who)


async def settle(
    thread: Thread,
    prompt: Prompt,
    who: Principal = ALICE,
    *,
    option: str = "connected",
    outcome: PromptOutcome = PromptOutcome.APPROVED,
    note: str = "",
) -> AnswerReceipt:
    """Settle a request to sign in as the sign-in itself does."""
    attempt = new_id("att")
    told = {"account": f"{who.name.lower()}@hub", "text": note}
    return await thread.store.answer(
        PromptAnswer(
            source="connect",
            key=attempt,
            digest=b"",
            submission_id=new_id("sub"),
            prompt_id=prompt.prompt_id,
            run_id=None,
            option_id=option,
            outcome=outcome,
            note=codec.encode(told),
            principal=who.id,
            name=who.name,
            via="connect",
            body=codec.encode({}),
            events=settled_events(prompt, who, outcome),
            where=f"connect {attempt}",
        )
    )


def body(prompt: Prompt) -> Any:
    return codec.decode(prompt.body)
