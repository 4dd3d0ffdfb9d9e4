"""The crash matrix on PostgreSQL: some cells, other ones each time; all of them with MOORINGS_TEST_FULL=1.

What lives here: choosing. What does not: what each cell has to come to on SQLite, to the number (test_crash_matrix.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.matrix import FULL_VARIABLE, Order, run_matrix, table
from tests.e2e.story import STORIES

CELLS = 10_000 if os.environ.get(FULL_VARIABLE) else 24
SEED_VARIABLE = "MOORINGS_TEST_SEED"


def test_stories_that_are_killed_somewhere_end_well(fresh_databases: Callable[[], str]) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    print(f"seed {seed}; again: {SEED_VARIABLE}={seed}")
    rng = random.Random(seed)

    def some(orders: list[Order]) -> list[Order]:
        return rng.sample(orders, min(CELLS, len(orders)))

    with tempfile.TemporaryDirectory(prefix="crash") as name:
        matrix = asyncio.run(run_matrix(Path(name), origin=fresh_databases, choose=some))
    print(table(matrix))
    for story in STORIES:
        calm = matrix.calm[story.name]
        assert (calm.breaches, calm.reruns) == ([], 0)
        assert (calm.models, calm.effects) == (len(story.said) + len(story.tools) + len(story.flows), len(story.tools))
    assert [cell for cell in matrix.cells if cell.problems or cell.deaths != cell.reached] == []
    assert sum(cell.reached for cell in matrix.cells) >= len(matrix.cells) / 3
