"""How much a soak test does, and its chance.

What lives here: the switch, the seed. What does not: any test.
"""

from __future__ import annotations

import os
import random
from typing import Final

FULL: Final = os.environ.get("MOORINGS_TEST_FULL") == "1"
SEED: Final = int(os.environ.get("MOORINGS_TEST_SEED", "20"))


def scaled(whole: int, part: int | None = None) -> int:
    """Return the whole of it, or a part (a tenth) of it in a plain run."""
    return whole if FULL else part or max(1, whole // 10)


def chance(name: str) -> random.Random:
    """Return the test's random numbers; the seed is printed."""
    print(f"{name}: MOORINGS_TEST_SEED={SEED}{' MOORINGS_TEST_FULL=1' if FULL else ''}")
    return random.Random(f"{name} {SEED}")
