"""Sign-ins that are killed somewhere, by a tool's call and by a workflow: other cells each time, all with MOORINGS_TEST_FULL=1.

What lives here: choosing. What does not: the cells (matrix.py), the person (account.py), what has to be true (judge.py): a card
for the person alone, a line for the others, one account, and whatever was done with it was done once and as its owner.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.e2e.fleet import Origin
from tests.e2e.matrix import CONNECT, FULL_VARIABLE, ORDER, Matrix, Order, run_matrix, table
from tests.e2e.story import SIGN_INS

FULL = bool(os.environ.get(FULL_VARIABLE))
CELLS = 3
DATABASES = ("sqlite", "postgres")
SEED_VARIABLE = "MOORINGS_TEST_SEED"


def killed(rng: random.Random, origin: Origin | None) -> Matrix:
    """Run some cells, at least one of them in the middle of the sign-in itself."""

    def some(orders: list[Order]) -> list[Order]:
        inside = [order for order in orders if order[1] in CONNECT]
        outside = [order for order in orders if order not in inside]
        return orders if FULL else [*rng.sample(inside, 1), *rng.sample(outside, CELLS - 1)]

    with tempfile.TemporaryDirectory(prefix="crash") as name:
        stories = SIGN_INS if FULL else [rng.choice(SIGN_INS)]
        matrix = asyncio.run(run_matrix(Path(name), stories, origin=origin, choose=some))
    print(table(matrix))
    return matrix


def check(matrix: Matrix) -> None:
    for story in (story for story in SIGN_INS if story.name in matrix.calm):
        calm = matrix.calm[story.name]
        assert (calm.breaches, calm.reruns) == ([], 0)
        assert (calm.models, calm.effects) == (len(story.said) + len(story.tools) + len(story.flows), len(story.tools))
        assert {*CONNECT} <= {*matrix.hits[story.name]}
    assert [cell for cell in matrix.cells if cell.problems or cell.deaths != cell.reached] == []
    assert [cell for cell in matrix.cells if cell.failpoint in CONNECT and not cell.reached] == []
    if FULL:
        assert {cell.failpoint for cell in matrix.cells if cell.reached} == {*ORDER, *CONNECT}


def test_sign_ins_that_are_killed_somewhere_end_well(request: pytest.FixtureRequest) -> None:
    """One of them on one of the databases, another each time; both on both with MOORINGS_TEST_FULL."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    print(f"seed {seed}; again: {SEED_VARIABLE}={seed}")
    rng = random.Random(seed)
    for database in DATABASES if FULL else [rng.choice(DATABASES)]:
        check(killed(rng, request.getfixturevalue("fresh_databases") if database == "postgres" else None))
