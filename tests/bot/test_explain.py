"""What would happen to a call, gate by gate."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest

from bot.answerers import group
from bot.approvals import Approval, always, over
from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.deciding import Deciding
from bot.explain import explain, length
from bot.masks import Secret
from bot.policies import auto, deny, never, once
from bot.principal import Principal
from bot.routes import address, escalate
from bot.tools import tool
from tests.bot.people import ALICE, BOB, FARAH, NOBODY


async def refund(ctx: ToolContext, amount: int, token: Annotated[str, Secret] = "t") -> None:
    """Refund."""


async def lines(
    approval: Any, arguments: Any = None, *, effect: Any = "write", untrusted: Any = None, **more: Any
) -> list[tuple[str, str, str]]:
    declared = tool(approval=approval, effect=effect, untrusted=untrusted)(refund)
    gates = await explain(declared, ALICE, {"amount": 5} if arguments is None else arguments, **more)
    return [(gate.name, gate.stand, gate.says) for gate in gates]


async def test_the_gates_come_in_order() -> None:
    gate = Approval(
        when=over("amount", 3),
        by=group("finance"),
        quorum=2,
        expires=timedelta(hours=8),
        route="direct",
        on_expiry=[escalate(by=[BOB.id, FARAH.id], to=address("slack:v1:x"), expires=timedelta(days=1, hours=12))],
    )
    assert await lines(gate) == [
        ("arguments", "passes", "Valid: amount=5, token=•••. ••• is secret: nobody is shown it."),
        ("policy", "asks", "It asks amount over 3: this call does."),
        ("untrusted content", "passes", "None was read. After it a person would be asked, whatever the policy says."),
        (
            "answer",
            "asks",
            "Somebody in finance may answer, but not Alice, who asks; 2 different people have to approve.",
        ),
        ("route", "asks", "It is asked in a direct message."),
        (
            "expiry",
            "asks",
            (
                "After 4 hours they are reminded. After 8 hours without an answer console:bob or console:farah will be asked "
                "at slack:v1:x. After 1 day 20 hours it counts as denied."
            ),
        ),
    ]


class Judge:
    name = "judge"

    async def reply(self, *_: object) -> Any:
        raise AssertionError("nobody asks it to explain")


@pytest.mark.parametrize(
    ("approval", "more", "last", "stand"),
    [
        (None, {}, "It runs at once, as Alice.", "passes"),
        (never, {}, "It runs at once, as Alice.", "passes"),
        (Approval(when=over("amount", 9)), {}, "It runs at once, as Alice.", "passes"),
        (once(), {"granted": True}, "It runs at once, as Alice.", "passes"),
        (once(), {}, "After 4 hours they are reminded. After 3 days without an answer it counts as denied.", "asks"),
        (lambda _: deny("no"), {}, "It asks as <lambda>() says: refused, no", "stops"),
        (
            auto(Judge(), criteria=["ok"]),
            {},
            "After 4 hours they are reminded. After 3 days without an answer it counts as denied.",
            "asks",
        ),
        (always, {"arguments": {"amount": "x"}}, "amount: Input should be a valid integer", "stops"),
        (Approval(by=[ALICE.id]), {}, "Nobody may approve this call, since whoever asks may not approve their own.", "stops"),
        (Approval(expires=None), {}, "It waits for as long as the session lives.", "asks"),
        (
            Approval(on_expiry="cancel", remind_after=None),
            {},
            "After 3 days without an answer it is cancelled with its turn.",
            "asks",
        ),
        (never, {"tainted": True, "effect": "read"}, "It runs at once, as Alice.", "passes"),
        (never, {"tainted": True, "untrusted": "allow"}, "It runs at once, as Alice.", "passes"),
        (
            never,
            {"tainted": True},
            "After 4 hours they are reminded. After 3 days without an answer it counts as denied.",
            "asks",
        ),
    ],
)
async def test_where_a_call_ends(approval: Any, more: dict[str, Any], last: str, stand: str) -> None:
    found = await lines(approval, **more)
    assert found[-1][1:] == (stand, last)


async def test_a_function_that_fails_asks_here_too() -> None:
    def fails(_: object) -> bool:
        raise LookupError

    found = await lines(fails, deciding=Deciding(seconds=1))
    assert found[1] == ("policy", "asks", "It asks as fails() says: this call does.")


async def test_who_may_answer_is_said_with_what_they_may_change() -> None:
    found = {name: says for name, _, says in await lines(Approval(by=[BOB.id], self_ok=True, edit=["amount"]))}
    assert (
        found["answer"] == "console:bob may answer, the requester among them if it says so; whoever approves may change amount."
    )


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (timedelta(seconds=1), "1 second"),
        (timedelta(minutes=90), "1 hour 30 minutes"),
        (timedelta(days=2, seconds=5), "2 days 5 seconds"),
        (timedelta(0), "no time"),
    ],
)
def test_a_time_is_said_in_its_two_largest_units(time: timedelta, words: str) -> None:
    assert length(time) == words


HUB = OAuthConnection("hub", title="GitHub", scopes=("repo",))
SHOP = OAuthConnection("shop", title="Shop", owner="app")


async def accounts(*connections: OAuthConnection, who: Principal = ALICE, **more: Any) -> list[tuple[str, str, str]]:
    gates = await explain(tool(connections=connections, **more)(refund), who, {"amount": 5})
    told: list[tuple[str, str, str]] = [(gate.name, gate.stand, gate.says) for gate in gates]
    return told[3 if "approval" not in more else 6 :]


async def test_accounts_come_last() -> None:
    words = "It acts with Alice's account at GitHub (repo). Without one, Alice alone is asked to connect it, within 1 day."
    assert await accounts(HUB) == [("sign-in", "asks", words)]
    assert await accounts(HUB, approval=always) == [("sign-in", "asks", words)]
    assert await accounts(SHOP) == [
        ("account", "passes", "It acts with the app's own account at Shop."),
        ("run", "passes", "It runs at once, as Alice."),
    ]
    assert await accounts(HUB, who=NOBODY) == [
        ("sign-in", "stops", "It acts with the account of whoever asks at GitHub, and nobody does.")
    ]
