"""The demo and a browser, once for all tests that don't break them.

What lives here: fixtures. What does not: the processes (demo.py), browsers (browser.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.e2e.browser import Visit, browsing, visiting
from tests.e2e.demo import Demo

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo for all tests that don't end it; each opens threads of its own."""
    running = Demo(tmp_path_factory.mktemp("demo") / "data").start()
    yield running
    running.ensure_stopped()


@pytest.fixture
def own_demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo to break."""
    running = Demo(tmp_path / "data").start()
    yield running
    running.ensure_stopped()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for a module, whose tests then run in one loop."""
    async with browsing() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """A page without a past."""
    async with visiting(browser) as one:
        yield one
