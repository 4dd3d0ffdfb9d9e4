"""Marks, and the switch that turns a skip for a missing part into a failure.

What lives here: what every test shares. What does not: stores, clocks and fakes, which live beside the tests that use them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import parts

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

pytest.register_assert_rewrite("durable_core.testing")  # the kit's modules show what they compared

pytest_plugins = ["tests.postgres", "tests.pgbouncer", "tests.oidc"]

FIXTURE_MARKS = {"postgres": "postgres", "postgres_url": "postgres", "migrated_url": "postgres"}


# The same code gets the same verdict each time; the search with ever new examples is the long run's.
hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None)
hypothesis.settings.register_profile("long", max_examples=2_000, deadline=None)
hypothesis.settings.load_profile("long" if os.environ.get("MOORINGS_TEST_FULL") == "1" else "seeded")


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `-n`, and unless another `--dist` is asked for."""
    from tests.sharing import FromBothEnds

    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return FromBothEnds(config, log)
