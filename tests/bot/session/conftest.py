"""One thread a test, closed and checked at the end.

What lives here: the fixture. What does not: the thread itself (kit.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.bot.session.kit import Thread, open_thread


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    made = await open_thread()
    yield made
    if made.run_id:
        await made.check()
    made.unwatch()
    await made.store.close()
