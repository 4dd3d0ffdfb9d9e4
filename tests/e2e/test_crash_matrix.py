"""Each story is killed at each failpoint, and nothing is lost, done twice or paid twice.

What lives here: what each cell has to come to. What does not: the cells (matrix.py), the invariants (judge.py).
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.e2e.matrix import ORDER, Cell, Matrix, in_temporary_folder, table
from tests.e2e.story import STORIES, Story

ASKING = {"once", "pay"}
"""Tools whose cut-off calls a person has to decide about."""
SENDS = {"send.before", "send.after", "send.after_record"}
"""Deaths while something is sent may cut off a step that runs beside it."""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return _run()


@cache
def _run() -> Matrix:
    made = in_temporary_folder()
    print(f"\n{table(made)}")
    return made


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_without_deaths(matrix: Matrix, story: Story) -> None:
    verdict = matrix.calm[story.name]
    assert verdict.breaches == []
    assert verdict.models == len(story.said) + len(story.tools) + len(story.flows)
    assert verdict.begins == verdict.effects == len(story.tools)
    assert verdict.reruns == 0


@pytest.mark.parametrize("failpoint", ORDER)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_with_one_death(matrix: Matrix, story: Story, failpoint: str) -> None:
    cells = matrix.of(story.name, failpoint)
    assert cells
    for cell in cells:
        assert cell.problems == ()
        if not (story.flows and cell.n > 1):  # what a run says is taken in at once or in parts, with more or fewer commits
            assert cell.reached == (matrix.hits[story.name][failpoint] >= cell.n)
        assert cell.deaths == cell.reached
        _check_counts(matrix, story, cell)


def _check_counts(matrix: Matrix, story: Story, cell: Cell) -> None:
    """Beyond the invariants: how often the model was asked and the tool ran, to the number."""
    calm, found = matrix.calm[story.name], cell.verdict
    again = found.models - calm.models
    begun = found.begins - calm.begins
    if not cell.reached:
        assert (again, begun, found.reruns) == (0, 0, 0)
        return
    match cell.failpoint:
        case "model.after_reply":
            assert again == 1  # the reply was lost with the process
        case "commit.before":
            assert again in {0, 1}  # a reply without calls is kept by this very commit
        case name if name in SENDS:
            assert again in {0, 1}
        case _:
            assert again == 0
    asks = bool(ASKING & set(story.tools))
    cut = cell.failpoint in {"tool.started", "tool.after_effect"} or (cell.failpoint == "record.after_commit" and cell.n == 2)
    if cell.failpoint in SENDS:
        assert found.reruns <= asks
        assert begun in {-1, 0, 1}
        return
    assert found.reruns == (asks and cut)
    runs_again = story.again == "rerun" or not asks
    if cell.failpoint == "tool.after_effect":
        assert begun == runs_again
    elif cut and asks:
        assert begun == (0 if runs_again else -1)
    else:
        assert begun == 0


@pytest.mark.parametrize("failpoint", ORDER)
def test_every_failpoint_kills_somewhere(matrix: Matrix, failpoint: str) -> None:
    assert [cell for cell in matrix.cells if cell.failpoint == failpoint and cell.reached]


def test_the_table_has_every_cell(matrix: Matrix) -> None:
    drawn = table(matrix)
    for failpoint in ORDER:
        assert f"| {failpoint} |" in drawn
    assert "lost 0, doubled 0, paid twice 0, cells with any breach 0" in drawn
