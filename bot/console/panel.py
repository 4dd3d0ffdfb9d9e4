"""The panel of the demo's page: what it moves for good.

What lives here: moving the clock on, rolling out the next deployment. What does not: the file that keeps both (bot/moved.py),
the order of old and new worker (bot/rolling.py), HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bot.console.port import FarEnough, NothingToDeploy, RolloutUnderWay
from bot.moved import MOST_AHEAD_MS, Mark, MarkKind, MovedClock, MovedFile
from bot.rolling import RollingWorker, RolloutFailed
from durable_core.clock import milliseconds
from durable_core.errors import Unavailable
from durable_core.stores.sqlite.passing import pass_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.console.port import JsonObject
    from durable_core.store import Store

log = logging.getLogger("moorings.console")

_AT_WORK: Final = "SELECT 1 FROM moor_worker WHERE pid = :pid AND deployment = :deployment AND gone_at IS NULL"
STEP: Final = timedelta(days=3)
"""How far one press moves the clock: as long as a card waits for a person, if nothing else is said."""


@dataclass(slots=True)
class Panel:
    """`PanelPort` of demo and dev, on a folder with its own SQLite file; `demo` may move what stands there, dev only reads it."""

    file: MovedFile
    _: KW_ONLY
    database: Path
    store: Store | None = None
    roller: RollingWorker | None = None
    demo: bool = False
    changed: Callable[[], object] = lambda: None
    """Called in the loop when a page has something new to show."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _failed: str = ""

    def now(self) -> int:
        """Return the time as the store tells it."""
        return MovedClock(self.file).now()

    def seconds(self) -> float:
        """Return it in seconds."""
        return MovedClock(self.file).seconds()

    def marks(self) -> Sequence[Mark]:
        """List what was moved, oldest first."""
        return self.file.read().marks

    def state(self) -> JsonObject:
        """Say what can be pressed, and how far ahead the clock is."""
        deploys = self.roller is not None and self.store is not None
        return {"moves": self.demo, "deploys": deploys, "ahead_ms": self.file.read().ahead_ms}

    def changes(self) -> list[JsonObject]:
        """Return what a page is told when it differs from what it was told last."""
        told: list[JsonObject] = [{"kind": "clock", "ahead_ms": self.file.read().ahead_ms}]
        if (roller := self.roller) is not None:
            told.append(
                {
                    "kind": "deployment",
                    "runs": roller.deployment,
                    "next": f"v{self.file.read().deployment + 1}",
                    "leaves": roller.leaving,
                    "stage": None if roller.stage is None else roller.stage.value,
                    "failed": self._failed,
                }
            )
        return told

    async def pass_days(self) -> JsonObject:
        """Move the clock on, for every process on the folder."""
        async with self._one:
            await asyncio.shield(asyncio.to_thread(self._pass, milliseconds(STEP)))
        self.changed()
        return self.state()

    async def deploy(self) -> JsonObject:
        """Begin to roll the next deployment out; the page is told how it goes on."""
        if self.roller is None or self.store is None:
            raise NothingToDeploy
        if self.roller.stage is not None:
            raise RolloutUnderWay
        number, self._failed = self.file.read().deployment + 1, ""
        name = f"v{number}"
        ready, adopt = partial(self._at_work, self.store, name), partial(self._adopt, number)
        self.roller.deploy(name, ready=ready, adopt=adopt).add_done_callback(self._came_of)
        return {"deployment": name}

    async def _at_work(self, store: Store, deployment: str, pid: int) -> bool:
        """Whether a worker has enrolled: from then on it takes what comes."""
        try:
            return bool(await store.rows(_AT_WORK, {"pid": pid, "deployment": deployment}))
        except Unavailable:
            return False

    async def _adopt(self, number: int) -> None:
        async with self._one:
            await asyncio.to_thread(self._write, number)

    def _write(self, number: int) -> None:
        moved = replace(self.file.read(), deployment=number)
        self.file.write(moved.marked(Mark(self.now(), MarkKind.DEPLOY, number)))

    def _came_of(self, rollout: asyncio.Task[None]) -> None:
        if rollout.cancelled() or (error := rollout.exception()) is None:
            return
        log.error("a deploy came to nothing", exc_info=error)
        self._failed = str(error) if isinstance(error, RolloutFailed) else "The new worker could not be started."
        self.changed()

    def _pass(self, by_ms: int) -> None:
        pass_time(str(self.database), by_ms, now=self.now, move=lambda: self._move(by_ms))

    def _move(self, by_ms: int) -> None:
        moved = self.file.read()
        moved = replace(moved, ahead_ms=moved.ahead_ms + by_ms)
        if moved.ahead_ms > MOST_AHEAD_MS:
            raise FarEnough
        self.file.write(moved.marked(Mark(self.now() + by_ms, MarkKind.CLOCK, by_ms)))
