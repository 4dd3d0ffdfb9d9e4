"""The console page of demo and dev: the thread a newcomer talks in, and what happened behind it.

What lives here: the page, its JSON API and the guards around both. What does not: the console's channel, the engine.
"""

from bot.console.page import install_console
from bot.console.port import ClientIdReused, ConsolePort, ConsolePortError, UnknownMessage, UnknownThread
from bot.console.security import loopback_guard
from bot.console.timeline import timeline

__all__ = [
    "ClientIdReused",
    "ConsolePort",
    "ConsolePortError",
    "UnknownMessage",
    "UnknownThread",
    "install_console",
    "loopback_guard",
    "timeline",
]
