"""A small Slack and the channel on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from channels.slack import Slack
from tests.channels.slack.fake import CHANNEL, MiniSlack, mini_slack
from tests.channels.slack.payloads import SECRET


@pytest.fixture
async def world() -> AsyncIterator[MiniSlack]:
    async with mini_slack() as fake:
        fake.channels["D1"] = {"id": "D1", "is_im": True}
        assert CHANNEL in fake.channels
        yield fake


@pytest.fixture
async def slack(world: MiniSlack) -> AsyncIterator[Slack]:
    channel = Slack(bot_token="xoxb-test", signing_secret=SECRET, api_url=world.url, now=world.now)
    yield channel
    await channel.close()
