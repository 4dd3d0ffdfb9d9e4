"""What is owed is drawn when it is sent: cards of one prompt or several, remarks, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from bot.egress import Egress
from channels import Outbound
from durable_core import codec
from durable_core.model import OutboxItem, Prompt, PromptOutcome
from durable_core.store import Store
from tests.bot.asked import prompt, settled


@dataclass
class Kept:
    """A store that has only prompts."""

    prompts: dict[str, Prompt]

    async def prompt(self, prompt_id: str) -> Prompt:
        return self.prompts[prompt_id]

    async def rows(self, sql: str, parameters: dict[str, Any]) -> list[tuple[str]]:
        assert "group_id = :card" in sql
        return [(one.prompt_id,) for one in self.prompts.values() if one.group == parameters["card"]]


async def drawn(body: dict[str, Any], *prompts: Prompt, of: str | None = None) -> Outbound:
    store = Kept({one.prompt_id: one for one in prompts})
    egress = Egress(store=cast("Store", store), channels={}, owner="w1")
    item = OutboxItem(
        delivery_id="dlv_1",
        run_id="ses_1",
        run_name="support",
        body=codec.encode(body),
        prompt_id=of,
        edit_of=None,
        edit_ref=None,
        attempts=0,
        last_error=None,
    )
    return await egress._render(item)


def group(count: int) -> list[Prompt]:
    rows = [{"group": "prm_1", "call_id": f"0.0.{number}"} for number in range(1, count + 1)]
    return [prompt(f"Deploy {number}?", f"prm_{number}", row=row) for number, row in enumerate(rows, start=1)]


async def test_prompts_of_one_card_stand_on_it_in_their_order() -> None:
    twelve = group(12)
    shown = await drawn({"kind": "card"}, *reversed(twelve), of="prm_1")
    assert shown.card is not None
    assert [item.question for item in shown.card.items] == [f"Deploy {number}?" for number in range(1, 13)]


async def test_one_prompt_is_a_card_of_its_own_with_what_came_of_it() -> None:
    shown = await drawn({"kind": "card", "result": "refunded"}, settled(prompt("Refund?"), PromptOutcome.APPROVED), of="prm_1")
    assert shown.card is not None
    assert shown.card.outcome is not None
    assert (shown.card.items, shown.card.outcome.result) == ((), "refunded")


async def test_results_of_several_calls_stand_at_their_items() -> None:
    two = [settled(one, PromptOutcome.APPROVED) for one in group(2)]
    told = {"prm_2": {"result": "deployed", "status": "completed"}}
    shown = await drawn({"kind": "card", "results": told}, *two, of="prm_1")
    assert shown.card is not None
    assert [item.outcome.result for item in shown.card.items if item.outcome] == ["", "deployed"]


async def test_a_card_for_one_reader_is_theirs_alone_and_a_plain_one_is_text() -> None:
    shown = await drawn({"kind": "card", "private_to": "slack:T1:UALICE"}, prompt("Refund?"), of="prm_1")
    assert shown.private_to == "UALICE"
    plain = await drawn({"kind": "card", "plain": True}, prompt("Refund?"), of="prm_1")
    assert plain.card is None
    assert "1. Approve\n2. Deny\nAnswer with the number." in plain.text


async def test_a_remark_calls_those_it_is_for() -> None:
    shown = await drawn({"kind": "notice", "text": "Still waiting.", "mentions": ["slack:T1:UALICE", "slack:T1:UBOB"]})
    assert (shown.text, shown.notice, shown.mentions) == ("Still waiting.", True, ("UALICE", "UBOB"))
