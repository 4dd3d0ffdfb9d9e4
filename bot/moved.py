"""What the demo's panel moved for good: the clock, and which deployment runs; a file beside the data keeps it.

What lives here: that file, and the clock that it moves. What does not: who moves them (console/panel.py).

Every process on the folder reads the file, so that all tell the same time, after a restart too. Only the demo writes it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bot.errors import NotReady
from channels.console import ConsolePlatform
from channels.signing import wall_clock
from durable_core.clock import Clock, DatabaseClock

if TYPE_CHECKING:
    from bot.settings import Settings

log = logging.getLogger("moorings.console")

FILE: Final = "moved.json"
MOST_MARKS: Final = 200
"""Older ones are no longer told in the timeline."""
MOST_AHEAD_MS: Final = 50 * 365 * 86_400_000


class MarkKind(StrEnum):
    """What was moved."""

    CLOCK = "clock"
    DEPLOY = "deploy"


@dataclass(frozen=True, slots=True)
class Mark:
    """One move: when, by the clock from then on, and how far: milliseconds, or the number of the deployment."""

    at: int
    kind: MarkKind
    to: int


@dataclass(frozen=True, slots=True)
class Moved:
    """All that was moved so far."""

    _: KW_ONLY
    ahead_ms: int = 0
    deployment: int = 1
    marks: tuple[Mark, ...] = ()

    def marked(self, mark: Mark) -> Moved:
        """Return it with one more mark."""
        return replace(self, marks=(*self.marks, mark)[-MOST_MARKS:])


class MovedFile:
    """The file, read anew when it was replaced; one that is not there says that nothing was moved."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._seen: tuple[tuple[int, int, int] | None, Moved] = (None, Moved())

    def read(self) -> Moved:
        """Return what it says; takes about a microsecond.

        What was read once stays true where the file has gone or is spoilt meanwhile: time doesn't go back in a process.

        Raises: NotReady, at the first read of a file that can't be understood.
        """
        found = self._stat()
        stood, moved = self._seen
        if found is None or found == stood:
            return moved
        try:
            moved = _parse(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return moved
        except (OSError, ValueError, KeyError, TypeError) as error:
            if stood is None:
                raise NotReady(
                    f"{self.path} can't be read ({type(error).__name__}): it says how far the demo's clock was moved. "
                    "Put it back, or begin with another folder: --data."
                ) from error
            log.warning("%s can't be read any more (%s); what it said before holds", self.path, error)
        self._seen = (found, moved)
        return moved

    def write(self, moved: Moved) -> None:
        """Replace the file; it is on the disk when this returns. Raises: OSError."""
        marks = [{"at": mark.at, "kind": mark.kind, "to": mark.to} for mark in moved.marks]
        draft = self.path.with_name(f"{FILE}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as file:
            json.dump({"ahead_ms": moved.ahead_ms, "deployment": moved.deployment, "marks": marks}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - for each statement of the database
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class MovedClock:
    """The machine's clock, as far ahead as the file says."""

    __slots__ = ("file",)

    def __init__(self, file: MovedFile) -> None:
        self.file = file

    def override(self) -> int | None:
        """Return the time in milliseconds; None, the database's own clock, as long as nothing was moved."""
        ahead = self.file.read().ahead_ms
        return wall_clock() + ahead if ahead else None

    def now(self) -> int:
        """Return the time in milliseconds."""
        return wall_clock() + self.file.read().ahead_ms

    def seconds(self) -> float:
        """Return the time in seconds."""
        return self.now() / 1000


def clock_of(settings: Settings) -> Clock:
    """Return the clock of a store: the database's own, or the one that is kept in a folder of demo and dev."""
    return DatabaseClock() if settings.own_folder is None else MovedClock(MovedFile(settings.own_folder))


def console_of(path: Path, clock: Clock) -> ConsolePlatform:
    """Return the console's platform, whose messages bear the store's time; it signs by the machine's, which doesn't jump."""
    return ConsolePlatform(path, now=clock.now if isinstance(clock, MovedClock) else wall_clock, signs_at=wall_clock)


def _parse(found: Mapping[str, Any]) -> Moved:
    marks = tuple(Mark(_whole(one["at"]), MarkKind(one["kind"]), _whole(one["to"])) for one in found["marks"])
    moved = Moved(ahead_ms=_whole(found["ahead_ms"]), deployment=_whole(found["deployment"]), marks=marks)
    if moved.ahead_ms > MOST_AHEAD_MS or moved.deployment < 1:
        raise ValueError(found)
    return moved


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value
