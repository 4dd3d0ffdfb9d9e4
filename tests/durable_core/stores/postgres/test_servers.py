"""Which of several servers is chosen, by what each answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from durable_core.errors import Broken, DurableError, Unavailable
from durable_core.stores.postgres.servers import Answer, Seen, newest

URLS = {"a": "a", "b": "b"}
STANDBY = Unavailable("it is a standby")


class Server:
    """Stands for a connection, too."""

    def __init__(self, *said: int | DurableError | None) -> None:
        self.said = list(said)
        self.open = 0
        self.asked = asyncio.Event()

    def terminate(self) -> None:
        self.open -= 1

    async def answer(self) -> Answer:
        self.asked.set()
        now = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if now is None:
            await asyncio.Event().wait()
        if isinstance(now, DurableError):
            raise now
        self.open += 1
        return Answer(self, now or 0)


def choosing(seen: Seen | None = None, **servers: Server) -> Callable[[], Any]:
    return lambda: newest(URLS, lambda name: servers[name].answer(), seen or Seen())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test hang that waits for the others in vain."""
    monkeypatch.setattr("durable_core.stores.postgres.servers.OTHERS_SECONDS", 1e6)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_core.stores.postgres.servers.OTHERS_SECONDS", 0)
    monkeypatch.setattr("durable_core.stores.postgres.servers.AGAIN_SECONDS", 0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("other", [STANDBY, Unavailable("refused"), Broken("wrong password"), 1])
async def test_nobody_waits_once_all_have_answered(other: int | DurableError) -> None:
    a, b, seen = Server(other), Server(2), Seen()
    assert await choosing(seen, a=a, b=b)() is b
    assert (a.open, b.open, seen.timeline) == (0, 1, 2)


@pytest.mark.usefixtures("hasty")
async def test_one_that_says_nothing_is_not_waited_for() -> None:
    a, b = Server(None), Server(1)
    assert await choosing(a=a, b=b)() is b


@pytest.mark.usefixtures("hasty")
async def test_one_that_is_promoted_while_another_says_nothing_is_found() -> None:
    a, b = Server(None), Server(STANDBY, STANDBY, 2)
    assert await choosing(a=a, b=b)() is b


@pytest.mark.usefixtures("patient")
async def test_an_old_primary_is_not_gone_back_to() -> None:
    a, b, seen = Server(1), Server(Unavailable("refused")), Seen()
    seen.timeline = 2
    with pytest.raises(Unavailable, match=r"a: .*timeline 1.*old primary.*; b: refused"):
        await choosing(seen, a=a, b=b)()
    assert a.open == 0


@pytest.mark.usefixtures("patient")
async def test_a_service_that_tells_no_timeline_is_taken_at_its_word() -> None:
    a, b, seen = Server(0), Server(STANDBY), Seen()
    assert await choosing(seen, a=a, b=b)() is a
    assert seen.timeline == 0


async def test_where_none_ever_will_that_is_said_and_where_one_may_it_is_tried_again() -> None:
    wrong = Broken("wrong password")
    with pytest.raises(Broken, match="a: wrong password; b: wrong password"):
        await choosing(a=Server(wrong), b=Server(wrong))()
    with pytest.raises(Unavailable, match="a: wrong password; b: it is a standby"):
        await choosing(a=Server(wrong), b=Server(STANDBY))()


async def test_the_cause_that_the_pool_knows_is_kept() -> None:
    full = Unavailable("too many")
    full.__cause__ = asyncpg.TooManyConnectionsError("sorry")
    with pytest.raises(Unavailable) as caught:
        await choosing(a=Server(STANDBY), b=Server(full))()
    assert isinstance(caught.value.__cause__, asyncpg.TooManyConnectionsError)


@pytest.mark.usefixtures("patient")
async def test_whoever_gives_up_leaves_no_connection_open() -> None:
    a, b = Server(1), Server(None)
    task = asyncio.create_task(choosing(a=a, b=b)())
    await b.asked.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert a.open == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert a.open == 0
