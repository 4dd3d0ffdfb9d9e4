"""One row a tool: effect, who starts, who approves; equal apps have equal rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from bot.access import Action, Allow, Decision
from bot.agent import Agent
from bot.answerers import group
from bot.approvals import Approval, over
from bot.context import ToolContext
from bot.demo import support
from bot.masks import Secret
from bot.policies import auto, never
from bot.principal import Principal
from bot.routes import address, escalate
from bot.surface import Row, surface
from bot.tools import tool
from channels.events import Place


@tool(effect="read")
async def find(ctx: ToolContext) -> None:
    """Find."""


@tool
async def write(ctx: ToolContext) -> None:
    """Write."""


@tool(approval=never, untrusted="allow")
async def touch(ctx: ToolContext) -> None:
    """Touch."""


@tool(
    approval=Approval(
        when=over("amount", 100),
        by=group("finance"),
        quorum=2,
        route="direct",
        expires=timedelta(hours=8),
        on_expiry=escalate(by=["slack:T1:U1", "slack:T1:U2"], to=address("slack:v1:x")),
    )
)
async def pay(ctx: ToolContext, amount: int, token: Annotated[str, Secret]) -> None:
    """Pay."""


@tool(approval=Approval(when=auto("anthropic:x", criteria=["ok"]), by=lambda *_: True, self_ok=True, edit=["text"]))
async def post(ctx: ToolContext, text: str) -> None:
    """Post."""


def office_hours(principal: Principal, place: Place, action: Action) -> Decision:
    return Allow()


class Directory:
    channel = "slack"

    def __repr__(self) -> str:
        return "Directory()"


AGENTS = [
    Agent("shop", "scripted", tools=[write, find, touch, pay, post]),
    Agent("desk", "scripted", tools=[write, touch], approval=Approval(by=group("finance"), expires=None)),
]


def test_every_tool_is_a_row() -> None:
    rows = surface(AGENTS, groups={"finance": Directory()})
    assert [(row.agent, row.tool, row.effect) for row in rows] == [
        ("desk", "touch", "write"),
        ("desk", "write", "write"),
        ("shop", "find", "read"),
        ("shop", "pay", "write"),
        ("shop", "post", "write"),
        ("shop", "touch", "write"),
        ("shop", "write", "write"),
    ]
    finance = "group finance (by Directory()), not the requester"
    told = {(row.agent, row.tool): (row.asks, row.approves, row.untrusted) for row in rows}
    assert told == {
        ("desk", "touch"): ("never", "whoever asked; within 3 days", "allowed"),
        ("desk", "write"): ("always", f"{finance}; no limit of time", "asks"),
        ("shop", "find"): ("never", "nobody is asked", "no matter: it reads"),
        ("shop", "pay"): (
            "amount over 100",
            f"2 of: {finance}; asked in a direct message; then slack:T1:U1 or slack:T1:U2 at slack:v1:x; within 8 hours",
            "asks",
        ),
        ("shop", "post"): (
            "when anthropic:x doesn't find it safe",
            "whom <lambda>() allows, the requester too; may change text; within 3 days",
            "asks",
        ),
        ("shop", "touch"): ("never", "whoever asked; within 3 days", "allowed"),
        ("shop", "write"): ("never", "whoever asked; within 3 days", "asks"),
    }
    assert {row.tool: row.secret for row in rows if row.secret} == {"pay": ("token",)}
    assert {row.starts for row in rows} == {"full members"}


def test_who_starts_is_the_access_policys_to_say() -> None:
    assert {row.starts for row in surface(AGENTS, access=office_hours)} == {"whom office_hours() allows"}


def test_the_demo_has_one_and_equal_apps_have_equal_rows() -> None:
    assert surface([support]) == surface([support])
    rows = {row.tool: row for row in surface([support])}
    assert rows["refund_charge"] == Row(
        agent="support",
        tool="refund_charge",
        effect="write",
        starts="full members",
        asks="always",
        approves="whom may_approve_refund() allows, the requester too; within 3 days",
        untrusted="asks",
    )
