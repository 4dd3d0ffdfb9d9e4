"""Marks, and the switch that turns a skip for a missing part into a failure.

What lives here: what every test shares. What does not: stores, clocks and fakes, which live beside the tests that use them.
"""

from __future__ import annotations

import pytest

from tests import parts

pytest.register_assert_rewrite("durable_core.testing")  # the kit's modules show what they compared

pytest_plugins = ["tests.postgres", "tests.pgbouncer"]

FIXTURE_MARKS = {"postgres": "postgres", "postgres_url": "postgres", "migrated_url": "postgres"}


def pytest_configure() -> None:
    try:
        parts.required()
    except parts.UnknownPart as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if mark := FIXTURE_MARKS.get(fixture):
                item.add_marker(mark)
