"""A whole runtime: a channel's requests in, answers out, over a restart.

What lives here: `open_runtime` with a channel of the tests. What does not: the console, HTTP, processes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.agent import Agent
from bot.app import Bot
from bot.buttons import button_value
from bot.errors import NotReady
from bot.history import AssistantItem, UserItem
from bot.ingress import Taken
from bot.runtime import Runtime, open_runtime
from bot.settings import Role, Settings
from channels.errors import InvalidSignature
from channels.http import WebhookRequest
from durable_core import codec
from durable_core.clock import ManualClock
from durable_core.crypto import new_key_entry
from durable_core.errors import NotFound
from durable_core.model import Outcome, Receipt
from durable_core.schema import upgrade
from durable_core.stranding import QUIET_MS
from tests.bot.session.actors import TOOLS, FakeChannel, Log, ToldModel, calls
from tests.bot.session.kit import START


class App:
    """One app whose processes come and go over one database."""

    def __init__(self, data: Path, url: str) -> None:
        self.settings = Settings(data, url, encryption_keys=new_key_entry(), deployment="d1")
        self.clock = ManualClock(START)
        self.model, self.log, self.channel = ToldModel(), Log(), FakeChannel()
        self.opened: list[str] = []
        agent = Agent("support", self.model, tools=TOOLS)
        self.bot = Bot(agents=[agent], channels=[self.channel], deps=self.deps)

    @asynccontextmanager
    async def deps(self) -> AsyncIterator[Log]:
        self.opened.append("open")
        yield self.log
        self.opened.append("closed")

    async def open(self, role: Role = Role.ALL) -> Runtime:
        runtime = await open_runtime(self.bot, self.settings, role=role, clock=self.clock)
        await runtime.start()
        return runtime


def request(**fields: str) -> WebhookRequest:
    return WebhookRequest("POST", "/channels/fake/events", headers={}, body=codec.encode(dict(fields)))


async def outcome(runtime: Runtime, receipt: Receipt) -> Outcome | None:
    changed = asyncio.Event()
    unwatch = runtime.store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(10):
            while (found := (await runtime.store.submission(receipt.submission_id)).outcome) is None:
                await changed.wait()
                changed.clear()
            return found
    finally:
        unwatch()


async def shown(app: App, runtime: Runtime, count: int) -> None:
    """Wait until the platform shows so much."""
    changed = asyncio.Event()
    unwatch = runtime.store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(10):
            while len(app.channel.shown) < count:
                await changed.wait()
                changed.clear()
    finally:
        unwatch()


async def test_a_request_is_answered_and_a_redelivery_is_the_same_one(tmp_path: Path) -> None:
    app = App(tmp_path, "sqlite:///:memory:")
    runtime = await app.open()
    taken = [await runtime.take("fake", request(who="alice", text="hi", key="1")) for _ in range(2)]
    first, again = (one.receipts[0] for one in taken)
    assert (again.submission_id, again.deduplicated) == (first.submission_id, True)
    assert await outcome(runtime, first) is Outcome.COMPLETED
    await shown(app, runtime, 1)
    await runtime.drain(5)
    await runtime.close()
    assert app.channel.texts == ["answer 1"]
    assert app.opened == ["open", "closed"]


async def test_an_approval_outlives_the_process_and_its_card_still_works(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    upgrade(url)
    app = App(tmp_path, url)
    app.model.script = [calls(("refund", {"amount": 5}))]
    first = await app.open()
    (receipt,) = (await first.take("fake", request(who="alice", text="refund 5", key="1"))).receipts
    await shown(app, first, 1)
    await first.close()
    second = await app.open()
    value = app.channel.cards[0].card.buttons[0].value
    (refused,) = (await second.take("fake", request(who="bob", click=value, key="2"))).clicks
    assert (refused.status, refused.reason) == ("refused", "Only the person who asked may answer this.")
    (settled,) = (await second.take("fake", request(who="alice", click=value, key="3"))).clicks
    assert settled.status == "settled"
    assert await outcome(second, receipt) is Outcome.COMPLETED
    (late,) = (await second.take("fake", request(who="alice", click=value, key="4"))).clicks
    assert (late.status, late.reason) == ("already_settled", "This was settled before: Approved by Alice.")
    await second.drain(5)
    await second.close()
    assert app.log.names() == ["refund"]
    said = [item.text for item in app.model.requests[-1].history if isinstance(item, UserItem | AssistantItem)]
    assert said == ["refund 5", ""]


async def test_one_process_listens_and_another_works(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    upgrade(url)
    app = App(tmp_path, url)
    web, worker = await app.open(Role.WEB), await app.open(Role.WORKER)
    assert (web.worker, app.opened) == (None, ["open"])
    (receipt,) = (await web.take("fake", request(who="alice", text="hi", key="1"))).receipts
    assert await outcome(web, receipt) is Outcome.COMPLETED
    for runtime in (worker, web):
        await runtime.drain(5)
        await runtime.close()


async def test_what_no_channel_vouches_for_is_answered_and_leaves_nothing(tmp_path: Path) -> None:
    app = App(tmp_path, "sqlite:///:memory:")

    async def refuse(_: WebhookRequest) -> object:
        raise InvalidSignature("no")

    runtime = await app.open()
    app.channel.verify = refuse  # type: ignore[method-assign, assignment]
    assert await runtime.take("fake", request(who="eve", text="hi", key="1")) == Taken(
        response=(await runtime.ingress("fake", request(who="eve", text="hi", key="1")))
    )
    assert (await runtime.ingress("fake", request())).status == 401
    assert await runtime.store.rows("SELECT count(*) FROM moor_run", {}) == [(0,)]
    with pytest.raises(NotFound):
        await runtime.ingress("elsewhere", request())
    await runtime.close()


async def test_a_forged_button_is_refused(tmp_path: Path) -> None:
    app = App(tmp_path, "sqlite:///:memory:")
    runtime = await app.open()
    (click,) = (await runtime.take("fake", request(who="eve", click=button_value("prm_x", "approve"), key="1"))).clicks
    assert (click.status, click.reason) == ("refused", "This request is no longer known. Ask again.")
    await runtime.close()


async def test_without_keys_nothing_starts(tmp_path: Path) -> None:
    app = App(tmp_path, "sqlite:///:memory:")
    with pytest.raises(NotReady):
        await open_runtime(app.bot, Settings(tmp_path, "sqlite:///:memory:"))


async def test_a_process_that_works_ends_what_nobody_can_read_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'moorings.db'}"
    upgrade(url)
    app = App(tmp_path, url)
    runtime = await app.open()
    taken = await runtime.take("fake", request(who="alice", text="hello", key="1"))
    (receipt,) = taken.receipts
    assert await outcome(runtime, receipt) is Outcome.COMPLETED
    await runtime.close()
    with sqlite3.connect(tmp_path / "moorings.db") as written_by_newer:
        written_by_newer.execute("UPDATE moor_run SET spec_version = 99, deadline_at = 1, wake_at = 1")
    monkeypatch.setattr("bot.leftovers.SWEEP_SECONDS", 0)
    runtime = await app.open()
    app.clock._now_ms += QUIET_MS
    async with asyncio.timeout(30):
        while (run := await runtime.store.run(receipt.run_id)).end_reason is None:
            await asyncio.sleep(0)
    assert run.end_reason == "expired"
    await runtime.close()
