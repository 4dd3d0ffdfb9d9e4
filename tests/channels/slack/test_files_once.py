"""A message that has to wait does not share its file again."""

from __future__ import annotations

import pytest

from bot.testing import FakeSlack
from bot.testing.slack import rate_limited
from channels.errors import RateLimited
from channels.outbound import Delivery, Outbound
from channels.slack import Slack
from channels.slack.address import SlackAddress
from tests.bot.testing.kit import listening


async def test_a_file_is_shared_once_though_its_message_has_to_wait() -> None:
    now = 1_800_000_000_000
    async with FakeSlack() as slack, listening(slack):
        said = await slack.mention("alice", "general", "hello")
        channel = Slack(bot_token=slack.token, signing_secret="s", api_url=slack.api_url, now=lambda: now)
        try:
            address = SlackAddress("", slack.workspace.id, said.channel, said.thread).encode()
            message = Outbound("so long. " * 5_000)
            slack.fail("chat.postMessage", rate_limited())
            with pytest.raises(RateLimited):
                await channel.send(Delivery("dlv_1", 1, address=address, message=message))
            now += 60_000
            await channel.send(Delivery("dlv_1", 2, address=address, message=message))
        finally:
            await channel.close()
        assert len(slack.made("files.completeUploadExternal")) == 1
        assert len(slack.replies(said)) == 2  # the file, then the message that speaks of it
