"""Deliveries to the small Slack, and what becomes of them.

What lives here: builders. What does not: tests.
"""

from __future__ import annotations

from dataclasses import replace

from channels import Button, Card, CardOutcome, Delivery, DeliveryFailed, MessageRef, Outbound, RateLimited
from channels.slack import Slack
from channels.slack.address import SlackAddress
from tests.channels.slack.fake import CHANNEL, ROOT, TEAM

THREAD = SlackAddress("", TEAM, CHANNEL, ROOT).encode()
DM = SlackAddress("", TEAM, "D1", None).encode()
CARD = Card("Sure?", fields=(("amount", "140"),), buttons=(Button("Yes", "prm:yes"),))
SETTLED = replace(CARD, buttons=(), outcome=CardOutcome("approved", "Approved by Bob", at=0))


def delivery(message: Outbound | str = "hello", *, id: str = "dlv_1", attempt: int = 1, address: str = THREAD) -> Delivery:
    return Delivery(id, attempt, address=address, message=Outbound(message) if isinstance(message, str) else message)


async def fate(channel: Slack, sent: Delivery) -> DeliveryFailed | RateLimited | MessageRef:
    try:
        return await channel.send(sent)
    except (DeliveryFailed, RateLimited) as error:
        return error
