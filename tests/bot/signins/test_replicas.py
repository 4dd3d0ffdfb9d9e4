"""Two replicas with a database between them: whatever comes at once, at whichever of them, is done once.

What lives here: races, on SQLite and on PostgreSQL. What does not: deaths (test_kills.py), refreshing (tests/bot/connections/).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.signins.attempt import Stage
from bot.signins.values import Go
from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk, open_desk, through
from tests.e2e.matrix import FULL_VARIABLE

ROUNDS = 50 if os.environ.get(FULL_VARIABLE) else 3
AT_ONCE = 12


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    url = request.getfixturevalue("migrated_url") if request.param == "postgres" else ""
    async with open_desk(tmp_path, postgres_url=url) as desk:
        desk.replicas.alternate = True
        yield desk


async def test_each_request_at_another_replica(pair: Desk, alice: Browser) -> None:
    prompt_id = await pair.asked()
    _, page = await through(pair, alice, prompt_id)
    assert page.status == 200
    assert (await pair.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_callbacks_at_once_are_one_exchange(pair: Desk) -> None:
    """Stores that look first and delete then let several through (Slack's, in 104 to 181 of 200 rounds)."""
    for number in range(ROUNDS):
        async with Browser() as alice:
            await pair.connections.disconnect(pair.connection, "chat:alice")
            prompt_id = await pair.asked()
            offer = await pair.offered(prompt_id)
            await alice.open(offer.url)
            await alice.press(code=offer.code or "")
            back = (await alice.go_on(follow=False)).headers["Location"]
            await asyncio.gather(*(alice.fetch(back) for _ in range(AT_ONCE)))
            assert len(pair.provider.exchanged) == number + 1
            pages = [await alice.fetch(back) for _ in range(2)]
            assert {page.status for page in pages} == {200}
            assert len({page.text for page in pages}) == 1
            assert (await pair.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_two_browsers_press_at_once_and_one_is_bound(pair: Desk) -> None:
    for _ in range(ROUNDS):
        prompt_id = await pair.asked()
        offer = await pair.offered(prompt_id)
        token = offer.url.rpartition("/")[2]
        found = await asyncio.gather(*(pair.sign_ins.begin(token, {}, {"code": offer.code or ""}) for _ in range(4)))
        gone = [one for one in found if isinstance(one, Go)]
        assert len(gone) == 1
        assert gone[0].cookie is not None
        assert (await pair.attempt(offer)).stage is Stage.STARTED


async def test_sweeps_at_once_tell_once(pair: Desk, alice: Browser) -> None:
    pair.provider.raw = (400, b'{"error": "invalid_grant"}')
    prompt_id = await pair.asked()
    await through(pair, alice, prompt_id)
    pair.later(minutes=5)
    await asyncio.gather(*(replica.sweep() for replica in pair.replicas.all for _ in range(3)))
    assert len(await pair.lines()) == 1
