"""A kit for tests of apps: a bot that runs in the test, and a simulated Slack to talk to it.

What lives here: the names a test imports, each loaded when it is first used. What does not: anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.testing.app import App, running
    from bot.testing.slack.fake import FakeSlack
    from bot.testing.waiting import StillWaiting

__all__ = ["App", "FakeSlack", "StillWaiting", "running"]

_HOMES = {"app": ("App", "running"), "slack.fake": ("FakeSlack",), "waiting": ("StillWaiting",)}


def __getattr__(name: str) -> Any:
    """Load an exported name from its home, once."""
    from importlib import import_module  # noqa: PLC0415 - only where a name is asked for

    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(f"bot.testing.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'bot.testing' has no attribute {name!r}")
