"""The shop on Slack: the demo's support agent, in the test or in a process that is killed, and a simulated Slack beside it.

What lives here: the app, how it is run, what has to be true at the end. What does not: processes (fleet.py), the stories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slack_sdk.web import async_client as _sdk

from bot.app import Bot
from bot.demo import open_deps, support
from bot.settings import DATABASE_FILE
from bot.testing.app import App, running
from bot.testing.slack import FakeSlack, Said
from bot.testing.slack.faults import server_error
from bot.testing.slack.values import Message
from channels.slack.channel import Slack
from channels.slack.search import EVENT_TYPE
from channels.slack.settings import API_URL, SECRET, TOKEN
from durable_core.worker import WorkerOptions

__all__ = ["Books", "build_shop", "delivered", "environment", "is_shop", "made_at", "open_shop", "words"]

_ = _sdk  # imported at the first call otherwise, in each fork anew


def build_shop(folder: Path) -> Bot:
    """Put the app together; the channel is told everything by its environment, as an installed one is."""
    return Bot(agents=[support], channels=[Slack()], deps=lambda: open_deps(folder))


def is_shop(environ: Mapping[str, str]) -> bool:
    return SECRET in environ


def environment(slack: FakeSlack) -> dict[str, str]:
    """Return what a process needs to find the simulated Slack."""
    return {TOKEN: slack.token, SECRET: slack.signing_secret, API_URL: slack.api_url}


@dataclass(frozen=True, slots=True)
class Books:
    """What a folder's databases say happened."""

    folder: Path

    @property
    def refunds(self) -> list[str]:
        """The charges that were refunded, one for each time money moved."""
        return [charge for (charge,) in self._read("payments.db", "SELECT charge_id FROM refund ORDER BY number")]

    @property
    def messages(self) -> int:
        """How many messages were admitted."""
        return int(self._read(DATABASE_FILE, "SELECT count(*) FROM moor_admission WHERE kind = 'message'")[0][0])

    @property
    def turns(self) -> int:
        """How many turns there were."""
        sql = "SELECT count(DISTINCT run_id || ' ' || turn_id) FROM moor_admission WHERE turn_id IS NOT NULL AND kind = 'message'"
        return int(self._read(DATABASE_FILE, sql)[0][0])

    @property
    def runs(self) -> int:
        return len(self.run_ids)

    @property
    def run_ids(self) -> list[str]:
        return [run_id for (run_id,) in self._read(DATABASE_FILE, "SELECT run_id FROM moor_run ORDER BY created_at")]

    @property
    def steps(self) -> int:
        """How many steps of any turn were taken."""
        return int(self._read(DATABASE_FILE, "SELECT count(*) FROM moor_step WHERE kind = 'model'")[0][0])

    @property
    def outcomes(self) -> list[str | None]:
        """How each admitted message ended, in order."""
        return [
            one for (one,) in self._read(DATABASE_FILE, "SELECT outcome FROM moor_admission WHERE kind = 'message' ORDER BY at")
        ]

    @property
    def owed(self) -> list[tuple[str, str | None]]:
        """The state of each message to the outside, and its last error."""
        return self._read(DATABASE_FILE, "SELECT state, last_error FROM moor_outbox ORDER BY at, lane_seq")

    def _read(self, name: str, sql: str) -> list[Any]:
        if not (self.folder / name).exists():
            return []
        with closing(sqlite3.connect(self.folder / name, timeout=10)) as db:
            return db.execute(sql).fetchall()


def words(slack: FakeSlack, said: Said) -> list[str]:
    """Return what the bot wrote in the thread."""
    return [message.words for message in slack.replies(said)]


def delivered(slack: FakeSlack, said: Said) -> list[str]:
    """Return the delivery ids in the metadata of the bot's messages in the thread, one for each message there is."""
    posts = slack.world.posts[said.channel].values()
    ours = [post for post in posts if post.thread_ts == said.thread and post.bot_id is not None]
    assert all(post.metadata is not None and post.metadata["event_type"] == EVENT_TYPE for post in ours)
    return [post.metadata["event_payload"]["delivery_id"] for post in ours if post.metadata is not None]


def made_at(slack: FakeSlack, method: str, times: list[float], now: Callable[[], float]) -> None:
    """Note when each call of a method arrives; has to be planned before the faults it watches."""

    def note(_: Any) -> bool:
        times.append(now())
        return False

    slack.fail(method, server_error(), times=1, when=note)


@dataclass(frozen=True, slots=True)
class Shop:
    """A shop that runs within the test."""

    slack: FakeSlack
    books: Books
    app: App

    def words(self, said: Said) -> list[str]:
        return words(self.slack, said)

    async def replies(self, said: Said, count: int, *, seconds: float = 20.0) -> list[Message]:
        """Wait until the bot wrote so many messages in the thread."""
        await self.slack.until(lambda: len(self.slack.replies(said)) >= count, seconds=seconds)
        return self.slack.replies(said)


@asynccontextmanager
async def open_shop(folder: Path, slack: FakeSlack | None = None) -> AsyncIterator[Shop]:
    """Run the shop in the test; with `slack` it goes on with one that there is."""
    if slack is None:
        async with FakeSlack() as fresh, open_shop(folder, fresh) as shop:
            yield shop
        return
    channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
    bot = Bot(agents=[support], channels=[channel], deps=lambda: open_deps(folder))
    async with running(bot, slack=slack, data=folder, options=WorkerOptions(poll=0.05)) as app:
        yield Shop(slack, Books(folder), app)
