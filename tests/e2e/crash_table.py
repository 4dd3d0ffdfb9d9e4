"""Print the crash matrix as a table: `python -m tests.e2e.crash_table`; with MOORINGS_TEST_FULL=1 every passing is a cell.

What lives here: printing. What does not: the cells (matrix.py).
"""

from __future__ import annotations

import sys
import time

from tests.e2e.matrix import in_temporary_folder, table
from tests.e2e.story import SIGN_INS, STORIES


def main() -> int:
    """Run the matrix; the exit status says whether every cell is sound."""
    begun = time.monotonic()
    matrix = in_temporary_folder((*STORIES, *SIGN_INS))
    print(table(matrix))
    print(f"{time.monotonic() - begun:.0f} s")
    problems = [cell for cell in matrix.cells if cell.problems]
    for cell in problems:
        print(f"\n{cell.story} × {cell.failpoint}:{cell.n}")
        for problem in cell.problems:
            print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
