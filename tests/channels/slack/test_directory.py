"""Who somebody is and who can read along is Slack's to say; what Slack can't say for now refuses nobody."""

from __future__ import annotations

import asyncio

import pytest

from channels import Author, ChannelError, DeliveryFailed, Directory, Place, RateLimited, Standing
from channels.slack import Slack
from channels.slack.address import SlackAddress
from channels.slack.directory import MAX_REMEMBERED, PATIENCE
from tests.channels.slack.fake import CHANNEL, ROOT, TEAM, MiniSlack, refusal
from tests.channels.slack.payloads import Json

THREAD = SlackAddress("", TEAM, CHANNEL, ROOT).encode()


def author(user: str = "U1") -> Author:
    return Author(user, user, standing=Standing.UNKNOWN, tenancy=TEAM)


async def asked(slack: Slack, address: str = THREAD, *, user: str = "U1") -> tuple[Author, Place]:
    return await slack.look_up(address, author(user), Place("channel"))


def test_slack_is_a_directory(slack: Slack) -> None:
    assert isinstance(slack, Directory)


@pytest.mark.parametrize(
    ("user", "standing"),
    [
        ({}, Standing.MEMBER),
        ({"is_restricted": True}, Standing.GUEST),
        ({"is_ultra_restricted": True}, Standing.GUEST),
        ({"is_bot": True}, Standing.BOT),
        ({"is_stranger": True}, Standing.OUTSIDER),
        ({"deleted": True}, Standing.OUTSIDER),
        ({"team_id": "T9"}, Standing.OUTSIDER),
        ({"team_id": ""}, Standing.OUTSIDER),
        ({"team_id": "T9", "enterprise_user": {"enterprise_id": "E9"}}, Standing.OUTSIDER),
    ],
)
async def test_a_persons_standing(world: MiniSlack, slack: Slack, user: Json, standing: Standing) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM, "profile": {"display_name": "Alice\nA."}} | user
    found, _ = await asked(slack)
    assert (found.standing, found.name, found.tenancy) == (standing, "Alice A.", TEAM)


@pytest.mark.parametrize(("enterprise", "standing"), [("E1", Standing.MEMBER), ("E9", Standing.OUTSIDER)])
async def test_an_organisation_is_one_house(world: MiniSlack, slack: Slack, enterprise: str, standing: Standing) -> None:
    world.users["U1"] = {"id": "U1", "team_id": "T7", "enterprise_user": {"enterprise_id": enterprise}}
    found, _ = await asked(slack, SlackAddress("E1", TEAM, CHANNEL, ROOT).encode())
    assert found.standing == standing


@pytest.mark.parametrize(
    ("channel", "place"),
    [
        ({"name": "general"}, Place("channel", title="#general")),
        ({"name": "x", "is_ext_shared": True}, Place("channel", True, title="#x")),
        ({"name": "x", "is_pending_ext_shared": True}, Place("channel", True, title="#x")),
        ({"name": "x", "is_shared": True}, Place("channel", True, title="#x")),
        ({"name": "x", "is_shared": True, "is_org_shared": True}, Place("channel", title="#x")),
        (
            {"name": "x", "is_shared": True, "is_org_shared": True, "connected_team_ids": ["T9"]},
            Place("channel", True, title="#x"),
        ),
        ({"is_im": True}, Place("direct")),
        ({"is_mpim": True, "name": "mpdm-a--b"}, Place("direct")),
    ],
)
async def test_a_place(world: MiniSlack, slack: Slack, channel: Json, place: Place) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    world.channels[CHANNEL] = {"id": CHANNEL} | channel
    assert (await asked(slack))[1] == place


