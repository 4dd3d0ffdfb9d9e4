"""The demo and a browser, once for all tests that don't break them.

What lives here: fixtures. What does not: the processes (demo.py), browsers (browser.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.e2e.browser import Visit, browsing, visiting
from tests.e2e.demo import Demo

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.postgres import PrivatePostgres


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


@pytest.fixture
def fresh_databases(postgres: PrivatePostgres, migrated: str) -> Iterator[Callable[[], str]]:
    """Make one PostgreSQL database a call, with the schema in it; returns its URL. All go at the end."""
    names: list[str] = []

    def make() -> str:
        names.append(postgres.create(migrated))
        return postgres.url(names[-1])

    yield make
    for name in names:
        postgres.drop(name)


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
