"""The demo, once for all tests of a module that don't break it.

What lives here: fixtures. What does not: the processes (demo.py), browsers (browser.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.e2e.browser import Visit, visiting
from tests.e2e.demo import Demo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo for a whole module."""
    running = Demo(tmp_path_factory.mktemp("demo") / "data").start()
    yield running
    running.ensure_stopped()


@pytest.fixture
def own_demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo to break."""
    running = Demo(tmp_path / "data").start()
    yield running
    running.ensure_stopped()


@pytest_asyncio.fixture
async def visit() -> AsyncIterator[Visit]:
    """A browser with one page."""
    async with visiting() as one:
        yield one
