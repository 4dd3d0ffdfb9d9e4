"""A user group of Slack as a group that may answer: asked once a minute, and no answer is no yes."""

from __future__ import annotations

import asyncio

import pytest

from channels import Author, ChannelError, Membership, RateLimited, Standing
from channels.slack import Slack
from channels.slack.usergroups import REMEMBERED_MS
from tests.channels.slack.fake import TEAM, MiniSlack, refusal


def author(user: str) -> Author:
    return Author(user, user, standing=Standing.MEMBER, tenancy=TEAM)


@pytest.fixture
def group(world: MiniSlack, slack: Slack) -> Membership:
    world.groups["S1"] = ["U1", "U2"]
    return slack.usergroup("S1")


async def test_slack_says_who_is_in_it(world: MiniSlack, group: Membership) -> None:
    assert isinstance(group, Membership)
    assert [await group.includes(author(user)) for user in ("U1", "U9", "")] == [True, False, False]
    assert world.calls == [("usergroups.users.list", {"usergroup": "S1"})]


async def test_it_is_remembered_for_a_minute(world: MiniSlack, group: Membership) -> None:
    assert await group.includes(author("U1"))
    world.groups["S1"] = []
    world.now_ms += REMEMBERED_MS - 1
    assert await group.includes(author("U1"))
    world.now_ms += 1
    assert not await group.includes(author("U1"))
    assert len(world.calls) == 2


async def test_it_is_asked_once_however_many_wait(world: MiniSlack, group: Membership) -> None:
    assert await asyncio.gather(*(group.includes(author("U1")) for _ in range(20))) == [True] * 20
    assert len(world.calls) == 1


@pytest.mark.parametrize("error", ["missing_scope", "no_such_subteam", "fatal_error"])
async def test_what_slack_refuses_is_no_answer_and_is_asked_again(world: MiniSlack, group: Membership, error: str) -> None:
    world.before["usergroups.users.list"].append(refusal(error))
    with pytest.raises(ChannelError):
        await group.includes(author("U1"))
    assert await group.includes(author("U1"))


async def test_an_answer_without_a_list_is_none(world: MiniSlack, group: Membership) -> None:
    world.groups["S1"] = None  # type: ignore[assignment]
    with pytest.raises(ChannelError):
        await group.includes(author("U1"))


async def test_slacks_own_wait_is_kept(world: MiniSlack, group: Membership) -> None:
    world.before["usergroups.users.list"].append(refusal("ratelimited", status=429, headers={"Retry-After": "7"}))
    for _ in range(2):
        with pytest.raises(RateLimited):
            await group.includes(author("U1"))
    assert len(world.calls) == 1
    world.now_ms += 7_000
    assert await group.includes(author("U1"))
