"""The console channel: a thread on a local page, with its own small platform.

What lives here: the channel and the platform. What does not: the page that shows it.
"""

from channels.console.cast import BOT, CAST, CastMember, cast_member
from channels.console.channel import Console
from channels.console.platform import ConsolePlatform
from channels.console.records import ConsoleRefused, PendingEvent, PersonMessage, ShownMessage, Thread

__all__ = [
    "BOT",
    "CAST",
    "CastMember",
    "Console",
    "ConsolePlatform",
    "ConsoleRefused",
    "PendingEvent",
    "PersonMessage",
    "ShownMessage",
    "Thread",
    "cast_member",
]
