"""A click on one of our buttons is read with who, where and when; any other is left aside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from channels import Click, Ignored
from channels.slack import Slack
from channels.slack.clicks import action_id
from channels.slack.reading import fields_of
from tests.channels.slack.fake import BOT, CHANNEL, NOW, ROOT, TEAM
from tests.channels.slack.payloads import SECRET, Json, as_form, click, envelope, form, heard, mention, signed

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


async def test_a_press_at_a_whole_second_counts() -> None:
    body = click()
    body["actions"][0]["action_ts"] = "1799999003"
    assert (await clicked(body)).key.split(":")[-2] == "1799999003"


@pytest.mark.parametrize(
    "change",
    [
        {"action_id": "feedback"},
        {"action_id": None},
        {"value": ""},
        {"value": "x" * 256},
        {"value": 7},
        {"action_ts": "now"},
        {"action_ts": "1799999003."},
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


# Lists and private cards


async def test_a_chosen_option_is_a_click_with_its_value() -> None:
    option = {"text": {"type": "plain_text", "text": "Region 7"}, "value": "prm_1:r7"}
    body = click()
    body["actions"] = [
        {"action_id": "moorings:1", "type": "static_select", "selected_option": option, "action_ts": "1799999002.000100"}
    ]
    assert (await clicked(body)).value == "prm_1:r7"
    body["actions"][0]["selected_option"] = None
    assert isinstance(await heard(body), Ignored)


async def test_a_click_on_a_private_card_belongs_to_the_conversation_it_is_about() -> None:
    body = click(channel={"id": "D1"}, container={"message_ts": STAMP, "channel_id": "D1"}, message={"ts": STAMP, "user": BOT})
    body["actions"][0]["action_id"] = action_id(3, f"{CHANNEL}:{ROOT}")
    event = await clicked(body)
    assert (event.address, event.place.kind) == ((await clicked(click())).address, "channel")
    assert ":D1:" in event.key
    body["actions"][0]["action_id"] = action_id(3, "D9:")
    assert (await clicked(body)).address == f"slack:v1:-:{TEAM}:D9:dm"
    for nowhere in ("C1:", "C1:now", "C 1:1.1", ":1.1", "C1"):
        body["actions"][0]["action_id"] = action_id(3, nowhere)
        assert isinstance(await heard(body), Ignored), nowhere


async def test_a_click_carries_what_opens_a_form() -> None:
    assert (await clicked(click(trigger_id="1.2.abc"))).trigger == "1.2.abc"
    assert (await clicked(click(trigger_id="x" * 10_000))).trigger == ""


# Forms


async def test_a_form_is_a_click_with_what_was_filled_in() -> None:
    event = await clicked(form())
    assert (event.address, event.value) == ((await clicked(click())).address, "prm_1:deny")
    assert event.fields == {"note": "too dear"}
    assert (event.author.id, event.author.tenancy, event.place.kind) == ("UALICE", TEAM, "channel")
    assert event.key == f"{TEAM}:form:V1:UALICE"


async def test_what_was_left_empty_is_an_empty_text() -> None:
    body = form()
    body["view"]["state"]["values"] = {"note": {"a": {"type": "plain_text_input", "value": None}}, "other": {}}
    assert (await clicked(body)).fields == {"note": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"callback_id": "feedback"},
        {"callback_id": None},
        {"id": None},
        {"private_metadata": ""},
        {"private_metadata": "{"},
        {"private_metadata": "[]"},
        {"private_metadata": '{"value":"prm_1:deny","address":"slack:v1:-:T1:C1:"}'},
        {"private_metadata": '{"value":"","address":"slack:v1:-:T1:C1:1.1"}'},
        {"private_metadata": '{"value":"prm_1:deny","address":"slack:v1:-:T2:C1:1.1"}'},
        {"private_metadata": "x" * 3_001},
    ],
)
async def test_a_form_that_is_not_ours_is_left_aside(change: dict[str, Any]) -> None:
    body = form()
    body["view"] |= change
    assert isinstance(await heard(body), Ignored)


async def test_an_organisation_wide_form_may_come_from_another_workspace_of_it() -> None:
    address = f"slack:v1:E1:{TEAM}:{CHANNEL}:{ROOT}"
    elsewhere: Json = {"user": {"id": "UALICE", "name": "alice", "team_id": "T2"}, "team": None, "enterprise": {"id": "E1"}}
    assert (await clicked(form(address=address, **elsewhere, is_enterprise_install=True))).address == address
    assert isinstance(await heard(form(address=address, **elsewhere)), Ignored)
    other = elsewhere | {"enterprise": {"id": "E2"}, "is_enterprise_install": True}
    assert isinstance(await heard(form(address=address, **other)), Ignored)


async def test_a_form_with_too_much_in_it_stays_open_and_says_why() -> None:
    body = form()
    body["view"]["state"]["values"]["note"]["moorings:1"]["value"] = "x" * 3_001
    channel = Slack(bot_token="xoxb-test", signing_secret=SECRET, now=lambda: NOW)
    ingress = channel.parse(await channel.verify(signed(as_form(body))))
    assert [type(event) for event in ingress.events] == [Ignored]
    assert ingress.response is not None
    assert json.loads(ingress.response.body) == {
        "response_action": "errors",
        "errors": {"note": "Write at most 3,000 characters."},
    }
    assert ingress.response.content_type == "application/json"


async def test_no_more_fields_are_read_than_a_form_has() -> None:
    body = form()
    body["view"]["state"]["values"] = {f"f{number}": {"a": {"value": "x"}} for number in range(50)}
    assert len((await clicked(body)).fields) == 20
