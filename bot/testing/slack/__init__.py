"""A simulated Slack for tests of apps: its Web API, and the events, clicks and commands it sends.

What lives here: the names a test imports. What does not: anything else.
"""

from __future__ import annotations

from bot.testing.slack.fake import FakeSlack
from bot.testing.slack.faults import Fault, dropped, rate_limited, refused, server_error, slow
from bot.testing.slack.sender import Attempt, Posting, Said
from bot.testing.slack.server import ApiCall
from bot.testing.slack.values import Button, Channel, ChannelKind, Choice, Message, Modal, User, UserKind, Workspace

__all__ = [
    "ApiCall",
    "Attempt",
    "Button",
    "Channel",
    "ChannelKind",
    "Choice",
    "FakeSlack",
    "Fault",
    "Message",
    "Modal",
    "Posting",
    "Said",
    "User",
    "UserKind",
    "Workspace",
    "dropped",
    "rate_limited",
    "refused",
    "server_error",
    "slow",
]
