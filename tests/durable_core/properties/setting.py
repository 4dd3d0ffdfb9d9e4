"""Setting: what all rules of the state machine stand on.

What lives here: the world, the model, which store is called, what is held. What does not: rules (`people`, `workers`, `senders`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar, Final, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from durable_core.model import INTERNAL, SESSIONS, Abilities, Admission, Claim, Interaction, Lane, Receipt
from durable_core.store import Store
from durable_core.testing.builders import CHANNEL, START_MS
from tests.durable_core.properties.expected import ExpectedAnswer, ExpectedRun, ExpectedStore, Place
from tests.durable_core.properties.world import MemoryWorld, World

T = TypeVar("T")

ADDRESSES: Final = ("a", "b", "c")
HOOKS: Final = (("hook", "1"), ("hook", "2"), (CHANNEL, "c"))
"""What commits claim besides: the last one is also what people write to."""
WORKFLOWS: Final = ("order", "other")
ABLE: Final = (
    SESSIONS,
    Abilities(workflows=WORKFLOWS, code="c1"),
    Abilities(workflows=WORKFLOWS, code="c2"),
    Abilities(sessions=False, workflows=("order",), code="c1", channels=(INTERNAL,)),
)


class Setting(RuleBasedStateMachine):
    """The stores under test, the model beside them, and what the machine has in its hands."""

    world: ClassVar[World | None] = None
    """A world that is used again; None makes one in memory an example."""

    def __init__(self) -> None:
        super().__init__()
        self.place = self.world or self.make()
        self.place.begin()
        self.expected = ExpectedStore(now=START_MS)
        self.at = 0
        self.claims: dict[str, Claim] = {}
        self.stale: list[Claim] = []
        self.lanes: list[tuple[Lane, str]] = []
        self.taken: list[tuple[Interaction, ExpectedAnswer]] = []
        self.accepted: list[tuple[Admission, Receipt]] = []
        self.keys: dict[str, str] = {}
        """Keys of children, and the run each one made."""

    def make(self) -> World:
        """Return a world for one example."""
        return MemoryWorld()

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call."""
        return self.place.loop.get_loop().run_until_complete(call)

    @property
    def real(self) -> Store:
        """The store that is called."""
        return self.place.stores[self.at]

    @property
    def other(self) -> Store:
        """The store of the other process; the same where there is but one."""
        return self.place.stores[self.at - 1]

    @property
    def open_runs(self) -> list[ExpectedRun]:
        """What goes on."""
        return [r for r in self.expected.runs if r.open]

    def held(self, pick: int) -> tuple[ExpectedRun, Claim]:
        """Choose a run that is in somebody's hands."""
        runs = [r for r in self.expected.runs if r.owner is not None]
        run = runs[pick % len(runs)]
        return run, self.claims[run.run_id]

    def any_held(self) -> bool:
        """Whether there is one."""
        return any(r.owner for r in self.expected.runs)

    def lost(self, run: ExpectedRun) -> None:
        """Know a claim for over."""
        self.stale.append(self.claims.pop(run.run_id))

    def lose_expired(self) -> int:
        """Take back the runs and the answers whose lease is over, as whoever looks for work does."""
        over = [r for r in self.expected.runs if r.owner is not None and r.lease_until < self.expected.now]
        for run in over:
            run.lose(self.expected.now)
            self.lost(run)
        return len(over)

    def lose_lanes(self) -> None:
        """Take back the lanes whose lease is over."""
        for lane in self.expected.lanes.values():
            if lane.owner is not None and lane.lease_until < self.expected.now:
                lane.lose(self.expected.now)

    def give_back(self, owner: str) -> None:
        """Take back the lanes and the answers of one worker."""
        for lane in self.expected.lanes.values():
            if lane.owner == owner:
                lane.lose(self.expected.now)
        for answer in self.expected.answers:
            if answer.owner == owner and not answer.decided:
                answer.owner, answer.due_at = None, self.expected.now
                answer.epoch += 1


def lane_of(lane: Lane) -> Place:
    """Return a lane's place."""
    return lane.channel, lane.address
