"""Whether the database answers: asked once for many, and never longer than a probe waits."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from bot.pulse import Pulse
from durable_core.errors import Unavailable
from durable_core.store import Store


class Answering:
    """A store that answers, doesn't, or never says anything."""

    def __init__(self) -> None:
        self.asked = 0
        self.fault: Exception | None = None
        self.silent = False

    async def probe(self) -> None:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault


async def test_many_who_ask_ask_the_database_once() -> None:
    store = Answering()
    pulse = Pulse(cast("Store", store))
    assert await asyncio.gather(*(pulse.beats() for _ in range(20))) == [True] * 20
    assert await pulse.beats()
    assert store.asked == 1


async def test_a_database_that_is_away_and_one_that_says_nothing_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.pulse.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("bot.pulse.PATIENCE_SECONDS", 0.01)
    store = Answering()
    pulse = Pulse(cast("Store", store))
    assert await pulse.beats()
    store.fault = Unavailable("it was restarted")
    assert not await pulse.beats()
    store.fault, store.silent = None, True
    assert not await pulse.beats()
    store.silent = False
    assert await pulse.beats()


async def test_who_gives_up_asking_leaves_the_answer_to_the_others() -> None:
    store = Answering()
    store.silent = True
    pulse = Pulse(cast("Store", store))
    first, second = asyncio.create_task(pulse.beats()), asyncio.create_task(pulse.beats())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    second.cancel()
