"""The panel of the demo's page: what it moves for good.

What lives here: moving the clock on. What does not: the file that keeps it (bot/moved.py), HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bot.console.port import FarEnough
from bot.moved import MOST_AHEAD_MS, Mark, MarkKind, MovedClock, MovedFile
from durable_core.clock import milliseconds
from durable_core.stores.sqlite.passing import pass_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.console.port import JsonObject

STEP: Final = timedelta(days=3)
"""How far one press moves the clock: as long as a card waits for a person, if nothing else is said."""


@dataclass(slots=True)
class Panel:
    """`PanelPort` of demo and dev, on a folder with its own SQLite file; `demo` may move what stands there, dev only reads it."""

    file: MovedFile
    _: KW_ONLY
    database: Path
    demo: bool = False
    changed: Callable[[], object] = lambda: None
    """Called in the loop when a page has something new to show."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def now(self) -> int:
        """Return the time as the store tells it."""
        return MovedClock(self.file).now()

    def marks(self) -> Sequence[Mark]:
        """List what was moved, oldest first."""
        return self.file.read().marks

    def state(self) -> JsonObject:
        """Say what can be pressed, and how far ahead the clock is."""
        return {"moves": self.demo, "ahead_ms": self.file.read().ahead_ms}

    def changes(self) -> list[JsonObject]:
        """Return what a page is told when it differs from what it was told last."""
        return [{"kind": "clock", "ahead_ms": self.file.read().ahead_ms}]

    async def pass_days(self) -> JsonObject:
        """Move the clock on, for every process on the folder."""
        async with self._one:
            await asyncio.shield(asyncio.to_thread(self._pass, milliseconds(STEP)))
        self.changed()
        return self.state()

    def _pass(self, by_ms: int) -> None:
        pass_time(str(self.database), by_ms, now=self.now, move=lambda: self._move(by_ms))

    def _move(self, by_ms: int) -> None:
        moved = self.file.read()
        moved = replace(moved, ahead_ms=moved.ahead_ms + by_ms)
        if moved.ahead_ms > MOST_AHEAD_MS:
            raise FarEnough
        self.file.write(moved.marked(Mark(self.now() + by_ms, MarkKind.CLOCK, by_ms)))
