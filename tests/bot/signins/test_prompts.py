"""Links over the session API: for the one who is asked, each one new, and nothing of them in any list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.answers import Answers
from bot.cards import card, status_card
from bot.errors import Problem
from bot.principal import Principal
from bot.prompts import Prompts
from channels.events import Standing
from durable_core import codec
from durable_core.errors import NotFound
from durable_core.testing import builders
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk, through

ALICE = Principal("api:alice", "Alice", Standing.MEMBER, channel="api")
MALLORY = Principal("api:mallory", "Mallory", Standing.MEMBER, channel="api")
CREATOR = Principal(builders.ALICE, "Alice of the session", Standing.MEMBER, channel="console")
NOBODY = Principal("", "", Standing.MEMBER, channel="api")


def prompts(desk: Desk, *, offers: bool = True) -> Prompts:
    answers = Answers(store=desk.store, agents={})
    return Prompts(store=desk.store, answers=answers, offer=desk.sign_ins.offer if offers else None)


async def listed(desk: Desk, caller: Principal, **query: Any) -> list[dict[str, Any]]:
    asked = {"everyone": False, "session_id": None, "mine": False, "after": None, "limit": 100} | query
    return list((await prompts(desk).listed(caller, **asked))["prompts"])


async def refused(desk: Desk, prompt_id: str, caller: Principal, **options: bool) -> tuple[int, str]:
    with pytest.raises(Problem) as problem:
        await prompts(desk, **options).connect(caller, prompt_id, key=None)
    return problem.value.status, problem.value.code


async def test_the_one_who_is_asked_gets_a_fresh_link_each_time(desk: Desk) -> None:
    prompt_id = await desk.asked(who=ALICE)
    first = await prompts(desk).connect(ALICE, prompt_id, key="k")
    again = await prompts(desk).connect(ALICE, prompt_id, key="k")
    assert first.keys() == {"url", "code", "expires_at"}
    assert first["url"].startswith(f"{desk.url}/connect/")
    assert first["url"] != again["url"]
    assert first["expires_at"].endswith("Z")
    assert (await desk.prompt(prompt_id)).outcome is None
    acts = [entry.act for entry in await desk.store.audit(after=0, limit=100, prompt_id=prompt_id)]
    assert acts.count("aside") == 1  # the same key is the same asking


async def test_the_link_leads_to_the_page(desk: Desk, alice: Browser) -> None:
    given = await prompts(desk).connect(ALICE, await desk.asked(who=ALICE), key=None)
    page = await alice.open(given["url"])
    assert page.status == 200
    assert "Alice" in page.text


async def test_nobody_else_gets_one_and_strangers_learn_nothing(desk: Desk) -> None:
    prompt_id = await desk.asked(who=ALICE)
    for stranger in (MALLORY, NOBODY):
        with pytest.raises(NotFound):
            await prompts(desk).connect(stranger, prompt_id, key=None)
    assert await refused(desk, prompt_id, CREATOR) == (403, "not_yours")
    with pytest.raises(NotFound):
        await prompts(desk).connect(ALICE, "prm_none", key=None)


async def test_where_there_is_nothing_to_connect_that_is_said(desk: Desk) -> None:
    prompt_id = await desk.asked(who=ALICE)
    assert await refused(desk, prompt_id, ALICE, offers=False) == (409, "nothing_to_connect")
    offer = await desk.sign_ins.offer(prompt_id)
    await desk.sign_ins.decline(offer.url.rpartition("/")[2], {})
    assert (await desk.prompt(prompt_id)).outcome is not None
    assert await refused(desk, prompt_id, ALICE) == (409, "nothing_to_connect")


async def test_without_an_address_of_the_app_there_is_no_link_for_now(desk: Desk) -> None:
    prompt_id = await desk.asked(who=ALICE)
    desk.sign_ins.connections.public_url = None
    assert await refused(desk, prompt_id, ALICE) == (503, "not_ready")


async def test_a_list_shows_what_is_asked_and_no_secret(desk: Desk) -> None:
    prompt_id = await desk.asked(who=ALICE)
    given = await prompts(desk).connect(ALICE, prompt_id, key=None)
    for caller, query in ((ALICE, {}), (ALICE, {"mine": True}), (MALLORY, {"everyone": True})):
        (row,) = await listed(desk, caller, **query)
        assert (row["request_id"], row["kind"], row["requester"]) == (prompt_id, "sign-in", ALICE.id)
        assert [option["id"] for option in row["options"]] == ["connect", "cancel"]
        shown = json.dumps(row)
        for secret in (given["url"].rpartition("/")[2], given["code"] or "CANARY", "CANARY", "/connect/", "http"):
            assert secret not in shown
    assert await listed(desk, MALLORY) == []


async def test_readers_of_the_session_learn_that_it_is_connected_and_nothing_private(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer, _ = await through(desk, alice, prompt_id)
    prompt = await desk.prompt(prompt_id)
    told = [codec.decode(event.body) for event in await desk.store.events(prompt.run_id, limit=100)]
    shown = json.dumps(told)
    assert prompt_id in shown
    for secret in (offer.url.rpartition("/")[2], offer.code or "-", "CANARY", "alice@tracker", "/connect/"):
        assert secret not in shown
    assert await listed(desk, MALLORY, everyone=True) == []
    drawn = card([prompt]).outcome
    assert drawn is not None
    assert (drawn.note, drawn.result) == ("", "Tracker is connected as alice@tracker.")
    assert "alice@tracker" not in json.dumps(status_card(prompt).to_json())
