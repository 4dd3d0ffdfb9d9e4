"""What goes on without any browser: what a process that is gone has left, and how the private words of a link are sent.

What lives here: the sweep, egress, `run_due`. What does not: real deaths (test_kills.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bot.egress import NO_SIGN_INS, Egress
from bot.signins.attempt import Attempt, Stage
from bot.signins.keeping import EXCHANGE_MS, SOON_MS
from bot.signins.values import Offer
from channels.outbound import Outbound
from durable_core import codec
from durable_core.errors import NotFound
from durable_core.failpoints import arm
from durable_core.model import OutboxItem, PromptOutcome, VaultWrite
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import ALICE, Desk, through


class Died(Exception):
    """What a failpoint raises in place of the death of a process."""


def die() -> None:
    raise Died


async def cut_off(desk: Desk, browser: Browser, prompt_id: str, failpoint: str) -> Offer:
    """Come back from the provider, with a process that ends there; the link."""
    with arm(failpoint, die, on=1):
        offer = await desk.offered(prompt_id)
        await browser.open(offer.url)
        await browser.press(code=offer.code or "")
        await browser.go_on()
    return offer


async def test_nothing_is_due_while_somebody_is_at_it(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    await desk.offered(prompt_id)
    await cut_off(desk, alice, prompt_id, "connect.before_exchange")
    assert await desk.sign_ins.sweep() == 0
    desk.later(milliseconds=EXCHANGE_MS - 1)
    assert await desk.sign_ins.sweep() == 0
    desk.later(milliseconds=1)
    assert await desk.sign_ins.sweep() == 1
    assert await desk.sign_ins.sweep() == 0


@pytest.mark.parametrize("failpoint", ["connect.after_callback", "connect.after_store", "connect.before_settle"])
async def test_what_is_not_spent_or_is_stored_is_completed_by_any_replica(desk: Desk, alice: Browser, failpoint: str) -> None:
    prompt_id = await desk.asked()
    offer = await cut_off(desk, alice, prompt_id, failpoint)
    assert (await desk.prompt(prompt_id)).outcome is None
    desk.replicas.turn = 1
    desk.later(milliseconds=SOON_MS)
    assert await desk.sign_ins.sweep() == 1
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    assert len(desk.provider.exchanged) == 1
    assert (await desk.attempt(offer)).settled
    assert await desk.sign_ins.sweep() == 0


@pytest.mark.parametrize("failpoint", ["connect.before_exchange", "connect.after_exchange"])
async def test_what_may_be_spent_is_asked_for_anew(desk: Desk, alice: Browser, failpoint: str) -> None:
    prompt_id = await desk.asked()
    await cut_off(desk, alice, prompt_id, failpoint)
    spent = len(desk.provider.exchanged)
    desk.later(milliseconds=EXCHANGE_MS)
    await asyncio.gather(*(replica.sweep() for replica in desk.replicas.all))
    assert len(desk.provider.exchanged) == spent
    assert (await desk.prompt(prompt_id)).outcome is None
    [(who, line)] = await desk.lines()
    assert who == "chat:alice"
    assert line.startswith("It was cut off while Tracker was asked")
    assert (await through(desk, alice, prompt_id))[1].status == 200


async def test_an_exchange_that_ends_after_it_was_given_up_is_given_back(desk: Desk, alice: Browser) -> None:
    desk.provider.gate = asyncio.Event()
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    back = asyncio.create_task(alice.go_on())
    await desk.provider.asked.wait()
    desk.later(milliseconds=EXCHANGE_MS)
    desk.replicas.turn = 1
    assert await desk.sign_ins.sweep() == 1
    desk.provider.gate.set()
    page = await back
    assert page.status == 400
    assert desk.provider.revoked == ["CANARY-refresh", "CANARY-access"]
    assert await desk.credential() is None
    assert (await desk.attempt(offer)).stage is Stage.FAILED


async def test_what_cannot_be_told_now_is_told_later(desk: Desk, alice: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt_id = await desk.asked()
    await cut_off(desk, alice, prompt_id, "connect.before_settle")
    desk.later(milliseconds=SOON_MS)
    with arm("connect.before_settle", die, on=1):
        assert await desk.sign_ins.sweep() == 1
        assert await desk.sign_ins.sweep() == 0
    desk.later(minutes=1)
    assert await desk.sign_ins.sweep() == 1
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_what_a_newer_version_has_begun_is_left_to_it(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await cut_off(desk, alice, prompt_id, "connect.after_callback")
    attempt = await desk.attempt(offer)
    strange: dict[str, Any] = {**attempt.to_json(), "attempt_id": "sgn_other", "stage": "pondering"}
    write = VaultWrite(name="signin/sgn_other", kind="sign-in", owner=ALICE.id, value=codec.encode(strange), due_at=1)
    assert await desk.store.vault_write([write]) is not None
    desk.later(milliseconds=SOON_MS)
    assert await desk.sign_ins.sweep() == 1
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


def test_what_is_kept_reads_back_the_same_and_what_another_version_adds_is_left_out() -> None:
    attempt = Attempt(
        attempt_id="sgn_1", principal="chat:alice", person="Alice", connection="tracker", owner="", link_hash="h", valid_until=1
    )
    changed = replace(attempt, stage=Stage.STARTED, scopes=("a", "b"), tries=2, settled=True)
    for one in (attempt, changed):
        assert Attempt.from_json({**one.to_json(), "more": 1}) == one


def test_no_secret_is_shown_by_what_is_kept() -> None:
    attempt = Attempt(
        attempt_id="sgn_1",
        principal="chat:alice",
        person="Alice",
        connection="tracker",
        owner="",
        link_hash="CANARY",
        code_hash="CANARY",
        browser_hash="CANARY",
        state_hash="CANARY",
        spent_hash="CANARY",
        nonce="CANARY",
        verifier="CANARY",
        code="CANARY",
        device_code="CANARY",
        valid_until=1,
    )
    assert "CANARY" not in repr(attempt)
    assert "CANARY" not in repr(Offer(url="CANARY", code="CANARY", words="CANARY"))


# ── the private words ──


def item(desk: Desk, prompt_id: str, run_id: str) -> OutboxItem:
    body = codec.encode({"kind": "connect", "prompt_id": prompt_id, "private_to": ALICE.id})
    return OutboxItem(
        delivery_id="dlv_1",
        run_id=run_id,
        run_name="helper",
        body=body,
        prompt_id=None,
        edit_of=None,
        edit_ref=None,
        attempts=0,
        last_error=None,
    )


Rendered = Callable[[str], Any]


@pytest.fixture
def rendered(desk: Desk) -> Rendered:
    async def render(prompt_id: str) -> Outbound:
        egress = Egress(store=desk.store, channels={}, owner="w1", sign_ins=desk.sign_ins)
        run_id = (await desk.prompt(prompt_id)).run_id
        return await egress._render(item(desk, prompt_id, run_id))

    return render


async def test_the_words_of_a_link_are_for_the_person_alone_and_fresh_each_time(desk: Desk, rendered: Rendered) -> None:
    prompt_id = await desk.asked()
    first, second = await rendered(prompt_id), await rendered(prompt_id)
    assert first.private_to == "alice"
    assert first.notice
    assert f"{desk.url}/connect/sgn_" in first.text
    assert re.search(r"\b\d{6}\b", first.text)
    assert first.text != second.text


async def test_the_words_once_it_is_settled(desk: Desk, alice: Browser, rendered: Rendered) -> None:
    prompt_id = await desk.asked()
    await through(desk, alice, prompt_id)
    told = await rendered(prompt_id)
    assert told.text == "Alice connected Tracker. There is nothing to connect."


async def test_the_words_where_the_app_has_no_address(desk: Desk, rendered: Rendered) -> None:
    prompt_id = await desk.asked()
    desk.connections.public_url = None
    assert (await rendered(prompt_id)).text == "MOORINGS_PUBLIC_URL is not set, so nobody can be sent a link to sign in."


async def test_the_words_where_nothing_is_there_to_sign_in_to(desk: Desk) -> None:
    prompt_id = await desk.asked()
    egress = Egress(store=desk.store, channels={}, owner="w1")
    assert (await egress._render(item(desk, prompt_id, "ses_1"))).text == NO_SIGN_INS
    desk.connections.by_name.clear()
    offer = await desk.offered(prompt_id)
    assert (offer.url, offer.words) == (
        "",
        "Tracker can't be connected any more: the app has been changed. Cancel, and ask again.",
    )


async def test_a_link_is_only_for_what_asks_for_an_account(desk: Desk) -> None:
    with pytest.raises(NotFound):
        await desk.sign_ins.offer("prm_unknown")
