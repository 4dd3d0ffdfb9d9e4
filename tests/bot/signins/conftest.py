"""What tests of sign-ins share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk, open_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as made:
        yield made


@pytest.fixture
async def alice() -> AsyncIterator[Browser]:
    async with Browser() as browser:
        yield browser


@pytest.fixture
async def mallory() -> AsyncIterator[Browser]:
    async with Browser() as browser:
        yield browser
