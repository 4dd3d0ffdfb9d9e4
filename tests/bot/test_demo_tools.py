"""The demo's tools and its ledger: a refund happens once per key, and the right person approves it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from bot.context import ToolContext
from bot.deciding import Deciding
from bot.demo import DemoDeps, KeyReused, Payments, open_deps, refund_charge, slow, support
from bot.history import ResultStatus
from bot.tools import Interrupt
from tests.bot.people import ALICE, BOB, FARAH


def context(deps: DemoDeps, call_id: str = "0.1.0", attempt: int = 1) -> ToolContext[DemoDeps]:
    return ToolContext("ses_1", ALICE, call_id=call_id, deps=deps, attempt=attempt)


def test_the_demo_agent_has_no_problems() -> None:
    assert support.problems() == ()
    assert support.tool("refund_charge") is refund_charge
    assert support.tool("nope") is None


async def test_a_refund_run_again_with_its_key_moves_no_money() -> None:
    async with open_deps() as deps:
        arguments = {"charge_id": "ch_1", "amount": "20.50"}
        first = await refund_charge.run(context(deps), arguments)
        again = await refund_charge.run(context(deps, attempt=2), arguments)
        assert first.content == again.content == "Refunded 20.50 for ch_1, receipt rf_0001."
        other = await refund_charge.run(context(deps, "1.0.0"), arguments)
        assert other.content == "Refunded 20.50 for ch_1, receipt rf_0002."
        refunds = await deps.payments.refunds()
        assert [(r.id, r.idempotency_key, r.amount, r.requested_by) for r in refunds] == [
            ("rf_0001", "ses_1:0.1.0", Decimal("20.50"), "console:alice"),
            ("rf_0002", "ses_1:1.0.0", Decimal("20.50"), "console:alice"),
        ]


async def test_two_at_once_with_one_key_get_one_receipt() -> None:
    async with open_deps() as deps:
        pay = [deps.payments.refund("ch_1", Decimal(5), idempotency_key="k", requested_by="console:alice") for _ in range(20)]
        assert len(set(await asyncio.gather(*pay))) == 1
        assert len(await deps.payments.refunds()) == 1


async def test_the_ledger_outlives_the_process_and_is_shared(tmp_path: Path) -> None:
    async with open_deps(tmp_path) as deps:
        receipt = await deps.payments.refund("ch_1", Decimal(5), idempotency_key="k", requested_by="a")
        async with open_deps(tmp_path) as second:
            assert await second.payments.refunds() == [receipt]
    async with open_deps(tmp_path) as deps:
        assert await deps.payments.refund("ch_1", Decimal("5.00"), idempotency_key="k", requested_by="a") == receipt
    assert (tmp_path / "payments.db").exists()


async def test_a_key_reused_for_another_refund_is_refused() -> None:
    async with open_deps() as deps:
        await deps.payments.refund("ch_1", Decimal(5), idempotency_key="k", requested_by="a")
        with pytest.raises(KeyReused):
            await deps.payments.refund("ch_1", Decimal(6), idempotency_key="k", requested_by="a")


@pytest.mark.parametrize(
    "arguments",
    [
        {"charge_id": "ch_1", "amount": "0"},
        {"charge_id": "ch_1", "amount": "-1"},
        {"charge_id": "ch_1", "amount": "1.001"},
        {"charge_id": "", "amount": "1"},
        {"charge_id": "ch_1"},
    ],
)
async def test_a_senseless_refund_fails_before_the_ledger(arguments: dict[str, str]) -> None:
    async with open_deps() as deps:
        outcome = await refund_charge.run(context(deps), {**arguments})
        assert outcome.status is ResultStatus.FAILED
        assert await deps.payments.refunds() == []


async def test_every_refund_asks_in_plain_words() -> None:
    call = refund_charge.call({"charge_id": "ch_1", "amount": "20"}, "0.0.0", requester=ALICE)
    assert refund_charge.approval is not None
    assert (await Deciding().rule(refund_charge.approval, call)).says == "ask"
    assert refund_charge.approval.question(call) == "Refund 20 for ch_1?"
    assert refund_charge.approval.answerers(call) == ALICE.name
    large = refund_charge.call({"charge_id": "ch_1", "amount": "140"}, "0.0.0", requester=ALICE)
    assert refund_charge.approval.answerers(large) == "Finance"
    assert refund_charge.on_interrupt is Interrupt.RERUN


@pytest.mark.parametrize(
    ("amount", "alice", "bob", "farah"),
    [("20", True, False, False), ("100", True, False, False), ("100.01", False, False, True), ("5000", False, False, True)],
)
async def test_small_refunds_are_the_requesters_and_large_ones_finances(amount: str, alice: bool, bob: bool, farah: bool) -> None:
    approval = refund_charge.approval
    assert approval is not None
    call = refund_charge.call({"charge_id": "ch_1", "amount": amount}, "0.0.0", requester=ALICE)
    assert [await Deciding().may_answer(approval, call, person) for person in (ALICE, BOB, FARAH)] == [alice, bob, farah]


async def test_slow_says_when_it_starts_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []
    heard: list[str] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def hear(text: str) -> None:
        heard.append(text)

    payments = Payments()
    ctx = ToolContext("ses_1", ALICE, call_id="0.1.0", deps=DemoDeps(payments, sleep), attempt=2, on_progress=hear)
    outcome = await slow.run(ctx, {"seconds": 30})
    payments.close()
    assert outcome.content == "That took 30 s."
    assert slept == [1.0] * 30
    assert heard[0] == "1.0 of 30 s"
    assert capsys.readouterr().out == (
        "slow: start, 30 s, key ses_1:0.1.0, attempt 2\nslow: end, 30 s, key ses_1:0.1.0, attempt 2\n"
    )
    assert slow.on_interrupt is Interrupt.RERUN


async def test_slow_waits_what_it_was_asked_and_no_more() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    payments = Payments()
    ctx = ToolContext("ses_1", ALICE, call_id="0.1.0", deps=DemoDeps(payments, sleep))
    await slow.run(ctx, {"seconds": 0.75})
    assert sum(slept) == pytest.approx(0.75)
    assert max(slept) <= 0.25
    assert (await slow.run(ctx, {"seconds": 601})).status is ResultStatus.FAILED
    payments.close()
