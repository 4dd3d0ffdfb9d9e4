"""Parts of the machine that some tests need, and what happens without them.

What lives here: the one place that may skip a test. What does not: the parts (postgres.py, pgbouncer.py, local_slack.py).
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

PARTS = frozenset({"postgres", "pgbouncer", "browser", "local-slack", "oidc-provider"})
SWITCH = "MOORINGS_TEST_REQUIRE"


class UnknownPart(ValueError):
    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(f"{SWITCH} names {', '.join(sorted(names))}; known are {', '.join(sorted(PARTS))}")
        self.names = names


def required() -> frozenset[str]:
    """Read which parts this run must have."""
    names = frozenset(name.strip() for name in os.environ.get(SWITCH, "").split(",") if name.strip())
    if names - PARTS:
        raise UnknownPart(names - PARTS)
    return names


def missing(part: str, reason: str) -> NoReturn:
    """Skip the test for want of a part, or fail it where the run requires that part."""
    if part not in PARTS:
        raise UnknownPart(frozenset({part}))
    if part in required():
        pytest.fail(f"{part} is required here: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


def chromium() -> str:
    """Find the machine's Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    missing("browser", "no Chromium on this machine")
