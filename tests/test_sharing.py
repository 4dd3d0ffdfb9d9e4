"""Two processes share the suite's files from both ends."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.sharing import FromBothEnds

FILES = ("a.py", "b.py", "c.py", "d.py", "e.py")


@dataclass(eq=False)
class Process:
    """What the scheduler sees of a pytest process."""

    id: str
    shutting_down: bool = False
    given: list[int] = field(default_factory=list)

    @property
    def gateway(self) -> SimpleNamespace:
        return SimpleNamespace(id=self.id)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_each_takes_whole_files_from_its_end_until_they_meet() -> None:
    tests = [f"{file}::test_{number}" for file in FILES for number in range(3)]
    option = SimpleNamespace(loadscopereorder=False, maxprocesses=None)
    shares = FromBothEnds(SimpleNamespace(option=option, getvalue=lambda _: ["2*popen"]))
    first, second = Process("gw0"), Process("gw1")
    for process in (first, second):
        shares.add_node(process)
        shares.add_node_collection(process, tests)
    shares.schedule()
    assert isinstance(shares.workqueue, OrderedDict)
    assert (first.given, second.given) == ([0, 1, 2], [12, 13, 14])
    shares.mark_test_complete(second, 12)  # the next file is there before the last one is done
    assert second.given == [12, 13, 14, 9, 10, 11]
    for index in (13, 14, 9):
        shares.mark_test_complete(second, index)
    assert second.given == [12, 13, 14, 9, 10, 11, 6, 7, 8]
    shares.mark_test_complete(first, 0)
    assert first.given == [0, 1, 2, 3, 4, 5]
    shares.mark_test_complete(first, 1)
    for index in (2, 3, 4, 5):
        shares.mark_test_complete(first, index)
    for index in (10, 11, 6, 7, 8):
        shares.mark_test_complete(second, index)
    assert shares.tests_finished
    assert first.shutting_down
    assert second.shutting_down