async def test_a_direct_message_needs_no_asking(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    _, place = await asked(slack, SlackAddress("", TEAM, "D7", None).encode())
    assert place == Place("direct")
    assert [name for name, _ in world.calls] == ["users.info"]


async def test_what_the_event_said_is_not_forgotten(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    _, place = await slack.look_up(THREAD, author(), Place("channel", True))
    assert place.shared_outside


async def test_answers_are_remembered_for_a_while(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    for _ in range(3):
        await asked(slack)
    assert len(world.calls) == 2
    world.now_ms += 600_001
    world.users["U1"]["is_restricted"] = True
    assert (await asked(slack))[0].standing == Standing.GUEST


async def test_nobody_is_unknown_and_asked_about_again_soon(world: MiniSlack, slack: Slack) -> None:
    world.channels.clear()
    found, place = await asked(slack)
    assert found.standing == Standing.UNKNOWN
    assert place.shared_outside
    await asked(slack)
    assert len(world.calls) == 2
    world.now_ms += 30_001
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    assert (await asked(slack))[0].standing == Standing.MEMBER


@pytest.mark.parametrize(
    "fault", [refusal("missing_scope"), refusal("fatal_error"), refusal("x", status=500), refusal("ratelimited", status=429)]
)
@pytest.mark.parametrize("method", ["users.info", "conversations.info"])
async def test_a_failure_that_may_pass_is_raised_and_not_remembered(
    world: MiniSlack, slack: Slack, method: str, fault: object
) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    world.before[method].append(fault)  # type: ignore[arg-type]
    with pytest.raises(ChannelError) as failed:
        await asked(slack)
    assert isinstance(failed.value, (DeliveryFailed, RateLimited))
    assert failed.value.retryable
    world.now_ms += 61_000
    assert (await asked(slack))[0].standing == Standing.MEMBER


async def test_what_is_remembered_is_bounded(world: MiniSlack, slack: Slack) -> None:
    world.users["U0"] = {"id": "U0", "team_id": TEAM}
    await asked(slack, user="U0")
    directory = slack._directory
    assert directory is not None
    for number in range(MAX_REMEMBERED + 5):
        directory._people.put(f"U{number}", None, at=world.now())
    assert len(directory._people._held) == MAX_REMEMBERED


async def test_many_who_ask_at_once_are_one_call(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    asking = [asyncio.ensure_future(asked(slack)) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert all(isinstance(one, tuple) and one[0].standing == Standing.MEMBER for one in found[1:])
    assert [name for name, _ in world.calls] == ["users.info", "conversations.info"]


async def test_many_who_fail_at_once_fail_alike_and_ask_anew(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    world.before["users.info"].append(refusal("fatal_error"))
    found = await asyncio.gather(*(asked(slack) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(one, DeliveryFailed) for one in found)
    assert (await asked(slack))[0].standing == Standing.MEMBER


async def test_what_is_asked_for_fresh_is_no_older_than_half_a_minute(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = {"id": "U1", "team_id": TEAM}
    await asked(slack)
    world.users["U1"]["deleted"] = True
    world.channels[CHANNEL]["is_ext_shared"] = True
    world.now_ms += 29_000
    assert (await slack.look_up(THREAD, author(), Place("channel"), fresh=True))[0].standing == Standing.MEMBER
    world.now_ms += 1_000
    assert (await asked(slack))[0].standing == Standing.MEMBER
    found, place = await slack.look_up(THREAD, author(), Place("channel"), fresh=True)
    assert (found.standing, place.shared_outside) == (Standing.OUTSIDER, True)
    assert (await asked(slack))[0].standing == Standing.OUTSIDER


async def test_a_burst_waits_its_turn_and_slacks_own_wait_is_passed_on(world: MiniSlack, slack: Slack) -> None:
    waits = [slack._calls().pacer.book("users.info", most=PATIENCE) for _ in range(28)]
    assert waits[:20] == [0.0] * 20
    assert [round(wait, 1) for wait in waits[20:]] == [0.6, 1.2, 1.8, 2.4, 3.0, 3.6, 4.2, 4.8]
    with pytest.raises(RateLimited) as limited:
        await asked(slack)
    assert limited.value.retry_after == pytest.approx(5.4)
    world.now_ms += 60_000
    world.before["users.info"].append(refusal("ratelimited", status=429, headers={"Retry-After": "7"}))
    for _ in range(2):
        with pytest.raises(RateLimited) as limited:
            await asked(slack)
        assert limited.value.retry_after == 7
    assert len(world.calls) == 1
