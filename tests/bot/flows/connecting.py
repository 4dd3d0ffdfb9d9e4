"""A person in Slack who is asked to connect the tracker, and does or doesn't.

What lives here: looking at what they alone see, pressing, typing the code at the provider. What does not: expectations.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bot.testing import FakeSlack
from bot.testing.app import App
from bot.testing.slack.values import Message

GRANT = {"scope": "issues"}


async def private_card(slack: FakeSlack, label: str = "Connect Tracker", *, nth: int = -1) -> Any:
    def look() -> Any:
        found = [one for one in privately(slack) if label in [button.label for button in one.buttons]]
        return found[nth] if found else None

    return await slack.until(look)


async def press(slack: FakeSlack, label: str, *, nth: int = -1) -> None:
    await slack.click(await private_card(slack, nth=nth), label, "alice")


async def connect(slack: FakeSlack, app: App, *, nth: int = -1) -> None:
    """Press Connect, type the code there, let the provider be asked."""
    before = len(codes(slack))
    await press(slack, "Connect Tracker", nth=nth)
    await slack.until(lambda: len(codes(slack)) > before)
    await slack.advance(timedelta(seconds=5))
    assert app.runtime.sign_ins is not None
    await app.runtime.sign_ins.sweep()


def codes(slack: FakeSlack) -> list[str]:
    return [one.words for one in privately(slack) if "type this code" in one.words]


def privately(slack: FakeSlack) -> list[Message]:
    """What Alice sees and Bob does not."""
    others = {one.words for one in slack.visible_to("bob")}
    return [one for one in slack.visible_to("alice") if one.words not in others]


async def rows(app: App, sql: str) -> int:
    return len(await app.runtime.store.rows(sql, {}))
