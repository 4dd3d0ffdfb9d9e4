"""How several pytest processes share the suite (`-n 2`).

What lives here: which file goes to whom. What does not: what each process has to itself: a PostgreSQL (postgres.py), a
pgbouncer, temporary folders, ports that the system chooses.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

FIRST: Final = "gw0"


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Whole files: the first process takes them from the beginning, the others from the end, until they meet.

    The tests that start many processes and kill them are in the last folders. So they come one after the other, beside tests
    that are content with one core, and don't starve one another.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id != FIRST:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
