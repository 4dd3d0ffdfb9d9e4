"""What a click leads to: one answer, one for each open approval of a card, or a form that opens once the click is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pytest

from bot.answers import Answers
from bot.ingress import ClickResult, Ingress
from channels import Capabilities, Channel, Delivery, DeliveryFailed, Form, MessageRef, Verified, WebhookRequest
from channels import Ingress as Heard
from channels.events import Author, Click, Place, Standing
from durable_core.errors import NotFound
from durable_core.model import AnswerReceipt, AnswerStatus, Prompt, PromptOutcome
from durable_core.store import Store
from tests.bot.asked import prompt, settled

EDIT = [{"name": "amount", "label": "amount", "value": "140", "multiline": False}]
REFUND = prompt("Refund 140?", note=True, edit=EDIT, allow_freeform=True)


@dataclass
class Kept:
    """A store that has only prompts."""

    prompts: dict[str, Prompt]

    async def prompt(self, prompt_id: str) -> Prompt:
        if prompt_id not in self.prompts:
            raise NotFound("prompt", prompt_id)
        return self.prompts[prompt_id]

    async def open_prompts(self, run_id: str) -> list[Prompt]:
        return [one for one in self.prompts.values() if one.run_id == run_id and one.outcome is None]


@dataclass
class Told:
    """Answers that are only written down; `refused` are prompts whose answer is."""

    prompts: dict[str, Prompt]
    refused: set[str] = field(default_factory=set)
    given: list[dict[str, Any]] = field(default_factory=list)
    at: tuple[str, str] = ("formal", "formal:v1:a")
    """Where all cards were put."""

    async def put_at(self, asked: Prompt, at: tuple[str, str]) -> bool:
        return asked.prompt_id in self.prompts and at == self.at

    async def admit(self, prompt_id: str, option_id: str, **more: Any) -> AnswerReceipt:
        asked = self.prompts[prompt_id]
        self.given.append({"prompt": prompt_id, "option": option_id, **more})
        status = AnswerStatus.REFUSED if prompt_id in self.refused else AnswerStatus.SETTLED
        status = AnswerStatus.ALREADY_SETTLED if asked.outcome is not None else status
        reason = "not_yours" if status is AnswerStatus.REFUSED else None
        return AnswerReceipt(status=status, submission_id="sub_1", run_id="ses_1", reason=reason, prompt=asked)


class Formal(Channel):
    """A channel with forms; a request is what it hears."""

    name: ClassVar[str] = "formal"
    capabilities: ClassVar[Capabilities] = Capabilities(buttons=True, forms=True)

    def __init__(self) -> None:
        self.opened: list[tuple[Click, Form, str]] = []
        self.failure: Exception | None = None
        self.heard: Click | None = None

    async def verify(self, request: WebhookRequest) -> Verified:
        return Verified(request, "believed")

    def parse(self, verified: Verified) -> Heard:
        assert self.heard is not None
        return Heard((self.heard,))

    async def send(self, delivery: Delivery) -> MessageRef:
        return MessageRef(self.name, delivery.address, id=delivery.id)

    async def open_form(self, click: Click, form: Form, *, question: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.opened.append((click, form, question))


@dataclass
class Desk:
    """An ingress with its parts, to click on."""

    prompts: dict[str, Prompt]
    channel: Formal = field(default_factory=Formal)

    def __post_init__(self) -> None:
        self.answers = Told(self.prompts)
        self.taker = Ingress(
            store=cast("Store", Kept(self.prompts)),
            channels={"formal": self.channel},
            agent_of={},
            answers=cast("Answers", self.answers),
            deployment="d",
            lifetime_ms=None,
        )

    async def click(self, value: str, *, trigger: str = "t1", fields: Mapping[str, str] | None = None) -> list[ClickResult]:
        who = Author("alice", "Alice", standing=Standing.MEMBER)
        self.channel.heard = Click(
            "formal:v1:a", who, value=value, key="k", place=Place("channel"), fields=fields or {}, trigger=trigger
        )
        taken = await self.taker.receive("formal", WebhookRequest("POST", "/"))
        assert taken.response.status == 200
        return list(taken.clicks)

    async def opened(self) -> None:
        while self.taker.opening:
            await asyncio.gather(*self.taker.opening)


def group(*outcomes: PromptOutcome | None, kinds: Mapping[int, str] | None = None) -> dict[str, Prompt]:
    found: dict[str, Prompt] = {}
    for number, outcome in enumerate(outcomes, start=1):
        kind = (kinds or {}).get(number, "approval")
        one = prompt(f"Deploy {number}?", f"prm_{number}", kind=kind, row={"group": "prm_1"})
        found[one.prompt_id] = one if outcome is None else settled(one, outcome)
    return found | {"prm_other": prompt("Another card?", "prm_other")}


# ── one ──


async def test_an_option_is_one_answer_with_what_was_filled_in() -> None:
    desk = Desk({"prm_1": REFUND})
    (result,) = await desk.click("prm_1:approve", fields={"edit.amount": "20"})
    assert result.status == "settled"
    (given,) = desk.answers.given
    way = given["way"]
    assert (given["prompt"], given["option"], way.key, given["fields"]) == ("prm_1", "approve", "k", {"edit.amount": "20"})
    assert way.at == way.tell_at == ("formal", "formal:v1:a")
    assert way.together == ()
    await desk.click("prm_1:", fields={"text": "my own"})
    assert (desk.answers.given[-1]["option"], desk.answers.given[-1]["fields"]) == ("", {"text": "my own"})


# ── all ──


@pytest.mark.parametrize("choice", ["approve", "deny"])
async def test_all_is_an_answer_for_each_open_approval_of_the_card(choice: str) -> None:
    desk = Desk(group(None, PromptOutcome.DENIED, None, None, kinds={4: "rerun"}))
    results = await desk.click(f"prm_1:*{choice}")
    assert [(given["prompt"], given["option"], given["way"].key) for given in desk.answers.given] == [
        ("prm_1", choice, "k#prm_1"),
        ("prm_3", choice, "k#prm_3"),
    ]
    assert [result.status for result in results] == ["settled", "settled"]


async def test_who_may_not_answer_some_is_told_once_and_answers_the_others() -> None:
    desk = Desk(group(None, None, None))
    desk.answers.refused = {"prm_1", "prm_2"}
    results = await desk.click("prm_1:*approve")
    assert [result.status for result in results] == ["refused", "refused", "settled"]
    ways = [given["way"] for given in desk.answers.given]
    assert len({way.submission_id for way in ways}) == 3
    assert {way.together for way in ways} == {tuple(way.submission_id for way in ways)}  # told in one


async def test_all_of_a_card_that_is_settled_says_by_whom() -> None:
    desk = Desk(group(PromptOutcome.APPROVED, PromptOutcome.DENIED))
    (result,) = await desk.click("prm_1:*approve")
    assert (result.status, result.reason) == ("already_settled", "This was settled before: Approved by Farah.")


async def test_all_of_what_is_not_known_is_refused() -> None:
    (result,) = await Desk({}).click("prm_forged:*approve")
    assert result.reason == "This request is no longer known. Ask again."
    desk = Desk(group(None))
    (result,) = await desk.click("prm_1:*delete")
    assert (result.status, desk.answers.given) == ("refused", [])


# ── forms ──


@pytest.mark.parametrize(("form", "value"), [("approve", "prm_1:approve"), ("deny", "prm_1:deny"), ("text", "prm_1:")])
async def test_a_form_opens_after_the_click_was_answered(form: str, value: str) -> None:
    desk = Desk({"prm_1": REFUND})
    (result,) = await desk.click(f"prm_1:?{form}")
    assert (result.status, desk.channel.opened) == ("form", [])
    await desk.opened()
    ((click, opened, question),) = desk.channel.opened
    assert (click.trigger, opened.value, question) == ("t1", value, "Refund 140?")
    assert desk.answers.given == []


async def test_a_form_of_a_card_that_was_put_elsewhere_is_not_shown() -> None:
    desk = Desk({"prm_1": REFUND})
    desk.answers.at = ("formal", "formal:v1:b")
    (result,) = await desk.click("prm_1:?approve")
    await desk.opened()
    assert (result.status, desk.channel.opened) == ("refused", [])
    assert result.reason == "This request is not known here. Answer it where it was asked."


async def test_a_form_that_does_not_open_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for failure in (DeliveryFailed("expired_trigger_id", permanent=False), RuntimeError("broken")):
        desk = Desk({"prm_1": REFUND})
        desk.channel.failure = failure
        await desk.click("prm_1:?deny")
        await desk.opened()
        assert "a form was not opened" in caplog.text or isinstance(failure, DeliveryFailed)
        assert desk.answers.given == []


@pytest.mark.parametrize("form", ["approve", "deny", "text"])
async def test_no_form_opens_for_what_is_settled(form: str) -> None:
    desk = Desk({"prm_1": settled(REFUND, PromptOutcome.DENIED)})
    (result,) = await desk.click(f"prm_1:?{form}")
    assert (result.status, result.reason) == ("already_settled", "This was settled before: Denied by Farah.")
    await desk.opened()
    assert desk.channel.opened == []


async def test_a_form_that_is_none_or_has_no_trigger_is_refused() -> None:
    desk = Desk({"prm_1": REFUND})
    assert [one.status for one in await desk.click("prm_1:?delete")] == ["refused"]
    assert [one.status for one in await desk.click("prm_1:?deny", trigger="")] == ["refused"]
    assert [one.status for one in await desk.click("prm_2:?deny")] == ["refused"]
    await desk.opened()
    assert desk.channel.opened == []


async def test_what_no_database_takes_is_not_taken() -> None:
    desk = Desk({"prm_1": REFUND})
    assert await desk.click("prm_1:deny", fields={"note": "a\0"}) == []
    assert desk.answers.given == []
