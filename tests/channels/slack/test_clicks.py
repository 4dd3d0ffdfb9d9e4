"""A click on one of our buttons is read with who, where and when; any other is left aside."""

from __future__ import annotations

from typing import Any

import pytest

from channels import Click, Ignored
from channels.slack.reading import fields_of
from tests.channels.slack.fake import BOT, CHANNEL, ROOT, TEAM
from tests.channels.slack.payloads import Json, click, envelope, heard, mention

STAMP = "1799999001.000100"


async def clicked(body: Json) -> Click:
    event = await heard(body)
    assert isinstance(event, Click), event
    return event


async def test_a_click_belongs_to_the_thread_of_its_card() -> None:
    event = await clicked(click())
    asked = await heard(envelope(mention()))
    assert not isinstance(asked, Ignored)
    assert event.address == asked.address
    assert (event.value, event.author.id, event.author.name) == ("prm_1:approve", "UALICE", "alice")
    assert event.author.tenancy == asked.author.tenancy
    assert event.key == f"{TEAM}:{CHANNEL}:{STAMP}:1799999002.000100:UALICE"


async def test_a_click_on_a_private_card_is_read_from_its_container() -> None:
    body = click()
    del body["message"]
    assert (await clicked(body)).address.endswith(f":{CHANNEL}:{ROOT}")


async def test_a_click_in_a_direct_message_belongs_to_the_one_session() -> None:
    body = click(channel={"id": "D1"}, container={"message_ts": STAMP, "channel_id": "D1"}, message={"ts": STAMP, "user": BOT})
    assert (await clicked(body)).address == f"slack:v1:-:{TEAM}:D1:dm"
    replied = body | {"message": {"ts": STAMP, "thread_ts": STAMP}}
    assert (await clicked(replied)).address.endswith(":D1:dm")
    threaded = body | {"message": {"ts": STAMP, "thread_ts": ROOT}}
    assert (await clicked(threaded)).address.endswith(f":D1:{ROOT}")


async def test_an_organisation_wide_click_has_the_address_of_its_message() -> None:
    wide = {"enterprise_id": "E1", "team_id": TEAM, "user_id": BOT, "is_enterprise_install": True}
    asked = await heard(envelope(mention(), authorizations=[wide]))
    body = click(enterprise={"id": "E1", "name": "Acme"}, is_enterprise_install=True, team=None)
    event = await clicked(body)
    assert not isinstance(asked, Ignored)
    assert (event.address, event.author.tenancy) == (asked.address, asked.author.tenancy)


async def test_two_presses_are_two_events_and_a_repeat_is_one() -> None:
    again = click()
    again["actions"][0]["action_ts"] = "1799999003.000100"
    assert (await clicked(click())).key == (await clicked(click())).key != (await clicked(again)).key


@pytest.mark.parametrize(
    "change",
    [
        {"action_id": "feedback"},
        {"action_id": None},
        {"value": ""},
        {"value": "x" * 256},
        {"value": 7},
        {"action_ts": "now"},
    ],
)
async def test_what_is_not_ours_is_left_aside(change: dict[str, Any]) -> None:
    body = click()
    body["actions"] = [dict(fields_of(body["actions"][0])) | change]
    assert isinstance(await heard(body), Ignored)


@pytest.mark.parametrize(
    "gap", [{"user": None}, {"channel": None, "container": None}, {"team": None, "user": {"id": "U1"}}, {"actions": []}]
)
async def test_a_click_with_a_gap_is_left_aside(gap: Json) -> None:
    assert isinstance(await heard(click(**gap)), Ignored)
