"""A platform in memory or on disk, closed after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from channels.console import ConsolePlatform


class Now:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest_asyncio.fixture
async def platform() -> AsyncIterator[ConsolePlatform]:
    opened = ConsolePlatform(":memory:", now=Now())
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def file_platform(tmp_path: Path) -> AsyncIterator[ConsolePlatform]:
    opened = ConsolePlatform(tmp_path / "data" / "console.db", now=Now())
    yield opened
    await opened.close()
